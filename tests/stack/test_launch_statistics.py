import math

from hypothesis import given, settings
from hypothesis import strategies as st
from stack_runs import NS, ShardOf, kernel, run_of, span

from phasepoint.stack.analyses.table import analyse
from phasepoint.stack.analyses.timelines.launch_statistics import launch_statistics


def call(start_ns, end_ns, name="cudaLaunchKernel", **fields):
    return span(start_ns, end_ns, name=name, device="host", track="main", category="host", level="runtime", **fields)


def test_delays_queue_and_short_kernels_by_name_and_in_all(tmp_path):
    run = run_of(
        tmp_path / "run",
        [
            call(0, 10_000, step=0),
            call(10_000, 16_000, step=0),
            call(16_000, 21_000, step=1),
            call(40_000, 42_000, "cudaGraphLaunch", step=1),
            kernel(20_000, 35_000, name="gemm", launch=0, step=0),
            kernel(35_000, 38_000, name="add", launch=1, step=0),
            kernel(38_000, 41_000, name="add", launch=2, step=1),
            kernel(45_000, 46_000, name="node", launch=3, step=1),
            kernel(46_000, 47_000, name="node", launch=3, step=1),
            kernel(60_000, 61_000, name="lost", launch=None),
        ],
    )
    table = analyse(run, "launch-statistics")
    whole, *named = table.rows.to_pylist()
    assert whole == {
        "host": 0,
        "device": "gpu:0",
        "name": None,
        "events": 6,
        "launched": 5,
        "launch_calls": 4,
        "delay_min_ps": 5_000 * NS,
        "delay_median_ps": 20_000 * NS,
        "delay_p95_ps": 25_000 * NS,
        "delay_max_ps": 25_000 * NS,
        "call_median_ps": 5_000 * NS,
        "queue_median": 1,
        "queue_max": 2,
        "shorter_than_call": 2,
        "short_events": 5,
        "short_ps": 9_000 * NS,
        "calls_per_step": 2,
        "graph_launches": 1,
        "graph_events": 2,
        "events_per_graph_launch": 2,
    }
    assert [(row["name"], row["events"], row["delay_median_ps"]) for row in named] == [
        ("add", 2, 22_000 * NS),
        ("node", 2, 5_000 * NS),
        ("gemm", 1, 20_000 * NS),
        ("lost", 1, None),
    ]
    assert table.notes == ("gpu:0: 1 of 6 executions have no launch in the trace; delays leave them out",)


def test_nothing_ran_nothing_was_launched():
    assert launch_statistics.of_shard(ShardOf(spans=[call(0, 5)])).rows.num_rows == 0


launches = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 8), st.integers(-3, 30), st.integers(0, 20)), min_size=1, max_size=15
)


@settings(max_examples=200)
@given(launches)
def test_statistics_agree_with_counting(rows):
    calls = [call(at, at + dur) for at, dur, _, _ in rows]
    begins = [(at, at + delay, at + delay + run) for at, _, delay, run in rows]
    kernels = [kernel(start, end, launch=i) for i, (_, start, end) in enumerate(begins)]
    whole = launch_statistics.of_shard(ShardOf(spans=[*calls, *kernels])).rows.to_pylist()[0]
    delays = sorted(delay for _, _, delay, _ in rows)
    depth = [sum(at < now < max(end, at) for at, _, end in begins) for now, _, _ in begins]

    def nearest(values, q):
        return sorted(values)[max(math.ceil(q * len(values) - 1e-9) - 1, 0)]

    assert whole["delay_min_ps"] == delays[0] * NS
    assert whole["delay_median_ps"] == nearest(delays, 0.5) * NS
    assert whole["delay_p95_ps"] == nearest(delays, 0.95) * NS
    assert whole["delay_max_ps"] == delays[-1] * NS
    assert (whole["queue_median"], whole["queue_max"]) == (nearest(depth, 0.5), max(depth))
    assert whole["shorter_than_call"] == sum(run < dur for _, dur, _, run in rows)
    assert whole["calls_per_step"] is None
