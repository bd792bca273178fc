"""Ranks of one job open their windows before the same steps, and keep the budget on the job's critical path."""

import importlib.util
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from recorder_fakes import FakeClock, FakeSession, fake_record

from phasepoint.core.units import PS_PER_MS, PS_PER_S
from phasepoint.recorder.clock.cost import CostAccount
from phasepoint.recorder.process.identity import ranks_of_job
from phasepoint.recorder.windows.planner import SETTLED_STEPS
from phasepoint.recorder.windows.ranked import MOST_CAPTURING, RankedPlanner, SharedDelays, draw_number
from phasepoint.store import open_run


@pytest.fixture(scope="module")
def lockstep():
    """The simulation of `benchmarks/ranks.py`."""
    path = Path(__file__).parents[2] / "benchmarks" / "ranks.py"
    spec = importlib.util.spec_from_file_location("lockstep", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["lockstep"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("ranks", "jitter", "straggler"), [(2, 0.05, 0.0), (8, 0.05, 0.0), (8, 0.2, 0.3), (32, 0.2, 0.0)]
)
def test_a_synchronous_job_is_slowed_down_by_no_more_than_the_budget(lockstep, ranks, jitter, straggler):
    cell = lockstep.Cell(ranks, jitter, straggler, steps=6000)
    slower, _, began = lockstep.simulate(cell, seed=1)
    assert 0.002 < slower <= 1.1 * cell.budget
    assert len(set(began)) >= 20
    per_window = Counter(began)
    assert max(per_window.values()) <= MOST_CAPTURING
    if ranks <= MOST_CAPTURING:
        assert sum(per_window.values()) > 0.5 * ranks * len(per_window)  # most of them together


def test_windows_that_delay_nobody_do_not_make_them_follow_one_another(lockstep):
    """What most ranks do is hidden by the wait for the slow one: such windows seem to cost nothing."""
    cell = lockstep.Cell(256, 0.0, 0.3, steps=2000)
    slower, _, began = lockstep.simulate(cell, seed=1)
    assert 0.002 < slower <= 1.1 * cell.budget
    assert min(later - earlier for earlier, later in pairwise(sorted(set(began)))) >= SETTLED_STEPS


def test_alone_the_ranks_cost_the_job_many_times_the_budget(lockstep):
    cell = lockstep.Cell(32, 0.2, 0.0, steps=6000)
    slower, _, _ = lockstep.simulate(cell, seed=1, alone=True)
    assert slower > 2 * cell.budget


def test_delays_of_other_ranks_are_charged_as_they_add_up():
    told: list[int] = []
    account, planner = CostAccount(), SimpleNamespace(window_step=-1, mean_delay_ps=0.0, settled=told.append)
    delays, now_ps = SharedDelays(account, planner), 0
    charged = []
    for number, delay_ps in enumerate((9, -8, 5, -20, 4)):
        planner.window_step = step = 10 * number
        delays.note(step, now_ps)
        now_ps += SETTLED_STEPS * 100 + delay_ps
        delays.settle(step + SETTLED_STEPS, now_ps, 100)
        charged.append(account.cost(1).wait_ps)
    assert told == [9, -8, 5, -20, 4]
    assert charged == [9, 1, 6, 0, 0]  # what they sum up to, and never less than nothing


def test_first_windows_of_others_are_charged_in_full_and_an_evaluation_is_not():
    account, planner = CostAccount(), RankedPlanner(None, 3, 512)
    delays, now_ps = SharedDelays(account, planner), 0
    charged = []
    for number, delay_ps in enumerate([300 * PS_PER_MS] * 10 + [60 * PS_PER_S]):
        planner.window_step = step = 10 * number
        delays.note(step, now_ps)
        now_ps += SETTLED_STEPS * 100 + delay_ps
        delays.settle(step + SETTLED_STEPS, now_ps, 100)
        charged.append(account.cost(1).wait_ps)
    assert 2.8 * PS_PER_S < charged[9] <= 3 * PS_PER_S  # none of them its own
    assert charged[10] - charged[9] < PS_PER_S


def test_every_rank_captures_as_often_as_the_others():
    planners = [RankedPlanner(None, rank, 10, seed=5) for rank in range(10)]
    counts = [sum(planner.captures(step) for step in range(20_000)) for planner in planners]
    assert all(abs(count / 20_000 - MOST_CAPTURING / 10) < 0.02 for count in counts)
    for step in range(200):
        assert sum(planner.captures(step) for planner in planners) == MOST_CAPTURING


def test_the_numbers_are_even_and_apart():
    numbers = [draw_number(3, step, 1) for step in range(20_000)]
    tenths = Counter(int(10 * number) for number in numbers)
    assert all(abs(count - 2000) < 200 for count in tenths.values())
    assert abs(sum(a * b for a, b in pairwise(numbers)) / 19_999 - 0.25) < 0.01
    assert draw_number(3, 7, 1) != draw_number(4, 7, 1) != draw_number(3, 7, 2)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, (1, 4)),
        ({"PMI_RANK": "1", "PMI_SIZE": "x"}, None),
        ({"WORLD_SIZE": "4"}, None),
    ],
)
def test_how_many_ranks_there_are_is_the_launchers_to_say(environ, expected):
    assert ranks_of_job(environ) == expected


@pytest.mark.usefixtures("still")
def test_a_recording_of_one_rank_of_many_follows_the_schedule(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "16")
    steps = {}
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        clock = FakeClock()
        with fake_record(tmp_path / "run", clock, FakeSession(clock), budget=0.05) as run:
            for _ in run.steps(range(3000)):
                clock.tick(20)
            planner = run.recorder._planner
        assert isinstance(planner, RankedPlanner)
        rows = [row for row in open_run(tmp_path / "run").table("windows").to_pylist() if row["host"] == rank]
        steps[rank] = {row["first_step"] for row in rows if row["reason"] == "sample"}
        assert steps[rank]
        assert all(planner.captures(step) for step in steps[rank])
        assert all(row["probability"] < 0.25 for row in rows if row["reason"] == "sample")
