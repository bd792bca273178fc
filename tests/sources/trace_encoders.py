"""One made-up run as data, and the same run written as Kineto's JSON and as an XSpace."""

import json
from dataclasses import dataclass, field

from hypothesis import strategies as st
from xplane_schema.build import PlaneBuilder, environment, new_space

BASE_NS = 1_700_000_000_000_000_000
NS = 1_000
"""Picoseconds."""

KERNELS = {
    "gemm": "compute",
    "relu_kernel": "compute",
    "ncclDevKernel_AllReduce_Sum_f32": "communication",
    "copy to device": "data_movement",
}
COPY_NAMES = {"kineto": "Memcpy HtoD (Pinned -> Device)", "xplane": "MemcpyH2D"}
OPS = ("aten::linear", "aten::mm", "optimizer", "loss.backward")


@dataclass(frozen=True)
class HostSpan:
    """Work of a host thread; `kernel` is the number of the one that it launches."""

    thread: int
    name: str
    start_ns: int
    end_ns: int
    kernel: int | None = None


@dataclass(frozen=True)
class Kernel:
    """An execution on a stream of the one GPU."""

    stream: int
    name: str
    start_ns: int
    end_ns: int
    launched: bool

    @property
    def category(self):
        return KERNELS[self.name]


@dataclass
class MadeRun:
    """Steps (first, and where each ends), host work, kernels."""

    first_step: int
    step_bounds_ns: list[int]
    host: list[HostSpan] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)

    @property
    def n_steps(self):
        return len(self.step_bounds_ns) - 1


_trees = st.recursive(
    st.tuples(st.integers(1, 40), st.none() | st.sampled_from(sorted(KERNELS))),
    lambda inner: st.lists(st.tuples(st.integers(0, 30), inner), min_size=1, max_size=4),
    max_leaves=8,
)


@st.composite
def made_runs(draw, *, overlapping=False, max_threads=2):
    """A run of well-formed nesting; kernels of a stream follow each other unless they may overlap.

    A span is longer than what it holds, so that which of two holds the other is never a matter of order. Kernels whose
    launch is missing come beside others that have theirs: without any launch, formats differ in whose step they are.
    """
    run = MadeRun(draw(st.integers(0, 5)), [draw(st.integers(0, 50))])
    free_ns = {}
    for _ in range(draw(st.integers(1, 3))):
        begin_ns = end_ns = run.step_bounds_ns[-1]
        for thread in range(draw(st.integers(1, max_threads))):
            at_ns = begin_ns + 1
            for tree in draw(st.lists(_trees, max_size=3)):
                at_ns = _place(draw, run, tree, thread, at_ns + draw(st.integers(1, 20)), free_ns, overlapping)
            end_ns = max(end_ns, at_ns)
        run.step_bounds_ns.append(end_ns + draw(st.integers(1, 60)))
    for _ in range(draw(st.integers(0, 2)) if run.kernels else 0):
        start_ns = max(free_ns.values(), default=run.step_bounds_ns[0]) + 1
        _execute(run, 30, "gemm", start_ns, start_ns + draw(st.integers(1, 30)), launched=False)
        free_ns[30] = run.kernels[-1].end_ns
    return run


def _place(draw, run, tree, thread, start_ns, free_ns, overlapping):
    """Put a tree of host work at a time; returns where it ends."""
    if isinstance(tree, list):
        here = len(run.host)
        run.host.append(None)
        at_ns = start_ns + 1
        for gap_ns, below in tree:
            at_ns = _place(draw, run, below, thread, at_ns + gap_ns, free_ns, overlapping)
        run.host[here] = HostSpan(thread, draw(st.sampled_from(OPS)), start_ns, at_ns + draw(st.integers(0, 9)))
        return run.host[here].end_ns
    dur_ns, kernel = tree
    if kernel is None:
        run.host.append(HostSpan(thread, draw(st.sampled_from(OPS)), start_ns, start_ns + dur_ns))
    else:
        run.host.append(HostSpan(thread, "cudaLaunchKernel", start_ns, start_ns + dur_ns, len(run.kernels)))
        stream = draw(st.sampled_from((7, 20)))
        begin_ns = start_ns + draw(st.integers(1, 100))
        if not overlapping:
            begin_ns = max(begin_ns, free_ns.get(stream, 0))
        _execute(run, stream, kernel, begin_ns, begin_ns + draw(st.integers(1, 80)), launched=True)
        free_ns[stream] = max(free_ns.get(stream, 0), run.kernels[-1].end_ns)
    return start_ns + dur_ns


def _execute(run, stream, name, start_ns, end_ns, *, launched):
    run.kernels.append(Kernel(stream, name, start_ns, end_ns, launched))


def as_kineto(run, shuffle=None):
    """Kineto's JSON; times in µs, as the profiler writes them."""
    events = []
    for i in range(run.n_steps):
        begin_ns, end_ns = run.step_bounds_ns[i : i + 2]
        events.append(_event(f"phasepoint.step#{run.first_step + i}", "user_annotation", 0, begin_ns, end_ns))
    for span in run.host:
        launches = span.kernel is not None
        args = {"correlation": span.kernel + 1} if launches else {}
        cat = "cuda_runtime" if launches else "cpu_op"
        events.append(_event(span.name, cat, span.thread, span.start_ns, span.end_ns, **args))
    for i, kernel in enumerate(run.kernels):
        copies = kernel.category == "data_movement"
        args = {"device": 0, "stream": kernel.stream, "correlation": i + 1 if kernel.launched else 10_000 + i}
        cat, name = ("gpu_memcpy", COPY_NAMES["kineto"]) if copies else ("kernel", kernel.name)
        events.append(_event(name, cat, kernel.stream, kernel.start_ns, kernel.end_ns, pid=0, **args))
    if shuffle is not None:
        shuffle(events)
    return json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, "traceEvents": events}).encode()


def _event(name, cat, tid, start_ns, end_ns, *, pid=1, **args):
    times = {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args}


def as_xplane(run, shuffle=None):
    """An XSpace as JAX writes it on a GPU, of work that is no HLO."""
    space = new_space()
    environment(space, BASE_NS)
    host = PlaneBuilder(space, "/host:CPU", timestamp_ns=0)
    gpu = PlaneBuilder(space, "/device:GPU:0", timestamp_ns=0)
    for i in range(run.n_steps):
        begin_ns, end_ns = run.step_bounds_ns[i : i + 2]
        host.event("thread 0", "phasepoint.step", *_times(begin_ns, end_ns), step_num=run.first_step + i)
    for span in run.host:
        stats = {} if span.kernel is None else {"correlation_id": span.kernel + 1, "device_id": 0}
        host.event(f"thread {span.thread}", span.name, *_times(span.start_ns, span.end_ns), **stats)
    for i, kernel in enumerate(run.kernels):
        copies = kernel.category == "data_movement"
        name = COPY_NAMES["xplane"] if copies else kernel.name
        correlation = i + 1 if kernel.launched else 10_000 + i
        times = _times(kernel.start_ns, kernel.end_ns)
        gpu.event(f"Stream #{kernel.stream}", name, *times, correlation_id=correlation)
    if shuffle is not None:
        for plane in space.planes:
            for line in plane.lines:
                events = list(line.events)
                shuffle(events)
                del line.events[:]
                line.events.extend(events)
    return space.SerializeToString()


def _times(start_ns, end_ns):
    return start_ns * NS, (end_ns - start_ns) * NS
