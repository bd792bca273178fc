"""The verdict, word for word: what limits the run, how sure, what next; it never disagrees with the findings."""

from dataclasses import replace

import numpy as np
import pytest
from planted_runs import MS, capture, noisy_steps, steps_of, view_of

from phasepoint.findings.finding import RankedFinding
from phasepoint.findings.judge import judge_analysis
from phasepoint.findings.table import RULES
from phasepoint.findings.verdict import LEAST_BOUND, write_verdict

S = 1000 * MS
STALL = RankedFinding(
    "INPUT-STALL",
    "The device waits 30.5 s for data, 58.0 % of the run",
    "train",
    saved_ps=27 * S,
    low_ps=20 * S,
    high_ps=31 * S,
    alone_ps=30_500 * MS,
    share=0.52,
    layers=(),
    remedy="Give the loader worker processes: DataLoader(num_workers=4); or a thread",
    evidence=(),
    confidence="high",
    wrong_if="",
)


def steady(folder, shares=None, **options):
    """A run of 400 equal steps, captured as `shares` says."""
    steps = steps_of(noisy_steps(400, noise=0.01))
    rows = capture(steps, lambda _: shares, **options) if shares else {}
    return view_of(folder, (steps, rows))


def test_the_first_finding_is_the_verdict(tmp_path):
    verdict = write_verdict(steady(tmp_path), [STALL])
    assert verdict.text == (
        "INPUT-BOUND: the device waits 30.5 s for data, 58.0 % of the run. Next: give the loader worker processes: "
        "DataLoader(num_workers=4); that should win about 27.0 s (20.0 s to 31.0 s)."
    )
    (bound,) = verdict.bounds
    assert (bound.word, bound.code, bound.share, bound.time_ps) == ("INPUT-BOUND", "INPUT-STALL", 0.52, 30_500 * MS)
    assert not verdict.is_healthy


def test_several_bounds_are_several(tmp_path):
    others = [replace(STALL, code=code, share=share) for code, share in (("SLOW-MACHINE", 0.2), ("DEVICE-IDLE", 0.1))]
    same_word = replace(STALL, code="HOST-DISPATCH", share=0.07)
    verdict = write_verdict(steady(tmp_path), [STALL, *others, same_word])
    assert verdict.advice.endswith(" Also: SLOW MACHINE 20.0 %, HOST-BOUND 10.0 %.")
    assert [bound.code for bound in verdict.bounds] == ["INPUT-STALL", "SLOW-MACHINE", "DEVICE-IDLE"]


@pytest.mark.parametrize("vague", [{"confidence": "low"}, {"low_ps": 8 * S}])
def test_a_guess_is_told_as_one(tmp_path, vague):
    verdict = write_verdict(steady(tmp_path), [replace(STALL, **vague)])
    low = "8.00 s" if "low_ps" in vague else "20.0 s"
    assert verdict.advice.endswith(f"; that should win something between {low} and 31.0 s.")


@pytest.mark.parametrize("finding", [replace(STALL, low_ps=0), replace(STALL, share=0.99 * LEAST_BOUND)])
def test_what_may_win_nothing_or_hardly_anything_is_no_bound(tmp_path, finding):
    verdict = write_verdict(steady(tmp_path, {"compute": 0.95}, every=20), [finding])
    assert verdict.is_healthy
    assert verdict.limit.startswith("COMPUTE-BOUND: the device works for 95.0 % of the run (")
    assert verdict.limit.endswith("): healthy.")


@pytest.mark.parametrize(
    ("shares", "word"),
    [
        ({"compute": 0.95}, "COMPUTE-BOUND"),
        ({"compute": 0.3, "communication": 0.6}, "COMMUNICATION-BOUND"),
        ({"compute": 0.3, "data_movement": 0.6}, "MEMORY-BOUND"),
    ],
)
def test_without_a_finding_the_device_sets_the_pace(tmp_path, shares, word):
    verdict = write_verdict(steady(tmp_path, shares, every=20), [])
    assert (verdict.bounds[0].word, verdict.is_healthy) == (word, True)
    assert verdict.bounds[0].share == pytest.approx(sum(shares.values()), rel=0.01)
    assert verdict.advice == "Nothing was found that would win 5.0 % of the run."


def test_a_device_that_mostly_waits_is_never_healthy(tmp_path):
    verdict = write_verdict(steady(tmp_path, {"compute": 0.2, "host": 0.7}, every=20), [])
    assert verdict.limit.startswith("HOST-BOUND: the device works for 20.0 % of the run (")
    assert "is the host's own work" in verdict.limit
    assert verdict.advice == "Next: see what the host did while the device stood idle (phasepoint stack idle-causes)."
    assert not verdict.is_healthy


def test_too_little_seen_is_said_with_what_is_needed(tmp_path):
    nothing = write_verdict(steady(tmp_path / "none"), [])
    assert nothing.limit.startswith("NOT KNOWN: the times of the steps alone show no cause, and no step was captured")
    assert nothing.advice.startswith("Next: record a longer job")
    steps = steps_of(noisy_steps(400, noise=0.01))
    rows = capture(steps, lambda step: {"compute": 0.9 if step < 150 else 0.2}, every=200)
    vague = write_verdict(view_of(tmp_path / "vague", (steps, rows)), [])
    assert vague.limit.startswith("NOT KNOWN: the times of the steps alone show no cause, and 2 windows cannot speak")
    assert " in the 10 steps captured the device works for " in vague.limit
    assert vague.bounds == ()
    rows = capture(steps, lambda step: {"compute": 0.95 if step < 200 else 0.05}, every=100)
    wide = write_verdict(view_of(tmp_path / "wide", (steps, rows)), [])
    assert "and by 4 windows the device works for anything between " in wide.limit


def test_two_windows_that_agree_call_no_run_healthy(tmp_path):
    two, three = (write_verdict(steady(tmp_path / str(e), {"compute": 0.95}, every=e), []) for e in (250, 160))
    assert not two.is_healthy
    assert " 2 windows cannot speak for the run: in the 10 steps captured the device works for 95.0 % " in two.limit
    assert three.is_healthy


def test_time_outside_steps(tmp_path):
    """Less than 2 s of it is no shortfall, but it is most of this run."""
    steps = steps_of(np.full(60, 10 * MS), start_ps=1500 * MS)
    verdict = judge_analysis(view_of(tmp_path, (steps, {})).analysis).verdict
    assert verdict.limit.startswith("OUTSIDE STEPS: 1.50 s, 71.4 % of the run, went into outside steps")


def test_the_verdict_of_a_run_is_its_first_finding(tmp_path):
    dur_ps = noisy_steps(600)
    steps = steps_of(dur_ps, input_ps=np.asarray(0.4 * dur_ps, np.int64))
    found = judge_analysis(view_of(tmp_path, (steps, {})).analysis)
    first = found.findings[0]
    assert first.code == found.verdict.bounds[0].code == "INPUT-STALL"
    assert found.verdict.limit == f"INPUT-BOUND: {first.title[0].lower()}{first.title[1:]}."


def test_every_rule_that_wins_time_has_its_words():
    silent = {rule.code for rule in RULES if rule.bound is None}
    assert silent == {"MEMORY-GROWTH", "THIN-PROFILE"}
    assert all(rule.bound == rule.bound.upper() for rule in RULES if rule.bound)
