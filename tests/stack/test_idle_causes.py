from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from stack_runs import NS, ShardOf, kernel, run_of, span

from phasepoint.stack.analyses.table import analyse, find_analysis
from phasepoint.stack.analyses.timelines.idle_causes import idle_causes
from phasepoint.stack.shard.idle_gaps import CAUSES

HOST = {"device": "host", "track": "main", "category": "host", "level": "runtime"}


def call(start_ns, end_ns, name="cudaLaunchKernel", **fields):
    return span(start_ns, end_ns, name=name, **{**HOST, **fields})


def causes_of(spans):
    """{(cause, during): (ns, stretches)} of gpu:0."""
    rows = idle_causes.of_shard(ShardOf(spans=spans)).rows.to_pylist()
    return {(row["cause"], row["during"]): (row["idle_ps"] // NS, row["stretches"]) for row in rows}


def test_the_host_was_late_and_says_in_what():
    spans = [
        call(0, 5),
        kernel(10, 20, launch=0),
        call(0, 60, "enumerate(DataLoader)#_Iter.__next__", level="layer", parent=None),
        call(60, 75, "cudaDeviceSynchronize"),
        call(80, 100, "aten::linear", level="op"),
        call(82, 90, "aten::addmm", level="op", parent=4),
        call(90, 95, "cudaLaunchKernel", parent=4),
        kernel(98, 110, launch=6),
    ]
    assert causes_of(spans) == {
        ("input", "enumerate(DataLoader)#_Iter.__next__"): (40, 1),
        ("synchronisation", "cudaDeviceSynchronize"): (15, 1),
        ("host", None): (5, 1),
        ("host", "aten::linear"): (10, 1),
        ("launching", "aten::linear"): (5, 1),
        ("launch-latency", None): (3, 1),
    }


def test_an_op_between_frames_of_python_names_the_time_of_the_inner_frame():
    spans = [
        call(0, 50, "forward"),
        call(5, 40, "vllm::moe", level="op", parent=0),
        call(6, 39, "inner frame", parent=0),
        call(30, 35, parent=2),
        kernel(0, 10, launch=None),
        kernel(38, 45, launch=3),
    ]
    assert causes_of(spans) == {
        ("host", "vllm::moe"): (20, 1),
        ("launching", "vllm::moe"): (5, 1),
        ("launch-latency", None): (3, 1),
    }


def test_what_was_launched_in_time_waited_for_its_turn_or_for_other_work():
    spans = [
        call(0, 1),
        call(1, 2),
        call(2, 3, "cudaStreamWaitEvent"),
        call(3, 4),
        call(4, 5),
        kernel(10, 20, launch=0, name="first"),
        kernel(22, 30, launch=1, name="its turn"),
        kernel(35, 40, launch=3, name="told to wait"),
        kernel(44, 50, launch=4, name="behind no one", track="stream 8"),
    ]
    assert causes_of(spans) == {
        ("between-executions", None): (2, 1),
        ("dependency", "told to wait"): (5, 1),
        ("dependency", "behind no one"): (4, 1),
    }


def test_a_launch_that_is_not_in_the_trace_leaves_the_cause_unknown(tmp_path):
    run = run_of(tmp_path / "run", [call(0, 1), kernel(2, 4, launch=0), kernel(9, 10, launch=None)])
    table = analyse(run, "idle-causes")
    (row,) = table.rows.to_pylist()
    assert (row["cause"], row["during"], row["idle_ps"], row["share_ratio"]) == ("unknown", None, 5 * NS, 1.0)
    assert "1 of 1 idle stretches" in table.notes[0]


def test_an_op_of_a_cpu_waits_for_its_own_thread():
    cpu = {"device": "cpu:0", "track": "main", "level": "op", "launch": None}
    spans = [kernel(0, 4, **cpu), call(4, 30, "DataLoader.__next__", level="layer"), kernel(34, 40, **cpu)]
    assert causes_of(spans) == {("input", "DataLoader.__next__"): (26, 1), ("host", None): (4, 1)}


def test_nothing_ran_nothing_idled():
    result = idle_causes.of_shard(ShardOf(spans=[call(0, 5)]))
    assert result.rows.num_rows == 0
    assert result.notes == ("no device work was recorded: record with the device's activities on",)


@st.composite
def jobs(draw, shortest_ns):
    """A thread's calls one after another, some inside an op, and kernels on two streams that some of them launched."""
    spans, now, op = [], 0, None
    for _ in range(draw(st.integers(1, 10))):
        now += draw(st.integers(0, 4))
        if draw(st.booleans()):
            op = len(spans)
            spans.append(None)
        begin, parent = now, op
        calls = draw(st.integers(1, 3))
        for _ in range(calls):
            now += draw(st.integers(0, 3))
            name = draw(st.sampled_from(("cudaLaunchKernel", "cudaStreamSynchronize", "cudaStreamWaitEvent")))
            end = now + draw(st.integers(1, 5))
            spans.append(call(now, end, name, parent=parent))
            now = end
        if op is not None:
            spans[op] = call(begin, now, draw(st.sampled_from(("aten::a", "aten::b"))), level="op")
            op = None
    launches = [i for i, row in enumerate(spans) if row["name"] == "cudaLaunchKernel"]
    for _ in range(draw(st.integers(1, 8))):
        start = draw(st.integers(0, now + 10))
        launch = draw(st.none() | st.sampled_from(launches)) if launches else None
        track = draw(st.sampled_from(("stream 7", "stream 8")))
        spans.append(
            kernel(start, start + draw(st.integers(shortest_ns, 6)), launch=launch, track=track, name=f"k{len(spans)}")
        )
    return spans


def cause_at(spans, kernels, t):
    """Cause and name at the idle nanosecond that begins at t."""

    def begin(row):
        return row["start_ps"] // NS

    def end(row):
        return (row["start_ps"] + row["dur_ps"]) // NS

    until = min(begin(k) for k in kernels if begin(k) > t)
    since = max((end(k) for k in kernels if end(k) <= t), default=min(map(begin, kernels)))
    nexts = [k for k in kernels if begin(k) == until]
    following = min(nexts, key=lambda k: (k["launch"] is None, k["launch"]))
    if following["launch"] is None:
        return "unknown", None
    launch = spans[following["launch"]]
    if t < begin(launch):
        running = [row for row in spans if row["track"] == "main" and begin(row) <= t < end(row)]
        inner = next((row for row in running if row["level"] == "runtime"), None)
        outer = next((row for row in running if row["level"] == "op"), inner)
        waits = inner is not None and "Synchronize" in inner["name"]
        return "synchronisation" if waits else "host", outer["name"] if outer else None
    if t < end(launch):
        return "launching", launch["name"] if launch["parent"] is None else spans[launch["parent"]]["name"]
    if end(launch) > since:
        return "launch-latency", None
    return "queued", None


@settings(max_examples=300)
@given(jobs(shortest_ns=1))
def test_causes_agree_with_looking_at_every_nanosecond(spans):
    kernels = [row for row in spans if row["level"] == "kernel"]
    low = min(k["start_ps"] for k in kernels) // NS
    high = max(k["start_ps"] + k["dur_ps"] for k in kernels) // NS
    busy = {t for k in kernels for t in range(k["start_ps"] // NS, (k["start_ps"] + k["dur_ps"]) // NS)}
    expected = Counter(cause_at(spans, kernels, t) for t in range(low, high) if t not in busy)
    found = Counter()
    for (cause, during), (ns, _) in causes_of(spans).items():
        queued = cause in ("dependency", "between-executions")
        found["queued" if queued else cause, None if queued else during] += ns
    assert sum(found.values()) == high - low - len(busy)
    assert found == expected


@settings(max_examples=100)
@given(jobs(shortest_ns=0))
def test_causes_add_up_to_the_idle_time(spans):
    shard = ShardOf(spans=spans)
    rows = idle_causes.of_shard(shard).rows.to_pylist()
    (device,) = find_analysis("device-time").of_shard(shard).rows.to_pylist()
    assert sum(row["idle_ps"] for row in rows) == device["idle_ps"]
    assert {row["cause"] for row in rows} <= set(CAUSES)
    assert all(row["longest_ps"] <= row["idle_ps"] for row in rows)
