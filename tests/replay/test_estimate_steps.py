"""Which steps are compared: the newest attempt of each host, the mean over hosts and repeats, clean ones alone."""

import numpy as np
import pyarrow as pa
from change_runs import MS, write_run

from phasepoint.phases.clock.steps import read_clock, read_series
from phasepoint.replay.change.clean_steps import CleanSteps, mean_steps, read_clean_steps


def steps(rows):
    """Rows of (host, attempt, step, time in ms, clean)."""
    host, attempt, step, ms, clean = (np.array(column) for column in zip(*rows, strict=True))
    series = read_series(pa.table({"host": host, "attempt": attempt, "step": step}))
    return CleanSteps(series, ms * MS, clean.astype(bool), clean.astype(bool))


def test_of_a_step_done_twice_the_last_counts_and_hosts_are_averaged():
    run = steps(
        [
            *((0, 0, 5, 10, 1), (0, 0, 6, 10, 1), (0, 1, 6, 20, 1), (0, 1, 7, 20, 0)),
            *((1, 0, 5, 30, 1), (1, 0, 6, 40, 1)),
        ]
    )
    found = mean_steps([run])
    assert found.step.tolist() == [5, 6]
    assert (found.own_ps // MS).tolist() == [20, 30]
    assert found.at(np.array([6, 9])).step.tolist() == [6]


def test_repeats_count_where_they_have_the_step_and_masks_choose():
    runs = [steps([(0, 0, 1, 10, 1), (0, 0, 2, 10, 1)]), steps([(0, 0, 2, 30, 1), (0, 0, 3, 30, 1)])]
    found = mean_steps(runs)
    assert dict(zip(found.step.tolist(), (found.own_ps // MS).tolist(), strict=True)) == {1: 10, 2: 20, 3: 30}
    chosen = mean_steps(runs, [np.array([True, False]), np.array([False, True])])
    assert chosen.step.tolist() == [1, 3]
    assert not len(mean_steps([steps([(0, 0, 1, 10, 0)])]).step)


def test_own_time_is_without_compiling_and_saving_and_captured_steps_are_not_clean(tmp_path):
    saved, compiled = {8: 4 * MS}, {0: 5 * MS, 3: MS}
    run = write_run(tmp_path / "r", [10 * MS] * 20, windows=[(12, 14)], saved_ps=saved, compile_ps=compiled)
    tables = {name: run.table(name) for name in ("steps", "windows", "checkpoints", "checkpoint_waits")}
    clock = read_clock(tables["steps"], run.shards, {})
    plain = read_clean_steps(clock, tables, lead=False)
    own = np.full(20, 10 * MS)
    own[[0, 3, 8]] -= [5 * MS, MS, 4 * MS]
    assert plain.own_ps.tolist() == own.tolist()
    assert np.flatnonzero(~plain.clean).tolist() == [0, 3, 8, 11, 12, 13, 14, 15]
    assert np.flatnonzero(~plain.settled).tolist() == [0, 3, 8]
    led = read_clean_steps(clock, tables, lead=True)
    assert np.flatnonzero(~led.clean).tolist() == [*range(10), 11, 12, 13, 14, 15]
