"""Steps that a window's edge made short are no phase of their own."""

import numpy as np
import pytest
from run_tables import MS

from phasepoint.core.tables import table_from_rows
from phasepoint.phases.clock.edges import spared_ps
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.summary.analysis import analyse_run

N, STEP_MS = 600, 20.0


def recorded(folder, *, lead, every=15, waited=True, short_ms=0.5):
    """Steps of 20 ms; every so many an edge that waits for the steps the host is ahead, then as many short ones."""
    rng = np.random.default_rng(0)
    path = create_run(folder / "run", command=("train",))
    writer = open_shard(path, 0, epoch_unix_ns=1_700_000_000_000_000_000)
    steps, gaps, at_ps = [], [], 0
    dur_ms = STEP_MS * (1 + 0.02 * rng.standard_normal(N))
    for n in range(N):
        if n % every == 5:
            dur_ms[n : n + lead] = short_ms
            gap_ps = int((lead * (STEP_MS - short_ms) + 2) * MS) if waited else 2 * MS
            gaps.append({"why": "window-boundary", "start_ps": at_ps, "dur_ps": gap_ps, "unknown": "nothing"})
            at_ps += gap_ps
        steps.append({"step": n, "start_ps": at_ps, "dur_ps": int(dur_ms[n] * MS)})
        at_ps += steps[-1]["dur_ps"]
    writer.append("steps", table_from_rows("steps", steps))
    writer.append("gaps", table_from_rows("gaps", gaps))
    writer.close()
    return analyse_run(open_run(path))


@pytest.mark.parametrize("lead", [1, 2, 4])
def test_steps_after_a_wait_are_made_good_for_and_stay_in_their_phase(tmp_path, lead):
    analysis = recorded(tmp_path, lead=lead)
    spared = spared_ps(analysis.clock, analysis.table("gaps")) / MS
    short = analysis.clock.dur_ps < STEP_MS * MS / 2
    assert short.sum() == lead * (N // 15)
    assert spared[short] == pytest.approx(np.full(short.sum(), STEP_MS - 0.5), rel=0.05)
    assert not spared[~short].any()
    assert [(phase.name, phase.n_steps) for phase in analysis.result.phases] == [("train", N)]


def test_short_steps_without_a_wait_are_what_they_are(tmp_path):
    analysis = recorded(tmp_path, lead=1, waited=False)
    assert not spared_ps(analysis.clock, analysis.table("gaps")).any()
    assert len(analysis.result.phases) == 2


def test_a_host_that_is_not_ahead_has_nothing_made_good(tmp_path):
    analysis = recorded(tmp_path, lead=0)
    assert not spared_ps(analysis.clock, analysis.table("gaps")).any()
