"""What phase detection returns: labels per step, segments, and phases with their evidence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s


@dataclass(frozen=True)
class Segment:
    """A maximal stretch of consecutive steps of one phase.

    Attributes:
        first_step: step number of its first step.
        last_step: step number of its last step, inclusive.
        phase: id of its phase.
        first_index: position of its first step in the run's order, from 0.
        last_index: position of its last step in the run's order, inclusive.
    """

    first_step: int
    last_step: int
    phase: int
    first_index: int
    last_index: int

    @property
    def n_steps(self) -> int:
        """Steps in the segment."""
        return self.last_index - self.first_index + 1


class Segments(Sequence[Segment]):
    """All segments of a run in order; each `Segment` is made when it is asked for.

    A run that alternates between two kinds of step has as many segments as steps, and a million
    objects would cost more than finding the phases did.
    """

    def __init__(self, labels: Int64s, steps: Int64s) -> None:
        """Cut `labels` `[n_steps]`, in the run's order, where the label changes; `steps` `[n_steps]` numbers them."""
        cuts = np.flatnonzero(np.diff(labels)) + 1
        self.first_index: Int64s = np.concatenate(([0], cuts)).astype(np.int64)
        self.last_index: Int64s = np.concatenate((cuts - 1, [len(labels) - 1])).astype(np.int64)
        self.phase: Int64s = labels[self.first_index]
        self.first_step: Int64s = steps[self.first_index]
        self.last_step: Int64s = steps[self.last_index]

    def __len__(self) -> int:
        return len(self.phase)

    @overload
    def __getitem__(self, index: int) -> Segment: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Segment, ...]: ...

    def __getitem__(self, index: int | slice) -> Segment | tuple[Segment, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        return Segment(
            int(self.first_step[index]),
            int(self.last_step[index]),
            int(self.phase[index]),
            int(self.first_index[index]),
            int(self.last_index[index]),
        )

    def __iter__(self) -> Iterator[Segment]:
        columns = (self.first_step, self.last_step, self.phase, self.first_index, self.last_index)
        return map(Segment, *(column.tolist() for column in columns))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Segments):
            return NotImplemented
        mine = (self.first_index, self.last_index, self.phase, self.first_step, self.last_step)
        theirs = (other.first_index, other.last_index, other.phase, other.first_step, other.last_step)
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))

    def __hash__(self) -> int:
        return hash((len(self), self.phase.tobytes()))

    def __repr__(self) -> str:
        return f"Segments({len(self)})"


@dataclass(frozen=True)
class TopOp:
    """One op of a phase, summed over the phase's captured steps.

    Attributes:
        op: op name.
        category: compute, communication, data_movement or host; null where the table does not say.
        self_ps: self time in the phase's captured steps, in ps.
        count: executions in the phase's captured steps.
        share: its part of all self time in the phase's captured steps, 0–1.
    """

    op: str
    category: str | None
    self_ps: int
    count: int
    share: float


@dataclass(frozen=True)
class Phase:
    """A class of steps that behave alike; it can come back.

    Attributes:
        id: number used in `labels`, from 0 in order of first appearance.
        name: what it is called: by its kind, or as the job named it.
        n_steps: steps of this phase.
        n_segments: stretches it appears in.
        n_captured: steps of this phase that a capture window saw.
        total_ps: time of its steps, in ps.
        share: its part of the time of all steps, 0–1.
        median_ps: median step duration, in ps.
        period_steps: steps from one return to the next, null where it does not return regularly.
        representative: step number of the step that stands for it: a captured one where there is one.
        weight: what the representative stands for: the phase's share of the run's time, 0–1.
        top_ops: ops with the most self time in its captured steps, largest first.
        why: the evidence its name rests on, in words.
        kind: what it is taken to be: compile, warm-up, train, eval, checkpoint, input stall, slow, drift, or `named`
            where only the job's own word says what it is.
    """

    id: int
    name: str
    n_steps: int
    n_segments: int
    n_captured: int
    total_ps: int
    share: float
    median_ps: int
    period_steps: float | None
    representative: int
    weight: float
    top_ops: tuple[TopOp, ...] = ()
    why: str = ""
    kind: str = "train"

    @property
    def period(self) -> float | None:
        """Steps from one return to the next, null where it does not return regularly."""
        return self.period_steps


@dataclass(frozen=True, eq=False)
class PhaseResult:
    """The phases of a run.

    Attributes:
        labels: phase id per row of the table given, `[n_steps]`, int64, in that table's row order.
        steps: step number per row, `[n_steps]`, int64, in the same order.
        order: rows in the run's order, `[n_steps]`: `labels[order]` runs through the run in time.
        segments: maximal stretches of one phase, in the run's order; they partition the steps.
        phases: by id.
        method: name of the method that found them.
        slow: whether a step lasted far longer than its phase does without belonging to a phase of
            such steps, `[n_steps]`, bool, in row order.
        lost: part of each step's time that other programs on the machine took, 0–1, `[n_steps]`, in row order.
        notes: what limits the result, in words.
    """

    labels: Int64s
    steps: Int64s
    order: Int64s
    segments: Segments
    phases: tuple[Phase, ...]
    method: str
    slow: Bools
    lost: Floats
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Labelling:
    """What a method hands back, in the run's order; `detect_phases` makes a `PhaseResult` of it.

    Attributes:
        labels: any integers, `[n_steps]`; equal means same phase.
        notes: what limits the result, in words.
        roles: what the method knows a label to be (`drift`, `compile`), by label.
        slow: steps far longer than their phase, `[n_steps]` bool; null where the method does not look.
        lost: part of each step's time that other programs on the machine took, 0–1, `[n_steps]`; null where the method
            does not look.
    """

    labels: Int64s
    notes: tuple[str, ...] = ()
    roles: Mapping[int, str] = field(default_factory=dict)
    slow: Bools | None = None
    lost: Floats | None = None
