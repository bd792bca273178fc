"""COMPILE-SHARE: first compilations of several lengths; a run that was compiled before."""

import numpy as np
import pytest
from planted_runs import MS, check_finding, noisy_steps, steps_of, view_of, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.run.compile_share import find

N = 400


def compiled(share, *, timed=1.0):
    """The first step compiles for this share of the run; of that the compiler's own clock sees the part `timed`."""
    dur_ps = noisy_steps(N)
    extra_ps = int(dur_ps.sum() * share / (1 - share))
    dur_ps[0] += extra_ps
    compile_ps = np.zeros(N, np.int64)
    compile_ps[0] = int(extra_ps * timed)
    return steps_of(dur_ps, input_ps=np.zeros(N, np.int64), compile_ps=compile_ps), extra_ps


@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
@pytest.mark.parametrize("timed", [0.7, 1.0])
def test_first_compilations_are_claimed(tmp_path, share, timed):
    steps, extra_ps = compiled(share, timed=timed)
    view = view_of(tmp_path, (steps, {}))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, extra_ps, 0.15)
    assert found.claim.part == "compiling"
    assert np.flatnonzero(found.claim.by_step).tolist() == [0]


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_a_short_compilation_is_no_finding(tmp_path, share):
    assert find(view_of(tmp_path, (compiled(share)[0], {}))) == []


def test_a_slow_step_that_compiles_a_little_owes_only_that(tmp_path):
    steps, _ = compiled(0.0)
    steps["dur_ps"][0] += 4000 * MS
    steps["compile_ps"][0] = 1000 * MS
    steps = steps_of(steps["dur_ps"], compile_ps=steps["compile_ps"])
    (found,) = find(view_of(tmp_path, (steps, {})))
    assert found.high_ps == 1000 * MS


def test_without_compile_times_it_cannot_judge(tmp_path):
    with pytest.raises(Unavailable, match="no compile times"):
        find(view_of(tmp_path, (steps_of(noisy_steps(N)), {})))
