"""Several ranks with known offsets of their clocks and known delays."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stack_runs import NS, START_NS, ShardOf, kernel, run_of, span

from phasepoint.stack.analyses.table import analyse
from phasepoint.stack.analyses.timelines.collective_skew import collective_skew
from phasepoint.stack.shard.clock_alignment import align_clocks

NAMES = {"all_reduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "broadcast": "ncclDevKernel_Broadcast_RING_LL"}
MS = 1_000_000


def job(arrivals, transfers, offsets, *, kinds=None, told=True, epochs=None):
    """A shard for each rank.

    Args:
        arrivals: [collective][rank] when the rank arrives, true ns; None where it takes no part.
        transfers: [collective] ns from the last arrival to the end.
        offsets: [rank] what its clock is ahead, ns.
    """
    shards = []
    for rank, offset in enumerate(offsets):
        spans, rows, sequences = [], [], {}
        for i, arrived in enumerate(arrivals):
            if arrived[rank] is None:
                continue
            end = max(a for a in arrived if a is not None) + transfers[i]
            kind = kinds[i] if kinds else "all_reduce"
            group = "".join(str(r) for r, a in enumerate(arrived) if a is not None)
            sequence = sequences[group] = sequences.get(group, -1) + 1
            rows.append({"window": 0, "span": len(spans), "kind": kind, "group": group, "sequence": sequence})
            times = arrived[rank] + offset, end + offset
            spans.append(kernel(*times, name=NAMES[kind], category="communication", device=f"gpu:{rank}"))
        epoch = epochs[rank] if epochs else START_NS
        shards.append(ShardOf(host=rank, epoch_unix_ns=epoch, spans=spans, collectives=rows if told else ()))
    return shards


def rows_of(shards):
    """{(host, kind): row}."""
    rows = collective_skew.of_shards([collective_skew.of_shard(shard).rows for shard in shards]).to_pylist()
    return {(row["host"], row["kind"]): row for row in rows}


@pytest.mark.parametrize("told", [True, False], ids=["numbered", "by order"])
def test_who_came_late_and_who_waited_with_clocks_milliseconds_apart(told):
    arrivals = [[0, 100, 40], [1000, 1010, 1300], [2000, 2250, 2000]]
    shards = job(arrivals, [50, 60, 70], [0, 5 * MS, -3 * MS], told=told)
    rows = rows_of(shards)
    assert rows[1, None] == {
        "host": 1,
        "device": "gpu:1",
        "kind": None,
        "collectives": 3,
        "unmatched": 0,
        "late": 2,
        "late_ps": (60 + 250) * NS,
        "late_max_ps": 250 * NS,
        "straggles": False,
        "wait_ps": 290 * NS,
        "transfer_ps": 180 * NS,
        "total_ps": 470 * NS,
        "skew_median_ps": 250 * NS,
        "skew_max_ps": 300 * NS,
        "clock_offset_ps": 5 * MS * NS,
        "clock_error_ps": 0,
    }
    assert rows[0, "all_reduce"]["wait_ps"] == (100 + 300 + 250) * NS
    assert (rows[2, None]["late"], rows[2, None]["late_ps"]) == (1, 290 * NS)
    assert rows[2, None]["clock_offset_ps"] == -3 * MS * NS


def test_sessions_have_epochs_of_their_own():
    epochs = [START_NS, START_NS + 7 * 10**9]
    shards = job([[0, 10], [100, 130]], [5, 5], [0, 2 * MS - 7 * 10**9], epochs=epochs)
    assert rows_of(shards)[1, None]["clock_offset_ps"] == 2 * MS * NS


def test_a_rank_that_is_always_last_straggles():
    rng = random.Random(3)
    arrivals = [[1000 * i + rng.randrange(20) for _ in range(4)] for i in range(40)]
    for i, arrived in enumerate(arrivals):
        arrived[2] += 50 if i % 4 else 0
    rows = rows_of(job(arrivals, [30] * 40, [0, 1 * MS, 2 * MS, -1 * MS]))
    assert [rank for rank in range(4) if rows[rank, None]["straggles"]] == [2]
    even = rows_of(job([[1000 * i + rng.randrange(20) for _ in range(4)] for i in range(40)], [30] * 40, [0] * 4))
    assert not any(row["straggles"] for row in even.values())


def on_threads(names, *, late_ns=40, steps=30, device="host", **fields):
    """Two ranks whose collectives go on threads of the host: the second comes late to the first one of each step."""
    shards = []
    for rank in (0, 1):
        spans = []
        for step in range(steps):
            start = 1000 * step + (late_ns if rank else 0)
            ends = [1000 * step + late_ns + 50 * (i + 1) for i in range(len(names))]
            for i, (name, end) in enumerate(zip(names, ends, strict=True)):
                track = f"thread {rank}{(i + step) % 2}"  # they take turns
                more = {"name": name, "step": step, "track": track, "device": device, **fields}
                asks = {"name": "c10d::allreduce_", "step": step, "device": "cpu:0", "level": "op"}
                spans.append(span(start, end, **more))
                if device == "host":
                    spans.append(span(start, start + 5, category="communication", **asks))
                start = end
        shards.append(ShardOf(host=rank, spans=spans))
    return rows_of(shards)


def test_collectives_of_gloo_are_found_on_whichever_thread_and_those_who_ask_for_them_do_not_count():
    rows = on_threads(["gloo:all_reduce"] * 2, level="layer", category="host")
    assert (rows[1, None]["device"], rows[1, None]["collectives"], rows[1, None]["unmatched"]) == ("host", 60, 0)
    assert rows[1, "all_reduce"]["late_ps"] == 30 * 40 * NS
    assert rows[0, None]["wait_ps"] == 30 * 40 * NS


def test_a_rank_that_is_late_to_the_first_of_several_straggles():
    """It is the last one in half of the cases, as chance has it, and by all of the time that is waited."""
    rows = on_threads(
        ["all-reduce.1", "psum_invariant.63"], level="op", category="communication", device="cpu:0", late_ns=200
    )
    assert rows[1, "all_reduce"]["collectives"] == 60
    assert [rows[rank, None]["straggles"] for rank in (0, 1)] == [False, True]


def test_ranks_that_share_no_group_are_aligned_through_those_between():
    arrivals = [[0, 10, None], [None, 100, 150], [200, 210, None], [None, 300, 310]]
    rows = rows_of(job(arrivals, [5] * 4, [0, 4 * MS, 9 * MS]))
    assert [rows[rank, None]["clock_offset_ps"] for rank in range(3)] == [0, 4 * MS * NS, 9 * MS * NS]
    assert rows[2, None]["late_ps"] == 60 * NS


def test_a_clock_that_nothing_ties_to_the_others_is_not_guessed():
    rows = rows_of(job([[0, 10, None], [None, None, 40]], [5, 5], [0, MS, 0]))
    assert rows[2, None]["clock_offset_ps"] is None
    assert (rows[2, None]["collectives"], rows[2, None]["unmatched"]) == (0, 1)
    assert rows[2, None]["skew_median_ps"] is None


def test_a_single_rank_has_nothing_to_compare(tmp_path):
    run = run_of(tmp_path / "run", [kernel(0, 5, category="communication", name=NAMES["all_reduce"]), kernel(6, 9)])
    rows = analyse(run, "collective-skew").rows.to_pylist()
    assert [(row["kind"], row["collectives"], row["unmatched"]) for row in rows] == [(None, 0, 1), ("all_reduce", 0, 1)]
    assert [row["clock_error_ps"] for row in rows] == [None, None]


def test_no_collectives_no_rows(tmp_path):
    table = analyse(run_of(tmp_path / "run", [kernel(0, 5)]), "collective-skew")
    assert table.rows.num_rows == 0
    assert table.rows.column_names == [column.name for column in collective_skew.columns]
    assert "record all ranks" in table.notes[0]


def test_the_median_withstands_ends_that_scatter():
    rng = np.random.default_rng(1)
    collective, host = np.repeat(np.arange(500), 4), np.tile(np.arange(4), 500)
    true = np.array([0, 3_000_000, -2_000_000, 40_000]) * NS
    end = collective * 10**9 + true[host] + rng.exponential(2_000, 2_000).astype(np.int64) * NS
    end[rng.integers(0, 2_000, 40)] += 10**9  # 2 % that came a millisecond late
    clocks = align_clocks(collective, host, end, np.ones(2_000, np.bool_), hosts=4)
    assert clocks.aligned.all()
    assert np.abs(clocks.offset_ps - true).max() < 500 * NS
    assert 0 < clocks.error_ps.max() < 3_000 * NS


@st.composite
def jobs(draw):
    ranks = draw(st.integers(2, 4))
    n = draw(st.integers(1, 8))
    arrivals = [[1000 * i + draw(st.integers(0, 300)) for _ in range(ranks)] for i in range(n)]
    for arrived in arrivals[1:]:
        for rank in draw(st.sets(st.integers(0, ranks - 1), max_size=ranks - 2)):
            arrived[rank] = None
    transfers = [draw(st.integers(0, 90)) for _ in range(n)]
    offsets = [0] + [draw(st.integers(-10 * MS, 10 * MS)) for _ in range(ranks - 1)]
    kinds = [draw(st.sampled_from(sorted(NAMES))) for _ in range(n)]
    return arrivals, transfers, offsets, kinds


@settings(max_examples=200)
@given(jobs())
def test_every_figure_is_that_of_the_true_times(one):
    arrivals, transfers, offsets, kinds = one
    rows = rows_of(job(arrivals, transfers, offsets, kinds=kinds))
    for rank, offset in enumerate(offsets):
        mine = [
            (a[rank], [t for t in a if t is not None], x)
            for a, x in zip(arrivals, transfers, strict=True)
            if a[rank] is not None
        ]
        row = rows[rank, None]
        assert row["clock_offset_ps"] == offset * NS
        assert row["wait_ps"] == sum(max(all_) - at for at, all_, _ in mine) * NS
        assert row["transfer_ps"] == sum(transfer for *_, transfer in mine) * NS
        assert row["total_ps"] == row["wait_ps"] + row["transfer_ps"]
        assert row["skew_max_ps"] == max(max(all_) - min(all_) for _, all_, _ in mine) * NS
    for i in range(len(arrivals)):
        assert sum(a[r] is not None for r in range(len(offsets)) for a in [arrivals[i]]) >= 2
    assert sum(rows[rank, None]["late"] for rank in range(len(offsets))) == len(arrivals)
    gaps = [sorted(t for t in a if t is not None)[-2:] for a in arrivals]
    assert sum(rows[r, None]["late_ps"] for r in range(len(offsets))) == sum(b - a for a, b in gaps) * NS
