"""What is known of one pair, a model on a device, after one process has measured it; and how it is kept in a folder."""

import os
import re
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from phasepoint.core.errors import FormatVersionError, NotARunError, StoreError

T = TypeVar("T")

VERSION = 1
"""Of these files' layout."""

PAIRS = "pairs"
"""Folder of the results in a suite's folder."""

SUITE = "suite.json"
"""File that says what a suite was asked for."""


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True):
    """A model on a device.

    Attributes:
        model: an architecture's name, or `module:function` of the user's.
        device: `cpu:2` is a CPU with two threads, `cuda:0` a GPU.
        runtime: what runs it: `eager`, `compiled`.
        precision: `f32`, `bf16`.
    """

    model: str
    device: str
    runtime: str
    precision: str

    @property
    def name(self) -> str:
        """In one word, as files are called.

        Example:
            >>> Pair("resnet50", "cpu:2", "eager", "f32").name
            'resnet50@cpu.2@eager@f32'
        """
        words = (self.model, self.device, self.runtime, self.precision)
        return "@".join(re.sub(r"[^A-Za-z0-9._-]+", ".", word) for word in words)


class SuiteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a suite was asked for.

    Attributes:
        pairs: what is measured, in order.
        rounds: processes for each pair.
        seconds: that latencies are measured for, in each.
        batches: sizes at which throughput is measured.
        limit_s: silence after which a process is ended.
        seed: of the order in which pairs are measured.
        sustained_s: that each process goes on after its latencies, without a break; 0 for none.
        explains: whether the first process of a pair says what holds it back.
    """

    pairs: tuple[Pair, ...]
    rounds: int
    seconds: float
    batches: tuple[int, ...]
    limit_s: float
    seed: int
    sustained_s: float = 0.0
    explains: bool = False


class ModelFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model is, whatever runs it.

    Attributes:
        task: what it is for.
        library: the distribution that defines it.
        params: numbers that are trained.
        macs: multiply-accumulates of one sample; None where they depend on the data.
        weight_bytes: of parameters and buffers, in f32.
    """

    task: str
    library: str
    params: int
    macs: int | None
    weight_bytes: int


class BatchSpeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Throughput at one batch size; None where it could not be run, and why."""

    batch: int
    samples_per_s: float | None
    reason: str = ""


class SustainedWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stretch of a run without a break.

    Attributes:
        start_ps: from the begin of the run.
        dur_ps: its length.
        runs: inferences of one sample that ended in it.
    """

    start_ps: int
    dur_ps: int
    runs: int


