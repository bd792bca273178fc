from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from stack_runs import NS, ShardOf, run_of, span

from phasepoint.stack.analyses.table import analyse, find_analysis
from phasepoint.stack.analyses.timelines.memory import STRETCHES, match_releases

HOST = {"device": "host", "track": "main", "category": "host"}


def event(time_ns, bytes_, address=None, *, at=None, total=None, device="gpu:0"):
    """An allocation, or a release, `at` a span."""
    fields = {"address": address, "span": at, "allocated_bytes": total}
    return {"window": 0, "time_ps": time_ns * NS, "device": device, "bytes": bytes_, **fields}


SPANS = [
    span(0, 50, level="layer", name="net/a", layer="net/a", direction="forward", **HOST),
    span(1, 40, level="op", name="aten::linear", parent=0, **HOST),
    span(2, 30, level="op", name="aten::empty", parent=1, **HOST),
    span(60, 90, level="op", name="aten::add", direction="backward", **HOST),
]


def test_the_peak_and_what_held_it(tmp_path):
    rows = [
        event(3, 100, 1, at=2, total=1100),
        event(5, 200, 2, at=2, total=1300),
        event(8, -100, 1, at=2, total=1200),
        event(61, 50, 1, at=3, total=1250),
        event(62, 400, 3, at=3, total=1650),
        event(70, -300, 9, total=1350),
        event(71, -400, 3, total=950),
    ]
    run = run_of(tmp_path / "run", SPANS, allocations=rows)
    table = analyse(run, "memory-peak")
    assert [
        (row["layer"], row["op"], row["direction"], row["held_bytes"], row["blocks"]) for row in table.rows.to_pylist()
    ] == [
        (None, "aten::add", "backward", 450, 2),
        ("net/a", "aten::linear", "forward", 200, 1),
        (None, None, None, 1000, None),
    ]
    assert {(row["peak_ps"], row["peak_bytes"]) for row in table.rows.to_pylist()} == {(62 * NS, 1650)}
    assert table.notes == ("gpu:0: 1 releases of blocks that were allocated before the capture",)
    timeline = analyse(run, "memory-timeline").rows.to_pylist()
    assert [(row["time_ps"], row["allocated_bytes"]) for row in timeline if row["is_peak"]] == [(62 * NS, 1650)]
    assert [row["allocated_bytes"] for row in timeline] == [1100, 1300, 1200, 1250, 1650, 1350, 950]


def test_without_allocations_a_note_says_how_to_record_them():
    for name in ("memory-timeline", "memory-peak"):
        result = find_analysis(name).of_shard(ShardOf(spans=SPANS))
        assert result.rows.num_rows == 0
        assert "profile_memory=True" in result.notes[0]


def test_totals_that_the_profiler_did_not_give_are_counted():
    rows = [event(0, 10, 1), event(1, 20, 2), event(2, -10, 1)]
    result = find_analysis("memory-timeline").of_shard(ShardOf(allocations=rows))
    assert result.rows["allocated_bytes"].to_pylist() == [10, 30, 20]
    assert "no totals" in result.notes[0]


def test_thinned_samples_keep_every_stretch_of_times_highest_and_last():
    rng = np.random.default_rng(5)
    totals = rng.integers(0, 10**6, 20_000)
    rows = [event(int(i), 1, total=int(total)) for i, total in enumerate(totals)]
    kept = find_analysis("memory-timeline").of_shard(ShardOf(allocations=rows)).rows.to_pylist()
    assert len(kept) <= 2 * STRETCHES
    assert max(row["allocated_bytes"] for row in kept) == totals.max()
    by_time = {row["time_ps"] // NS: row["allocated_bytes"] for row in kept}
    for low in range(0, 20_000, 40):
        assert totals[low : low + 40].max() in [by_time.get(t) for t in range(low, low + 40)]
        assert by_time[low + 39] == totals[low + 39]
    assert sum(row["is_peak"] for row in kept) == 1


changes = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50), st.booleans()), max_size=25)


@settings(max_examples=200)
@given(changes)
def test_releases_belong_to_the_latest_allocation_at_their_address(events):
    address = pa.chunked_array([pa.array([place for place, _, _ in events], pa.int64())])
    taken = np.array([size if takes else -size for _, size, takes in events], np.int64)
    release, unmatched = match_releases(address, taken)
    holds, expected, strays = {}, [len(events)] * len(events), 0
    for i, (place, _, takes) in enumerate(events):
        held = holds.pop(place, None)
        if held is not None:
            expected[held] = i
        elif not takes:
            strays += 1
        if takes:
            holds[place] = i
    assert release.tolist() == expected
    assert unmatched == strays


@settings(max_examples=100)
@given(changes)
def test_what_held_the_peak_adds_up_to_it(events):
    rows = [event(i, size if takes else -size, place) for i, (place, size, takes) in enumerate(events)]
    held = find_analysis("memory-peak").of_shard(ShardOf(allocations=rows)).rows.to_pylist()
    total = Counter()
    for row in held:
        total[row["peak_bytes"]] += row["held_bytes"]
    assert all(peak == parts for peak, parts in total.items())
    if rows:
        counted = np.cumsum([row["bytes"] for row in rows])
        assert list(total) in ([counted.max()], [])
