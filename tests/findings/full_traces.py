"""Kineto's traces of one step of which every event is known, each with another reason why the device is idle; in µs."""

import json

from phasepoint.sources.ingest.import_run import import_file
from phasepoint.store import open_run

STREAM = 7


class OneStep:
    """Events of one step, which begins at 0; what `cover` says is its length."""

    def __init__(self, name="ProfilerStep#0"):
        self.name, self.events, self.launched = name, [], 0

    def host(self, name, start, dur, cat="cpu_op", thread=1, **args):
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": dur, "args": args}
        )

    def launch(self, called, start, dur, *, call=5, op="aten::mm", name="gemm", api="cudaLaunchKernel", thread=1):
        """A kernel at `start` and the call at `called` that launched it, inside an op."""
        self.launched += 1
        if op:
            self.host(op, called - 1, call + 2, thread=thread)
        self.host(api, called, call, "cuda_runtime", thread, correlation=self.launched)
        cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        args = {"device": 0, "stream": STREAM, "correlation": self.launched}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": STREAM, "ts": start, "dur": dur, "args": args}
        )

    def run(self, folder, dur):
        """The imported run; the step lasts `dur`."""
        self.host(self.name, 0, dur, "user_annotation")
        head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
        (folder / "one.json").write_text(json.dumps({**head, "traceEvents": self.events}))
        import_file(folder / "one.json", "kineto", folder / "run", 0)
        return open_run(folder / "run")


def launched_one_by_one(folder):
    """100 kernels of 10 µs, each launched 90 µs after the one before had begun: busy for 1 of 10 ms."""
    step = OneStep()
    for i in range(100):
        step.launch(100 * i + 20, 100 * i + 30, 10)
    return step.run(folder, 10_000)


def started_slowly(folder):
    """The first kernel after 400 ms, 90 ms in one op between two kernels, 8 ms of nothing, 2 ms after the last."""
    step = OneStep()
    step.launch(399_990, 400_000, 1_000)
    step.host("aten::conv2d", 401_000, 90_010)
    step.launch(490_995, 491_000, 1_000, op=None)
    step.launch(499_995, 500_000, 1_000)
    return step.run(folder, 503_000)


def waited_for_results(folder):
    """40 times: 100 µs of work for which the host waits, then 100 µs until it launches again."""
    step = OneStep()
    for i in range(40):
        at = 200 * i
        step.launch(at + 95, at + 100, 100, call=3)
        step.host("cudaStreamSynchronize", at + 100, 105, "cuda_runtime")
    return step.run(folder, 8_100)


def waited_for_data(folder):
    """Twice 3 ms of work after 2 ms in the loader."""
    step = OneStep()
    for i in range(2):
        at = 5_000 * i
        step.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 1_980, "user_annotation")
        step.launch(at + 1_990, at + 2_000, 3_000)
    return step.run(folder, 10_000)


def held_by_others(folder):
    """50 kernels, launched at once, begin 6 ms later and then follow one another, 1 µs apart."""
    step = OneStep()
    for i in range(50):
        step.launch(20 + i, 6_000 + 101 * i, 100, call=1, op=None)
    return step.run(folder, 11_049)


def nothing_launched_it(folder):
    """Kernels alone: half of the time, and nobody knows what the host did."""
    step = OneStep(name="traced")  # no mark: the whole file is one step
    for i in range(30):
        step.launch(200 * i, 200 * i, 100, op=None)
    step.events = [event for event in step.events if event["cat"] == "kernel"]
    return step.run(folder, 6_000)


def device_left_out(folder):
    """Launches, and not one kernel."""
    step = OneStep()
    for i in range(30):
        step.launch(100 * i + 10, 100 * i + 20, 50)
    step.events = [event for event in step.events if event["cat"] != "kernel"]
    return step.run(folder, 3_000)


def on_the_processor(folder):
    """PyTorch's operators on a CPU: 40 of 50 µs, 50 µs apart."""
    step = OneStep()
    for i in range(40):
        step.host(f"aten::op{i % 10}", 100 * i, 50)
    return step.run(folder, 4_000)


ONE_STEP_RUNS = (
    *(launched_one_by_one, started_slowly, waited_for_results, waited_for_data),
    *(held_by_others, nothing_launched_it, device_left_out, on_the_processor),
)
"""Fully captured runs of one step, by the function that writes them into a folder."""
