from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from stack_runs import NS, ShardOf, kernel, run_of, span

from phasepoint.stack.analyses.table import analyse
from phasepoint.stack.analyses.timelines.critical_path import critical_path
from phasepoint.stack.analyses.timelines.path_graph import heaviest_path

MAIN = {"device": "host", "track": "main", "category": "host", "level": "runtime"}


def call(start_ns, end_ns, name="cudaLaunchKernel", **fields):
    return span(start_ns, end_ns, name=name, **{**MAIN, **fields})


def op(start_ns, end_ns, name, **fields):
    return call(start_ns, end_ns, name, level="op", **fields)


def path_of(spans):
    """{(part, name): ns} of the only step."""
    rows = critical_path.of_shard(ShardOf(spans=spans)).rows.to_pylist()
    assert sum(row["time_ps"] for row in rows) == rows[0]["span_ps"]
    return {(row["part"], row["name"]): row["time_ps"] // NS for row in rows}


def test_a_job_that_the_host_holds_up_hangs_on_the_host():
    spans = [
        op(0, 40, "aten::a"),
        call(30, 40, parent=0),
        op(40, 90, "aten::b"),
        call(80, 90, parent=2),
        kernel(45, 60, launch=1, name="k"),
        kernel(95, 120, launch=3, name="l"),
    ]
    assert path_of(spans) == {
        ("host", "aten::a"): 40,
        ("host", "aten::b"): 50,
        ("launch", "l"): 5,
        ("device", "l"): 25,
    }


def test_a_job_that_the_device_holds_up_hangs_on_the_device():
    spans = [
        call(0, 10),
        call(10, 20),
        call(25, 130, "cudaDeviceSynchronize"),
        op(135, 150, "aten::item"),
        kernel(15, 70, launch=0, name="first"),
        kernel(72, 125, launch=1, name="second"),
    ]
    assert path_of(spans) == {
        ("host", "cudaLaunchKernel"): 10,
        ("launch", "first"): 5,
        ("device", "first"): 55,
        ("waiting", None): 2,
        ("device", "second"): 53,
        ("synchronisation", "second"): 5,
        ("host-untraced", None): 5,
        ("host", "aten::item"): 15,
    }


def test_a_blocking_copy_hands_the_path_back():
    spans = [call(0, 50, "cudaMemcpy"), op(50, 60, "aten::a"), kernel(5, 40, launch=0, name="copy")]
    assert path_of(spans) == {
        ("host", "cudaMemcpy"): 5,
        ("device", "copy"): 35,
        ("synchronisation", "copy"): 10,
        ("host", "aten::a"): 10,
    }


def test_the_backward_thread_goes_on_where_the_main_thread_stops():
    backward = {"track": "autograd"}
    spans = [
        call(0, 100, "## backward ##", level="layer"),
        op(0, 20, "aten::loss", parent=0),
        op(22, 80, "AddBackward", **backward),
        op(85, 100, "aten::step", parent=0),
    ]
    found = path_of(spans)
    assert found[("host", "aten::loss")] == 20
    assert found[("host", "AddBackward")] == 58
    assert found[("host", "aten::step")] == 15
    assert found[("host-untraced", "## backward ##")] in (2, 5, 7)


def test_a_stream_told_to_wait_hangs_on_the_other():
    spans = [
        call(0, 5),
        call(5, 10),
        call(10, 12, "cudaStreamWaitEvent"),
        call(12, 15),
        kernel(10, 20, launch=0, name="short"),
        kernel(15, 80, launch=1, name="long", track="stream 8"),
        kernel(85, 95, launch=3, name="after"),
    ]
    shard = ShardOf(spans=spans)
    assert path_of(spans) == {
        ("host", "cudaLaunchKernel"): 10,
        ("launch", "long"): 5,
        ("device", "long"): 65,
        ("waiting", None): 5,
        ("device", "after"): 10,
    }
    assert "told to wait" in critical_path.of_shard(shard).notes[0]


def test_each_step_has_its_path_and_work_without_a_step_follows_its_stream(tmp_path):
    run = run_of(
        tmp_path / "run",
        [
            call(0, 10, step=1),
            kernel(15, 25, launch=0, step=1),
            call(100, 110, step=2),
            kernel(115, 145, launch=2, step=2),
            kernel(145, 150, launch=None, name="lost"),
        ],
    )
    rows = analyse(run, "critical-path").rows.to_pylist()
    assert {(row["step"], row["span_ps"] // NS) for row in rows} == {(1, 25), (2, 50)}
    assert {row["name"]: row["time_ps"] // NS for row in rows if row["part"] == "device" and row["step"] == 2} == {
        "k": 30,
        "lost": 5,
    }


def test_a_cpu_job_has_a_path_too():
    cpu = {"device": "cpu:0", "category": "compute"}
    assert path_of([op(0, 10, "aten::mm", **cpu), op(12, 20, "aten::add", **cpu)]) == {
        ("host", "aten::mm"): 10,
        ("host-untraced", None): 2,
        ("host", "aten::add"): 8,
    }


def test_no_work_has_no_path():
    result = critical_path.of_shard(ShardOf(spans=[]))
    assert (result.rows.num_rows, result.notes) == (0, ("no work was recorded",))


edges = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 9)), max_size=16)


