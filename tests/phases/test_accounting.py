"""The clock's account against a count of instants, one by one."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_tables import steps_table

from phasepoint.phases.clock.accounting import account_time, closed, split_steps
from phasepoint.phases.clock.breakdown import Breakdown, PartTime
from phasepoint.phases.clock.machine import CrowdedTime, machine_loss
from phasepoint.phases.clock.steps import read_clock, sum_ps

KINDS = ("checkpoints", "waits", "hints", "gaps")


def shard(closed_ps, *, host=0, attempt=0):
    closed_ns = None if closed_ps is None else closed_ps // 1000
    session = SimpleNamespace(epoch_unix_ns=0, closed_unix_ns=closed_ns, tally={})
    return SimpleNamespace(host=host, attempt=attempt, state="closed", session=session)


def stretches(intervals, **more):
    rows = [{"host": 0, "attempt": 0, "start_ps": a, "dur_ps": b - a, **more} for a, b in intervals]
    types = [(name, pa.int64()) for name in ("host", "attempt", "start_ps", "dur_ps")]
    return pa.Table.from_pylist(rows, schema=pa.schema([*types, *((name, pa.string()) for name in more)]))


def tables(checkpoints=(), waits=(), hints=(), gaps=()):
    return {
        "checkpoints": stretches(checkpoints),
        "checkpoint_waits": stretches(waits),
        "hints": stretches(hints, name="eval"),
        "gaps": stretches(gaps, why="window-boundary"),
    }


def account(steps, wall_ps, labels=None, **more):
    clock = read_clock(steps, [shard(wall_ps)], {})
    labels = np.zeros(clock.n_steps, np.int64) if labels is None else np.asarray(labels)
    found = account_time(clock, labels, {0: "train", 1: "other"}, tables(**more))
    return {part.name: part.total_ps for part in found.parts}


def test_every_instant_outside_goes_to_the_first_that_claims_it():
    steps = steps_table([1000, 1000], start_ps=[2000, 5000])
    found = account(steps, 10_000, checkpoints=[(1000, 2500)], hints=[(0, 5000)], gaps=[(4000, 4500)])
    assert found == {
        "outside steps": 4000,
        "eval, outside steps": 2500,
        "train": 1500,
        "checkpoint": 1500,
        "recording": 500,
    }


def test_waits_come_before_the_phase():
    steps = steps_table([1000, 500], input_ps=[400, None], compile_ps=[700, 100])
    assert account(steps, 1500) == {"compiling": 700, "input wait": 400, "train": 400}


def test_what_a_slower_machine_cost_is_an_estimate_and_leaves_the_rest_to_the_phase():
    """Of the second step 300 went into a checkpoint: what was lost there is less than what others are said to have."""
    steps = steps_table([1000, 500], input_ps=[400, None])
    clock = read_clock(steps, [shard(1500)], {})
    stretched = tables(checkpoints=[(1100, 1400)])
    loss = machine_loss(clock, np.array([0.5, 0.6]), CrowdedTime(np.array([200, 300]), *np.zeros((2, 2), np.int64)))
    parts = split_steps(clock, stretched, loss)
    found = account_time(clock, np.array([0, 1]), {0: "train", 1: "other"}, stretched, parts)
    assert [(part.name, part.total_ps, part.low_ps, part.high_ps, part.basis) for part in found.parts] == [
        ("slower machine", 700, 400, 775, "estimated"),
        ("input wait", 400, 400, 400, "measured"),
        ("checkpoint", 300, 300, 300, "measured"),
        ("train", 100, 25, 400, "estimated"),
    ]


def test_marked_checkpoints_bring_their_interval():
    saves = tables(checkpoints=[(100, 300), (600, 800)])
    saves["checkpoints"] = saves["checkpoints"].append_column("error_ps", pa.array([30, 40]))
    clock = read_clock(steps_table([1000]), [shard(1000)], {})
    train, checkpoint = account_time(clock, np.array([0]), {0: "train"}, saves).parts
    assert (checkpoint.total_ps, checkpoint.low_ps, checkpoint.high_ps) == (400, 302, 498)  # 1.96 × √(30² + 40²)
    assert (train.total_ps, train.low_ps, train.high_ps, train.basis) == (600, 502, 698, "estimated")


def test_steps_that_overlap_still_close():
    """A clock that went back: two steps of 1,000 over 1,500 of time."""
    found = account(steps_table([1000, 1000], start_ps=[500, 1000]), 3000)
    assert found == {"train": 2000, "outside steps": 1000}


@settings(max_examples=60)
@given(st.data())
def test_account_agrees_with_counting_instants(data):
    edges = data.draw(st.lists(st.integers(0, 59), min_size=2, max_size=10, unique=True).map(sorted))
    spans = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    labels = data.draw(st.lists(st.integers(0, 1), min_size=len(spans), max_size=len(spans)))
    pairs = st.lists(st.tuples(st.integers(0, 59), st.integers(0, 59)).map(lambda p: (min(p), max(p))), max_size=4)
    claims = {kind: data.draw(pairs) for kind in KINDS}
    wall = 60_000
    steps = steps_table([1000 * (b - a) for a, b in spans], start_ps=[1000 * a for a, _ in spans])
    thousand = {kind: [(1000 * a, 1000 * b) for a, b in some] for kind, some in claims.items()}
    expected: dict[str, int] = {}
    for instant in range(60):
        inside = next((i for i, (a, b) in enumerate(spans) if a <= instant < b), None)
        held = {kind: any(a <= instant < b for a, b in some) for kind, some in claims.items()}
        by_checkpoint = held["checkpoints"] or held["waits"]
        if inside is not None:
            name = "checkpoint" if by_checkpoint else ("train", "other")[labels[inside]]
        elif held["gaps"]:
            name = "recording"
        elif by_checkpoint:
            name = "checkpoint"
        else:
            name = "eval, outside steps" if held["hints"] else "outside steps"
        expected[name] = expected.get(name, 0) + 1000
    assert account(steps, wall, labels, **thousand) == expected


def test_a_breakdown_that_does_not_close_is_our_fault():
    part = PartTime("train", 5, 5, 5, 1.0, "measured")
    assert closed(Breakdown(5, (part,))).total_ps == 5
    with pytest.raises(AssertionError, match="parts add up to 5 ps, not to 6 ps: train 5"):
        closed(Breakdown(6, (part,)))


def test_sums_beyond_int64_are_exact():
    assert sum_ps(np.array([2**62, 2**62, 2**62 + 1])) == 3 * 2**62 + 1
    assert sum_ps(np.full(10_000, 2**50)) == 10_000 * 2**50
    assert sum_ps(np.empty(0, np.int64)) == 0


def test_a_session_that_never_closed_lasts_to_the_last_thing_seen():
    clock = read_clock(steps_table([1000]), [shard(None)], {(0, 0): 5000})
    assert clock.wall_ps == 5000
