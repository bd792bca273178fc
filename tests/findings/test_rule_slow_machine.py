"""SLOW-MACHINE: what neighbours cost, planted at several strengths; quiet machines; runs that do not know."""

import numpy as np
import pytest
from planted_runs import MS, check_finding, noisy_steps, steps_of, view_of, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.run import slow_steps
from phasepoint.findings.rules.run.slow_machine import find

N = 1200


def looks(dur_ps, is_busy, *, known=True, stolen=False):
    """Looks at the machine every half a second: crowded for as much of it as busy steps take, by other programs or by a
    hypervisor, whose taking is no wait to the kernel.
    """
    ends = np.cumsum(dur_ps)
    edges = np.arange(0, int(ends[-1]), 500 * MS)
    busy_ps = np.concatenate(([0], np.cumsum(np.where(is_busy, dur_ps, 0))))
    busy = np.diff(np.interp(np.append(edges, ends[-1]), np.concatenate(([0], ends)), busy_ps))
    whole = np.diff(np.append(edges, ends[-1]))
    rows = []
    for start, length, crowded in zip(edges.tolist(), whole.tolist(), busy.tolist(), strict=True):
        waited, others = int(0.5 * crowded), int(0.6 * crowded + 0.01 * length)
        ran = {"run_ps": int(length) - waited, "wait_ps": waited, "others_ps": others if known else None}
        if stolen:
            ran |= {"wait_ps": 0, "others_ps": 0, "steal_ps": others}
        rows.append({"start_ps": start, "dur_ps": int(length), **ran})
    return {"machine": rows}


def beside(share):
    """Steps of which half lie beside a neighbour, for 3 s at a time, that costs this share of the run."""
    dur_ps = noisy_steps(N, noise=0.03)
    is_busy = np.arange(N) // 100 % 2 == 1
    factor = 1 + share / (1 - share) * dur_ps.sum() / dur_ps[is_busy].sum()
    planted_ps = int(((factor - 1) * dur_ps[is_busy]).sum())
    return np.where(is_busy, factor * dur_ps, dur_ps).astype(np.int64), is_busy, planted_ps


def test_what_a_hypervisor_gives_away_is_told_as_that(tmp_path):
    dur_ps, is_busy, planted_ps = beside(0.3)
    view = view_of(tmp_path, (steps_of(dur_ps), looks(dur_ps, is_busy, stolen=True)))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, planted_ps)
    assert found.title.startswith("other virtual machines on its hardware cost")
    assert "an instance that has its cores for itself" in found.remedy


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_what_a_neighbour_costs_is_found(tmp_path, share):
    dur_ps, is_busy, planted_ps = beside(share)
    view = view_of(tmp_path, (steps_of(dur_ps), looks(dur_ps, is_busy)))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, planted_ps)
    assert found.claim.by_step[~is_busy].sum() < 0.1 * found.claim.total_ps
    assert slow_steps.find(view) == []


def test_a_job_that_is_alone_has_no_finding(tmp_path):
    dur_ps = noisy_steps(N, noise=0.1)
    assert find(view_of(tmp_path, (steps_of(dur_ps), looks(dur_ps, np.zeros(N, bool))))) == []


@pytest.mark.parametrize("rows", [False, True])
def test_a_run_that_does_not_know_cannot_be_judged(tmp_path, rows):
    dur_ps, is_busy, _ = beside(0.3)
    view = view_of(tmp_path, (steps_of(dur_ps), looks(dur_ps, is_busy, known=False) if rows else {}))
    with pytest.raises(Unavailable, match="without looks at the machine"):
        find(view)