@settings(max_examples=300)
@given(edges)
def test_no_path_is_heavier(found):
    graph = sorted((max(a, b), min(a, b), w) for a, b, w in found if a != b)
    target, source, weight = (np.array([edge[i] for edge in graph], np.int64) for i in range(3))
    path = heaviest_path(source, target, weight, 8).tolist()
    assert all(target[a] == source[b] for a, b in pairwise(path))

    def heaviest_from(point):
        return max([w + heaviest_from(t) for t, s, w in graph if s == point], default=0)

    assert sum(weight[path]) == max(heaviest_from(point) for point in range(8))


@st.composite
def jobs(draw):
    """Two threads of ops and calls, and kernels on two streams."""
    spans = []
    for track in ("main", "autograd")[: draw(st.integers(1, 2))]:
        now = draw(st.integers(0, 10))
        for _ in range(draw(st.integers(1, 6))):
            now += draw(st.integers(0, 5))
            end = now + draw(st.integers(1, 12))
            name = draw(
                st.sampled_from(("cudaLaunchKernel", "cudaStreamSynchronize", "cudaStreamWaitEvent", "aten::a"))
            )
            spans.append(call(now, end, name, track=track, level="op" if name == "aten::a" else "runtime"))
            now = end
    launches = [i for i, row in enumerate(spans) if row["name"] == "cudaLaunchKernel"]
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, 60))
        launch = draw(st.none() | st.sampled_from(launches)) if launches else None
        track = draw(st.sampled_from(("stream 7", "stream 8")))
        spans.append(kernel(start, start + draw(st.integers(0, 15)), launch=launch, track=track))
    return spans


@settings(max_examples=300)
@given(jobs())
def test_the_parts_add_up_and_a_path_is_no_shorter_than_its_heaviest_piece(spans):
    rows = critical_path.of_shard(ShardOf(spans=spans)).rows.to_pylist()
    working = {row["track"] for row in spans if row["level"] == "op"}
    working |= {spans[row["launch"]]["track"] for row in spans if row.get("launch") is not None}
    used = [row for row in spans if row["level"] == "kernel" or row["track"] in working]
    if not used:
        assert rows == []
        return
    low, high = min(r["start_ps"] for r in used), max(r["start_ps"] + r["dur_ps"] for r in used)
    assert sum(row["time_ps"] for row in rows) == high - low
    assert {row["span_ps"] for row in rows} <= {high - low}
    work = sum(row["time_ps"] for row in rows if row["part"] in ("host", "device", "launch", "synchronisation"))
    kernels = sorted((r["track"], r["start_ps"], r["dur_ps"]) for r in used if r["level"] == "kernel" and r["dur_ps"])
    for stream in {track for track, *_ in kernels}:
        mine = [(start, start + dur) for track, start, dur in kernels if track == stream]
        if all(a[1] <= b[0] for a, b in pairwise(mine)):  # what follows each other on a stream is a chain
            assert work >= sum(end - start for start, end in mine)


@st.composite
def queues(draw):
    """A thread of ops and launches one after another, and a stream that takes what is launched in turn."""
    host, runs, now, free = [], [], 0, 0
    for _ in range(draw(st.integers(1, 10))):
        now += draw(st.integers(0, 4))
        dur = draw(st.integers(1, 9))
        if draw(st.booleans()):
            start = max(now, free) + draw(st.integers(0, 6))
            free = start + draw(st.integers(1, 30))
            runs.append((len(host), start, free))
            host.append(("cudaLaunchKernel", now, now + dur))
        else:
            host.append(("aten::a", now, now + dur))
        now += dur
    return host, runs


def heaviest_chain(host, runs):
    """Work of the heaviest chain of a queue, execution by execution."""

    def worked(until):
        return sum(max(min(end, until) - start, 0) for _, start, end in host)

    heaviest, before, freed = worked(10**9), 0, -1
    for launch, start, end in runs:
        leaves = min(host[launch][2], start)
        latency = start - leaves if freed <= leaves else 0
        before = max(before, worked(leaves) + latency) + end - start
        freed = end
        heaviest = max(heaviest, before)
    return heaviest


@settings(max_examples=300)
@given(queues())
def test_a_queue_hangs_on_its_heaviest_chain(queue):
    host, runs = queue
    spans = [call(start, end, name, level="op" if name == "aten::a" else "runtime") for name, start, end in host]
    blocked = any(end <= host[launch][2] for launch, _, end in runs)  # the call waited for its execution
    spans += [kernel(start, end, launch=launch) for launch, start, end in runs]
    rows = critical_path.of_shard(ShardOf(spans=spans)).rows.to_pylist()
    work = sum(row["time_ps"] for row in rows if row["part"] in ("host", "device", "launch", "synchronisation"))
    if blocked:
        assert work <= rows[0]["span_ps"]
    else:
        assert work == heaviest_chain(host, runs) * NS
