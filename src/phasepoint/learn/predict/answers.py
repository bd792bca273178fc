"""The distinct kernels of some programs put to the methods in turn: what each says first, doubts and bounds applied.

What physics allows: no kernel is predicted below its arithmetic at the peak and its bytes at the bandwidth.

What no method can know of a kernel, and what that does to its interval.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.units import PS_PER_S
from phasepoint.devices.specs import DeviceSpec
from phasepoint.hlo.work import Operations, work_of_instruction
from phasepoint.learn.hlo_graph.graphs import KERNEL_FEATURE_NAMES, OPCODES, KernelGraph, graph_of_kernel
from phasepoint.learn.hlo_graph.kernels import Kernel
from phasepoint.learn.models.model_file import StoredModel
from phasepoint.learn.predict.methods import METHODS, analytic_times
from phasepoint.learn.predict.types import Asked, Start, TargetDevice, Times

UNKNOWN_WORK_FACTOR = 10.0
"""How much longer a kernel may take whose arithmetic is not known and of which only the bytes are: the ridge of a
roofline, flop per byte, is 5 to 20 on the CPUs and 30 to 300 on the accelerators of `devices/specs.toml`; a library's
call is rarely right of it and never far left. An assumption, not a measurement."""

UNKNOWN_OPCODE_FACTOR = 3.0
"""Either way, for an opcode that the featuriser does not know. An assumption, not a measurement."""

COLLECTIVE_FACTOR = 10.0
"""How much longer a collective may take than its bytes at the memory's bandwidth: links are 3 to 30 times slower
(`devices/specs.toml`), and it waits for the slowest device. An assumption, not a measurement."""

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter", "recv", "send")


@dataclass(frozen=True)
class Doubt:
    """Something about a kernel that is not known.

    Attributes:
        note: in words.
        low: the interval's lower end is multiplied by it, 0–1.
        high: its upper end, 1 or above.
    """

    note: str
    low: float
    high: float


def doubts_of_kernel(kernel: Kernel, known_opcodes: frozenset[str]) -> tuple[Doubt, ...]:
    """What is not known of a kernel.

    Args:
        kernel: the kernel.
        known_opcodes: those of the featuriser.
    """
    found = (find(kernel, known_opcodes) for find in _FINDERS)
    return tuple(doubt for doubt in found if doubt is not None)


def _custom_call(kernel: Kernel, _: frozenset[str]) -> Doubt | None:
    for node in kernel.nodes:
        one = node.instruction
        if one is not None and one.opcode == "custom-call":
            work = work_of_instruction(one, lambda _: Operations(0, 0))
            if work.flop is None:
                target = one.proto.custom_call_target
                note = (
                    f"arithmetic of custom call {target!r} is not known: it may take up to "
                    f"{UNKNOWN_WORK_FACTOR:g} times its bytes' time"
                )
                return Doubt(note, 1.0, UNKNOWN_WORK_FACTOR)
    return None


def _dynamic_shape(kernel: Kernel, _: frozenset[str]) -> Doubt | None:
    if any("<=" in node.shape.text for node in kernel.nodes):
        return Doubt("dynamic shapes: the largest sizes are predicted, so it may take any less time", 0.0, 1.0)
    return None


def _unknown_opcode(kernel: Kernel, known: frozenset[str]) -> Doubt | None:
    unknown = sorted({node.opcode for node in kernel.nodes} - known)
    if not unknown:
        return None
    note = f"opcode {', '.join(unknown)} is not known: its time may be {UNKNOWN_OPCODE_FACTOR:g} times less or more"
    return Doubt(note, 1 / UNKNOWN_OPCODE_FACTOR, UNKNOWN_OPCODE_FACTOR)


def _collective(kernel: Kernel, _: frozenset[str]) -> Doubt | None:
    if not kernel.opcode.startswith(COLLECTIVES):
        return None
    note = (
        f"{kernel.opcode} waits for other devices, which are not predicted: it may take up to {COLLECTIVE_FACTOR:g} "
        f"times its bytes' time"
    )
    return Doubt(note, 1.0, COLLECTIVE_FACTOR)


_FINDERS: tuple[Callable[[Kernel, frozenset[str]], Doubt | None], ...] = (
    _custom_call,
    _dynamic_shape,
    _unknown_opcode,
    _collective,
)


_MAY_RUN_AS = {
    "f64": ("f64",),
    "f32": ("f32", "tf32", "bf16", "f16"),
    "bf16": ("bf16", "f16", "f8"),
    "f16": ("bf16", "f16", "f8"),
    "s8": ("s8",),
    "u8": ("s8",),
}
"""Element types whose peak a product may reach: frameworks round f32 factors to tf32 (NVIDIA) or bf16 (TPU) unless told
not to."""

_WINOGRAD = 4.0
"""How many times fewer products a convolution may need than by definition: F(4 × 4, 3 × 3), which GPU libraries use.
Source: Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, section 4.1."""


def least_times(kernels: Sequence[Kernel], graphs: Sequence[KernelGraph], spec: DeviceSpec | None) -> Floats:
    """The least time of each kernel, ps: the larger of arithmetic at the peak and bytes at the memory's bandwidth.

    Bytes are those of arrays that stand outside the kernel, each once. Where no peaks are known, 0.

    Args:
        kernels: [n].
        graphs: [n] their features.
        spec: what the device can do.
    """
    if spec is None or not kernels:
        return np.zeros(len(kernels))
    features = np.stack([graph.kernel_features for graph in graphs]).astype(np.float64)
    flop, read, written = (
        features[:, KERNEL_FEATURE_NAMES.index(name)] for name in ("flop", "bytes_read", "bytes_written")
    )
    peak = np.array([_peak(spec, kernel) for kernel in kernels])
    saved = np.array([_WINOGRAD if graph.kind == "convolution" and spec.vendor != "Google" else 1 for graph in graphs])
    flop = flop / saved
    least: Floats = PS_PER_S * np.maximum(flop / peak, (read + written) / spec.memory_bytes_per_s.value)
    return least


def _peak(spec: DeviceSpec, kernel: Kernel) -> float:
    """The highest rate at which a kernel's narrowest floating-point operand may be worked on, flop/s."""
    types = {node.shape.text.partition("[")[0] for node in kernel.nodes if node.opcode == "parameter"}
    names = {name for kind in types for name in _MAY_RUN_AS.get(kind, ())} or set(spec.flop_per_s)
    rates = [spec.flop_per_s[name].value for name in names if name in spec.flop_per_s]
    return max(rates, default=max((rate.value for rate in spec.flop_per_s.values()), default=np.inf))


