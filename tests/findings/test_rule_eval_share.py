"""EVAL-SHARE: evaluations of several lengths, as steps and between steps."""

import numpy as np
import pytest
from planted_runs import MS, check_finding, noisy_steps, steps_of, view_of, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.run.eval_share import find

N = 600


def hint(name, start_ps, dur_ps, first=None, last=None):
    return {"name": name, "start_ps": int(start_ps), "dur_ps": int(dur_ps), "first_step": first, "last_step": last}


def evaluated(each, *, name="eval", every=100):
    """Every hundred steps the next `each` ones are evaluation."""
    steps = steps_of(noisy_steps(N))
    hints, planted_ps = [], 0
    for first in range(every - each, N, every):
        dur_ps = int(steps["dur_ps"][first : first + each].sum())
        hints.append(hint(name, steps["start_ps"][first], dur_ps, first, first + each - 1))
        planted_ps += dur_ps
    return steps, {"hints": hints}, planted_ps


@pytest.mark.parametrize("each", [6, 20, 40])
@pytest.mark.parametrize("name", ["eval", "Validation"])
def test_named_steps_are_claimed(tmp_path, each, name):
    steps, rows, planted_ps = evaluated(each, name=name)
    view = view_of(tmp_path, (steps, rows))
    (found,) = find(view)
    check_finding(view, found)
    assert found.claim.total_ps == planted_ps
    assert "6 evaluations" in found.title


def test_evaluation_between_steps_is_claimed_outside(tmp_path):
    steps = steps_of(noisy_steps(N))
    steps["start_ps"][300:] += 5000 * MS
    hints = [hint("eval", steps["start_ps"][299] + steps["dur_ps"][299], 4000 * MS)]
    view = view_of(tmp_path, (steps, {"hints": hints}))
    (found,) = find(view)
    check_finding(view, found)
    assert (found.claim.outside_ps, int(found.claim.by_step.sum())) == (4000 * MS, 0)


def test_compiling_in_it_is_not_claimed(tmp_path):
    steps, rows, planted_ps = evaluated(20)
    compile_ps = np.zeros(N, np.int64)
    compile_ps[80] = 10 * MS
    (found,) = find(view_of(tmp_path, (steps | {"compile_ps": compile_ps}, rows)))
    assert found.claim.total_ps == planted_ps - 10 * MS


def test_little_evaluation_and_other_names_are_no_finding(tmp_path):
    steps, rows, _ = evaluated(2)
    assert find(view_of(tmp_path / "little", (steps, rows))) == []
    steps, rows, _ = evaluated(40, name="warm-up")
    assert find(view_of(tmp_path / "other", (steps, rows))) == []


def test_without_names_it_cannot_judge(tmp_path):
    with pytest.raises(Unavailable, match=r"run\.phase"):
        find(view_of(tmp_path, (steps_of(noisy_steps(N)), {})))


def test_halves_are_within_the_interval(tmp_path):
    steps, rows, planted_ps = evaluated(20)
    (found,) = find(view_of(tmp_path, (steps, rows)))
    assert (found.low_ps, found.high_ps) == (planted_ps // 2, planted_ps)
    assert within(found.claim.total_ps, planted_ps, 0)