class OutputDrift(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far outputs are from those in f32 by the same library, uncompiled.

    Attributes:
        relative_error: root of the mean square of differences over that of the outputs.
        same_largest: share of the last axis' rows whose largest value is at the same place.
    """

    relative_error: float
    same_largest: float


class Energy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Energy of one inference of one sample, J; None where it cannot be read, and why."""

    joules: float | None
    reason: str = ""


class LayerShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A layer that causes a bottleneck: its path, its class, and its time in it."""

    layer: str
    kind: str
    time_ps: int


class LayerWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a layer does in one inference, without the layers inside it.

    Attributes:
        layer: its path; empty outside all.
        kind: its class.
        operations: that it runs.
        time_ps: they take.
        flop: of products and convolutions.
        moved_bytes: of their inputs and outputs.
        part: what most of the time is: compute, bandwidth or data movement.
    """

    layer: str
    kind: str
    operations: int
    time_ps: int
    flop: int
    moved_bytes: int
    part: str


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A setting that could be run instead, and what it should win.

    Attributes:
        threads: of a CPU; None of other devices.
        precision: element type.
        batch: samples together.
        speedup: told: how many times as fast a sample is.
    """

    threads: int | None
    precision: str
    batch: int
    speedup: float


class Bottleneck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What holds a network back.

    Attributes:
        part: the largest of the parts.
        parts_ps: of the latency: compute, bandwidth, data movement, overhead; they add up to it.
        layers: those with the most time in it, the largest first; none of overhead.
        changes: what could be run instead.
        every_layer: in the order in which they first ran; their times and the overhead add up to the latency.
    """

    part: str
    parts_ps: dict[str, int]
    layers: tuple[LayerShare, ...]
    changes: tuple[Change, ...]
    every_layer: tuple[LayerWork, ...] = ()

    @property
    def part_ratio(self) -> float:
        """The largest part's share of the latency."""
        return self.parts_ps[self.part] / max(sum(self.parts_ps.values()), 1)


class Conditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the machine was while a pair was measured.

    Attributes:
        device: in the maker's words.
        threads: that run one operation.
        others_ratio: cores that other programs had, over the cores that this process may use.
        waited_ratio: time in which threads of this process were ready and had no core, over the time measured.
        steal_ratio: time that a hypervisor gave to other machines, over the time measured.
        throttled_ps: that a limit on CPU time held the process.
        probe_before_ps, probe_after_ps: a fixed piece of work: a core that is slow by itself shows here;
            None where a packed benchmark measured.
        mhz: of the CPU, as the system tells after the measurement; None where it does not.
        celsius: the warmest sensor then; None where there is none.
        versions: of what ran it.
    """

    device: str
    threads: int
    others_ratio: float | None
    waited_ratio: float | None
    steal_ratio: float | None
    throttled_ps: int | None
    probe_before_ps: int | None
    probe_after_ps: int | None
    mhz: float | None
    celsius: float | None
    versions: dict[str, str]


class PredictedLatency(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a program should take on a device that is not there, told from what its compiler makes of it.

    Attributes:
        latency_ps: of one sample.
        low_ps, high_ps: 90 % interval.
        device: in the maker's words.
        bound: what limits most of the time.
        method: who answered for most of the time.
        compile_ps: compiling it.
        versions: of what compiled it.
    """

    latency_ps: int
    low_ps: int
    high_ps: int
    device: str
    bound: str
    method: str
    compile_ps: int
    versions: dict[str, str]


Status = Literal["measured", "predicted", "failed", "not here"]


class PairResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process' result.

    Attributes:
        version: of the layout.
        pair: what was measured.
        round: number of the process.
        status: `not here` is what this machine, or what is installed, cannot run.
        reason: of a status that is not `measured`.
        began_s: Unix time.
        model: facts; None where it could not be built.
        build_ps: making it, with its weights.
        compile_ps: compiling it; None where nothing is compiled.
        first_ps: the first inference, what it makes ready included.
        latencies_ps: of inferences of one sample, in order, warm.
        throughput: by batch size.
        before_bytes, peak_bytes: memory of the process before the model was built, and at most.
        device_bytes: most memory on the device that its tensors took; None on a CPU.
        energy: of an inference.
        drift: from f32 uncompiled; None for that itself.
        conditions: of the machine.
        sustained: stretches of a run without a break, where one was asked for.
        bottleneck: where the runtime tells operations apart, in the first round.
        predicted: in the place of all measurements, of a device that is not there.
    """

    pair: Pair
    round: int
    status: Status
    reason: str = ""
    began_s: float = 0.0
    model: ModelFacts | None = None
    build_ps: int | None = None
    compile_ps: int | None = None
    first_ps: int | None = None
    latencies_ps: tuple[int, ...] = ()
    throughput: tuple[BatchSpeed, ...] = ()
    before_bytes: int | None = None
    peak_bytes: int | None = None
    device_bytes: int | None = None
    energy: Energy | None = None
    drift: OutputDrift | None = None
    conditions: Conditions | None = None
    sustained: tuple[SustainedWindow, ...] = ()
    bottleneck: Bottleneck | None = None
    predicted: PredictedLatency | None = None
    version: int = VERSION


def result_path(folder: Path, pair: Pair, number: int) -> Path:
    """Where the result of a round of a pair lies."""
    return folder / PAIRS / f"{pair.name}.{number}.json"


def write_file(path: Path, value: msgspec.Struct) -> None:
    """Write a value as JSON; whatever ends this process leaves the whole file or none.

    Raises:
        StoreError: the disk is full, or may not be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.json.encode(value))
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StoreError(
            f"{path}: a result cannot be written ({error.strerror}); those before it are kept: make room, and give "
            "the same command again to go on"
        ) from error


class PackedResults(msgspec.Struct, frozen=True):
    """What a packed benchmark leaves: one file.

    Attributes:
        request: what it was asked for.
        results: of its processes.
    """

    request: SuiteRequest
    results: list[PairResult]


def read_suite(folder: Path) -> tuple[SuiteRequest, list[PairResult]]:
    """A suite's request and its results, in the order of their names.

    Args:
        folder: of `phasepoint bench run`, or the file that a packed benchmark wrote.

    Raises:
        NotARunError: it is no suite's folder.
        StoreError: a file cannot be read.
    """
    if folder.is_file():
        packed = _read(folder, PackedResults, "give the file that a pack wrote")
        return packed.request, packed.results
    head = folder / SUITE
    if not head.is_file():
        raise NotARunError(f"{folder}: no results of `phasepoint bench run` (it has no {SUITE})")
    results = [_read(path, PairResult) for path in sorted((folder / PAIRS).glob("*.json"))]
    return _read(head, SuiteRequest), results


def _read(path: Path, kind: type[T], remedy: str = "remove it to measure the pair again") -> T:
    try:
        data = path.read_bytes()
        if kind is PairResult and (found := msgspec.json.decode(data, type=dict).get("version")) != VERSION:
            raise FormatVersionError(f"{path}: version {found} of a result; this Phasepoint reads {VERSION}")
        return msgspec.json.decode(data, type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"{path}: cannot be read: {error}; {remedy}") from error
