"""THIN-PROFILE: too few steps, no windows, too few windows; and what must be recorded to know enough."""

import re

import numpy as np
import pytest
from planted_runs import capture, check_finding, noisy_steps, steps_of, view_of

from phasepoint.findings.judge import judge_analysis
from phasepoint.findings.rules.run.thin_profile import MOST_HALF, find


def varied(every, *, n=2000, spread=0.15, seed=0, **more):
    """A run whose windows differ: compute takes 60 % of a step, give or take."""
    rng = np.random.default_rng(seed)
    of_window = np.repeat(np.clip(rng.normal(0.6, spread, n // 50 + 1), 0.05, 0.95), 50)
    steps = steps_of(noisy_steps(n, noise=0.03))
    return steps, capture(steps, lambda i: {"compute": of_window[i]}, every=every, **more)


def half_width(view):
    breakdown = view.analysis.estimates.categories
    return max((part.high_ps - part.low_ps) / 2 for part in breakdown.parts) / breakdown.total_ps


@pytest.mark.parametrize("every", [650, 1000])
def test_few_windows_are_told_with_how_many_are_needed(tmp_path, every):
    view = view_of(tmp_path / "thin", varied(every))
    assert half_width(view) > MOST_HALF
    (found,) = find(view)
    check_finding(view, found)
    seen, needed = map(int, re.search(r"(\d+) windows were seen, (\d+) are needed", found.title).groups())
    assert seen == view.table("windows").num_rows
    assert needed > seen
    more = view_of(tmp_path / "more", varied(max(2000 // needed, 6)))
    assert half_width(more) < MOST_HALF * 1.25


def test_enough_windows_are_no_finding(tmp_path):
    assert find(view_of(tmp_path, varied(50))) == []


def test_a_run_captured_whole_is_no_finding(tmp_path):
    assert find(view_of(tmp_path, varied(5, n=300, first=0, length=5, probability=None))) == []


def test_no_windows(tmp_path):
    view = view_of(tmp_path, (steps_of(noisy_steps(500)), {}))
    (found,) = find(view)
    check_finding(view, found)
    assert found.title == "no step was captured: where the time inside a step goes is not known"
    assert "budget=None" in found.remedy


def test_a_single_window(tmp_path):
    (found,) = find(view_of(tmp_path, varied(1996)))
    assert "1 window was seen" in found.title


def test_windows_that_are_not_converted(tmp_path):
    steps, rows = varied(50)
    view = view_of(tmp_path, (steps, {"windows": rows["windows"]}))
    (found,) = find(view)
    check_finding(view, found)
    assert "40 windows were recorded, 40 are not converted" in found.evidence[0].text


@pytest.mark.parametrize("n", [1, 8, 19])
def test_few_steps(tmp_path, n):
    view = view_of(tmp_path, (steps_of(noisy_steps(n)), {}))
    (found,) = find(view)
    check_finding(view, found)
    assert found.title.startswith("only 1 step was" if n == 1 else f"only {n} steps were")


def test_no_steps_at_all(tmp_path):
    (found,) = find(view_of(tmp_path, (steps_of([]), {})))
    assert found.title.startswith("no training step was recorded")
    assert "run.steps(loader)" in found.remedy


def test_it_is_told_although_it_claims_no_time(tmp_path):
    told = judge_analysis(view_of(tmp_path, (steps_of(noisy_steps(8)), {})).analysis).findings
    assert [f.saved_ps for f in told if f.code == "THIN-PROFILE"] == [0]