_REPORT_EVERY = 64
"""Kernels between two reports of progress, a choice."""
_KNOWN = frozenset(OPCODES)


@dataclass
class Answers:
    """What the methods say of the distinct kernels. Arrays are [n].

    Attributes:
        place: of a fingerprint.
        analytic_ps: of the analytic model.
        bound_ps: the least that physics allows; nothing that is said is below it.
        bound: compute, memory, latency.
        time_ps: of the first method that answered; NaN until one has.
        low_ps: lower end of its interval, doubts included.
        high_ps: upper end.
        distance: NaN where it learned from nothing.
        method: who answered.
        shared: ρ of the method.
        launch_ps: what a program takes beside its kernels, for each execution of one.
        program_ps: the same once, for each execution of the program; by its kernels.
        notes: of each kernel, in order.
        said: of the methods as a whole, in order.
        device: the device, where a method knows more than the target's name.
    """

    place: Mapping[str, int]
    analytic_ps: Floats
    bound_ps: Floats
    bound: tuple[str, ...]
    time_ps: Floats
    low_ps: Floats
    high_ps: Floats
    distance: Floats
    method: list[str]
    shared: Floats
    launch_ps: Floats
    program_ps: Floats
    notes: list[dict[str, None]]
    said: dict[str, None]
    device: str | None = None

    def fill(self, times: Times, places: Int64s, method: str, start: Start) -> None:
        """Take the answers of a method for the kernels at some places."""
        answered = ~np.isnan(times.time_ps)
        into = places[answered]
        for name in ("time_ps", "low_ps", "high_ps", "distance"):
            getattr(self, name)[into] = getattr(times, name)[answered]
        self.shared[into], self.launch_ps[into], self.program_ps[into] = start.shared, start.launch_ps, start.program_ps
        self.device = self.device or start.device
        if start.basis is not None and len(into):
            self.said[f"method {method}: {start.basis}"] = None
        for place in into:
            self.method[place] = method
        for place, lines in times.notes.items():
            self.notes[places[place]].update(dict.fromkeys(lines))

    def doubt(self, kernels: Sequence[Kernel], graphs: Sequence[KernelGraph]) -> None:
        """Widen the intervals of kernels of which something is not known."""
        for place, (kernel, graph) in enumerate(zip(kernels, graphs, strict=True)):
            doubts = doubts_of_kernel(kernel, _KNOWN)
            for doubt in doubts:
                self.low_ps[place] *= doubt.low
                self.high_ps[place] *= doubt.high
            self.notes[place].update(dict.fromkeys([doubt.note for doubt in doubts] or graph.notes))

    def raise_to_bound(self) -> None:
        """Nothing takes less than physics allows."""
        self.time_ps = np.maximum(self.time_ps, self.bound_ps)
        self.low_ps = np.maximum(self.low_ps, np.minimum(self.bound_ps, self.high_ps))
        self.high_ps = np.maximum(self.high_ps, self.bound_ps)
        self.analytic_ps = np.maximum(self.analytic_ps, self.bound_ps)


