"""From looks at the machine to the crowded time of steps."""

import numpy as np
import pytest
from run_tables import MS

from phasepoint.core.tables import table_from_rows
from phasepoint.findings.judge import judge_analysis
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.summary import machine_lane
from phasepoint.summary.analysis import analyse_run
from phasepoint.summary.machine_lane import build_machine_lane

S = 1000 * MS


def recorded(folder, *, ranks=1, looks=()):
    """100 steps of 100 ms for each rank, and looks of half a second: rank, start, run, wait, others, held by a
    limit, stolen, in seconds.
    """
    path = create_run(folder / "run", command=("train",))
    for rank in range(ranks):
        writer = open_shard(path, rank, epoch_unix_ns=1_700_000_000_000_000_000)
        steps = [{"step": n, "start_ps": n * 100 * MS, "dur_ps": 100 * MS} for n in range(100)]
        writer.append("steps", table_from_rows("steps", steps))
        names = ("run_ps", "wait_ps", "others_ps", "throttled_ps", "steal_ps")
        rows = [
            {"start_ps": int(at * S), "dur_ps": S // 2}
            | {name: None if value is None else int(value * S) for name, value in zip(names, values, strict=False)}
            for mine, at, *values in looks
            if mine == rank
        ]
        writer.append("machine", table_from_rows("machine", rows))
        writer.close()
    return open_run(path)


def crowded(run):
    from phasepoint.phases.clock.machine import crowded_time

    analysis = analyse_run(run)
    found = crowded_time(analysis.clock, analysis.table("machine"), run.shards)
    return None if found is None else found.ps


def test_the_smaller_of_waiting_and_others_counts(tmp_path):
    looks = [(0, at, 0.3, 0.2, 0.1) for at in np.arange(0, 5, 0.5)] + [
        (0, at, 0.5, 0.5, 0.0) for at in np.arange(5, 10, 0.5)
    ]
    found = crowded(recorded(tmp_path, looks=looks))
    assert found[:50] == pytest.approx(np.full(50, 0.25 * 100 * MS), abs=MS)  # 0.1 of 0.4, less than 0.2 of 0.5
    assert found[50:].max() <= 1


def test_before_the_first_look_and_after_the_last_one_it_was_as_then(tmp_path):
    looks = [(0, 2.0, 0.3, 0.3, 0.3), (0, 2.5, 0.5, 0.0, 0.0)]
    found = crowded(recorded(tmp_path, looks=looks))
    assert found[:20] == pytest.approx(np.full(20, 50 * MS), abs=MS)
    assert found[30:].max() <= 1


def test_what_a_limit_holds_is_told_from_what_others_take(tmp_path):
    """To the kernel such threads wait, too; and others may run meanwhile."""
    looks = [(0, at, 0.15, 0.35, 0.4, 0.3) for at in np.arange(0, 10, 0.5)]
    run = recorded(tmp_path / "held", looks=looks)
    found = analyse_run(run).crowded
    assert found.held_ps == pytest.approx(np.full(100, 60 * MS), abs=MS)
    assert found.ps - found.held_ps == pytest.approx(np.full(100, 10 * MS), abs=MS)  # 0.05 of 0.5
    parts = analyse_run(run).step_parts
    assert parts.machine_ps.sum() == found.held_ps.sum()
    assert (parts.least_ps <= parts.machine_ps).all()
    assert (parts.machine_ps <= parts.most_ps).all()
    lane = build_machine_lane(analyse_run(run).clock, run.table("machine"), run.shards, 0, 10 * S)
    assert [set(part) for part in (lane.waiting, lane.crowded, lane.held)] == [{0.7}, {0.1}, {0.6}]
    (limit,) = [row for row in judge_analysis(analyse_run(run)).findings if row.code == "SLOW-MACHINE"]
    assert limit.title.startswith("A limit on the job's CPU time costs 6.00 s, 60.0 % of the run: 100 of 100 steps")
    assert "resources.limits.cpu" in limit.remedy


def test_what_a_hypervisor_gives_to_other_machines_is_no_wait_to_the_kernel(tmp_path):
    looks = [(0, at, 0.2, 0.0, 0.0, 0.0, 0.3) for at in np.arange(0, 5, 0.5)]
    looks += [(0, at, 0.5, 0.0, 0.0, 0.0, 0.0) for at in np.arange(5, 10, 0.5)]
    run = recorded(tmp_path, looks=looks)
    found = analyse_run(run).crowded
    assert found.ps[:49] == pytest.approx(np.full(49, 60 * MS), abs=MS)
    assert found.stolen_ps[:49] == pytest.approx(found.ps[:49], abs=MS)
    assert found.ps[51:].max() <= 1
    shared = recorded(tmp_path / "shared", looks=[(0, at, 0.2, 0.1, 0.2, 0.0, 0.1) for at in np.arange(0, 10, 0.5)])
    found = analyse_run(shared).crowded
    assert found.ps == pytest.approx(np.full(100, 150 / 350 * 100 * MS), abs=MS)  # waited 0.1, half of 0.1 stolen
    assert found.stolen_ps == pytest.approx(found.ps / 3, abs=MS)


def test_ranks_on_the_same_machine_are_no_others(tmp_path):
    looks = [(rank, at, 0.5, 0.2, 0.5) for rank in (0, 1) for at in np.arange(0, 10, 0.5)]
    assert crowded(recorded(tmp_path / "both", ranks=2, looks=looks)).max() <= 1
    alone = crowded(recorded(tmp_path / "one", looks=looks))
    assert alone.min() > 25 * MS


def test_what_is_not_known_is_none_and_waits_may_be_missing(tmp_path):
    assert crowded(recorded(tmp_path / "none")) is None
    assert crowded(recorded(tmp_path / "others", looks=[(0, 0.0, 0.5, 0.1, None)])) is None
    waits = crowded(recorded(tmp_path / "waits", looks=[(0, 0.0, 0.3, None, 0.3)]))
    assert waits == pytest.approx(np.full(100, 50 * MS), abs=MS)


def test_the_lane_shows_each_look_and_joins_them_where_they_are_many(tmp_path, monkeypatch):
    looks = [(0, 0.0, 0.3, 0.2, 0.1), (0, 0.5, 0.5, 0.5, 0.0), (0, 1.0, 0.5, 0.0, 0.5), (0, 1.5, 0.4, 0.1, None)]
    run = recorded(tmp_path, looks=looks)
    lane = build_machine_lane(analyse_run(run).clock, run.table("machine"), run.shards, 0, 2 * S)
    assert lane.start_ps == (0, S // 2, S, 3 * S // 2)
    assert lane.end_ps == (S // 2, S, 3 * S // 2, 2 * S)
    assert lane.waiting == (0.4, 0.5, 0.0, 0.2)
    assert lane.crowded == (0.25, 0.0, 0.0, 0.0)  # of the last one others are not known, and count as none
    assert lane.speed == (None, None, None, None)
    monkeypatch.setattr(machine_lane, "MOST_POINTS", 2)
    lane = build_machine_lane(analyse_run(run).clock, run.table("machine"), run.shards, 0, 2 * S)
    assert (lane.start_ps, lane.end_ps, lane.waiting) == ((0, S), (S, 2 * S), (0.45, 0.1))
    assert build_machine_lane(analyse_run(run).clock, run.table("machine"), run.shards, 1, 2 * S) is None


def test_a_cores_speed_is_that_of_its_fastest_looks(tmp_path):
    probes = [80, 80, 160, None]
    rows = [
        {"start_ps": i * S, "dur_ps": S, "probe_ps": None if probe is None else probe * MS // 1000}
        for i, probe in enumerate(probes)
    ]
    run = recorded(tmp_path)
    table = table_from_rows("machine", rows)
    table = table.append_column("host", [[0] * 4]).append_column("attempt", [[0] * 4])
    lane = build_machine_lane(analyse_run(run).clock, table, run.shards, 0, 4 * S)
    assert lane.speed == (1.0, 1.0, 0.5, None)
    assert lane.waiting == (None,) * 4
