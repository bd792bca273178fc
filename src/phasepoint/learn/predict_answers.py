"""The distinct kernels of some programs put to the methods in turn: what each says first, doubts and bounds applied."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.learn.graphs import OPCODES, KernelGraph, graph_of_kernel
from phasepoint.learn.kernels import Kernel
from phasepoint.learn.model_file import Model
from phasepoint.learn.predict_analytic import analytic_times
from phasepoint.learn.predict_bounds import least_times
from phasepoint.learn.predict_doubts import doubts_of_kernel
from phasepoint.learn.predict_methods import METHODS
from phasepoint.learn.predict_target import Target
from phasepoint.learn.predict_types import Asked, Start, Times

_REPORT_EVERY = 64
_KNOWN = frozenset(OPCODES)


@dataclass(frozen=True)
class Answers:
    """What the methods say of the distinct kernels. Arrays are [n].

    Attributes:
        place: of a fingerprint.
        time_ps: of the first method that answered.
        low_ps: lower end of its interval, doubts included.
        high_ps: upper end.
        distance: NaN where it learned from nothing.
        analytic_ps: of the analytic model.
        bound_ps: the least that physics allows.
        method: who answered.
        bound: compute, memory, latency.
        shared: ρ of the method.
        notes: of each kernel.
        said: of the methods as a whole.
        device: the device, where a method knows more than the target's name.
        launch_ps: what a program takes beside its kernels, for each execution of one; [n].
        program_ps: the same once, for each execution of the program; [n], by its kernels.
    """

    place: Mapping[str, int]
    time_ps: Floats
    low_ps: Floats
    high_ps: Floats
    distance: Floats
    analytic_ps: Floats
    bound_ps: Floats
    method: tuple[str, ...]
    bound: tuple[str, ...]
    shared: Floats
    notes: tuple[tuple[str, ...], ...]
    said: tuple[str, ...]
    device: str | None
    launch_ps: Floats
    program_ps: Floats


def ask_methods(
    kernels: Sequence[Kernel],
    target: Target,
    model: Model | None,
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
    graphs = _graphs(distinct, progress)
    analytic_ps, bound = analytic_times(graphs, target, model)
    asked = Asked(distinct, graphs, analytic_ps)
    told = _Told(len(distinct))
    for row in METHODS:
        start = row.start(target, model)
        told.said.update(dict.fromkeys(start.notes))
        left = np.flatnonzero(np.isnan(told.time_ps))
        if start.answer is not None and len(left):
            told.fill(start.answer(_part(asked, left)), left, row.name, start)
    least = least_times(distinct, graphs, target.spec)
    told.doubt(distinct, graphs)
    return told.finished(distinct, analytic_ps=np.maximum(analytic_ps, least), bound=bound, least_ps=least)


class _Told:
    """What is known so far of [n] kernels."""

    def __init__(self, n: int) -> None:
        self.time_ps, self.low_ps, self.high_ps, self.distance = (np.full(n, np.nan) for _ in range(4))
        self.method: list[str] = [""] * n
        self.shared = np.ones(n)
        self.launch_ps, self.program_ps = np.zeros(n), np.zeros(n)
        self.device: str | None = None
        self.notes: list[dict[str, None]] = [{} for _ in range(n)]
        self.said: dict[str, None] = {}

    def fill(self, times: Times, places: Int64s, method: str, start: Start) -> None:
        """Take the answers of a method for the kernels at some places."""
        answered = ~np.isnan(times.time_ps)
        into = places[answered]
        for mine, theirs in (
            (self.time_ps, times.time_ps),
            (self.low_ps, times.low_ps),
            (self.high_ps, times.high_ps),
            (self.distance, times.distance),
        ):
            mine[into] = theirs[answered]
        self.shared[into] = start.shared
        self.launch_ps[into], self.program_ps[into] = start.launch_ps, start.program_ps
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

    def finished(
        self, kernels: Sequence[Kernel], *, analytic_ps: Floats, bound: tuple[str, ...], least_ps: Floats
    ) -> Answers:
        """All of it, nothing below what physics allows."""
        return Answers(
            place={kernel.fingerprint: place for place, kernel in enumerate(kernels)},
            time_ps=np.maximum(self.time_ps, least_ps),
            low_ps=np.maximum(self.low_ps, np.minimum(least_ps, self.high_ps)),
            high_ps=np.maximum(self.high_ps, least_ps),
            distance=self.distance,
            analytic_ps=analytic_ps,
            bound_ps=least_ps,
            method=tuple(self.method),
            bound=bound,
            shared=self.shared,
            notes=tuple(tuple(lines) for lines in self.notes),
            said=tuple(self.said),
            device=self.device,
            launch_ps=self.launch_ps,
            program_ps=self.program_ps,
        )


def _part(asked: Asked, places: Int64s) -> Asked:
    return Asked(
        [asked.kernels[place] for place in places],
        [asked.graphs[place] for place in places],
        asked.analytic_ps[places],
    )


def _graphs(kernels: Sequence[Kernel], progress: Callable[[int, int], None] | None) -> list[KernelGraph]:
    graphs = []
    for done, kernel in enumerate(kernels, start=1):
        graphs.append(graph_of_kernel(kernel))
        if progress is not None and not done % _REPORT_EVERY:
            progress(done, len(kernels))
    return graphs