def ask_methods(
    kernels: Sequence[Kernel],
    target: TargetDevice,
    model: StoredModel | None,
    progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Put each distinct kernel to the methods, in the order of their table, until one answers.

    Args:
        kernels: of all programs; those of one fingerprint are asked once.
        target: the device.
        model: the user's; None takes those of the package.
        progress: called with (kernels read, kernels in all).

    Raises:
        ModelError: the model cannot be used for the device.
    """
    distinct = list({one.fingerprint: one for one in kernels}.values())
    starts = {row.name: row.start(target, model) for row in METHODS}
    graphs = _graphs(distinct, any(start.is_learned for start in starts.values()), progress)
    analytic_ps, bound = analytic_times(graphs, target, model)
    n = len(distinct)
    answers = Answers(
        place={kernel.fingerprint: place for place, kernel in enumerate(distinct)},
        analytic_ps=analytic_ps,
        bound_ps=least_times(distinct, graphs, target.spec),
        bound=bound,
        time_ps=np.full(n, np.nan),
        low_ps=np.full(n, np.nan),
        high_ps=np.full(n, np.nan),
        distance=np.full(n, np.nan),
        method=[""] * n,
        shared=np.ones(n),
        launch_ps=np.zeros(n),
        program_ps=np.zeros(n),
        notes=[{} for _ in range(n)],
        said={},
    )
    for name, start in starts.items():
        answers.said.update(dict.fromkeys(start.notes))
        left = np.flatnonzero(np.isnan(answers.time_ps))
        if start.answer is not None and len(left):
            asked = Asked([distinct[place] for place in left], [graphs[place] for place in left], analytic_ps[left])
            answers.fill(start.answer(asked), left, name, start)
    answers.doubt(distinct, graphs)
    answers.raise_to_bound()
    return answers


def _graphs(
    kernels: Sequence[Kernel], is_learned_from: bool, progress: Callable[[int, int], None] | None
) -> list[KernelGraph]:
    graphs = []
    for done, kernel in enumerate(kernels, start=1):
        graphs.append(graph_of_kernel(kernel, is_learned_from=is_learned_from))
        if progress is not None and not done % _REPORT_EVERY:
            progress(done, len(kernels))
    return graphs
