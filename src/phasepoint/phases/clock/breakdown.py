"""The time of a run, or of a phase, by parts that add up to it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PartTime:
    """One part of a total.

    Attributes:
        name: compute, communication, data_movement, host, idle, input or unattributed in a breakdown.
        total_ps: the time.
        low_ps: lower end of the 95 % interval; equal to total_ps where the time was measured, not estimated.
        high_ps: upper end of it.
        share: total_ps as a ratio of the total it is part of (0 where that is 0).
        basis: `measured` (exact, by the step clock or because every step was captured), `estimated` (from capture
            windows) or `unattributed`.
    """

    name: str
    total_ps: int
    low_ps: int
    high_ps: int
    share: float
    basis: str


@dataclass(frozen=True)
class AccountPart(PartTime):
    """One part of the clock's account. What it is, `kind` and `phase` say; its name is for the reader alone.

    Attributes:
        kind: input wait, compiling, checkpoint, slower machine, recording or outside steps, each known as such; `phase`
            for the rest of the time of a phase's steps; `named` for a stretch outside steps that the job gave a name.
        phase: id of the phase; None for the others.
    """

    kind: str
    phase: int | None


MEASURED, ESTIMATED, FEW = "measured", "estimated", "few windows"
"""How a breakdown is known: every step was captured; from windows; from so few that they tell of themselves alone."""


@dataclass(frozen=True)
class Breakdown:
    """A total and its parts, which add up to it to the picosecond.

    Attributes:
        total_ps: what the parts add up to.
        parts: in a fixed order: the categories, `unattributed`, `input`, `compiling`. With nothing captured
            only `unattributed` is not zero.
        windows: capture windows the estimate rests on.
        captured_steps: steps in those windows.
        confidence: of the intervals, 0.95.
        notes: what widened the intervals or is left out, in words; empty where nothing did.
        basis: `measured`, `estimated`, or `few windows`: then ops of the same scope are those of its captured steps.
    """

    total_ps: int
    parts: tuple[PartTime, ...]
    windows: int = 0
    captured_steps: int = 0
    confidence: float = 0.95
    notes: tuple[str, ...] = ()
    basis: str = ESTIMATED


@dataclass(frozen=True)
class ClockAccount(Breakdown):
    """The sessions' wall time by what the clock saw, largest part first.

    Measured but for two: what a slower machine cost, and checkpoints of which the job told only that they were written;
    and so the rest of the phases whose steps these were.
    """

    parts: tuple[AccountPart, ...]


PASSES = ("forward", "backward", "optimizer")
"""Parts of a step's anatomy between whose works the device may wait."""


@dataclass(frozen=True)
class AnatomyPart(PartTime):
    """What a part of a step's time served: input, to_device, forward, backward, optimizer, other work, communication,
    host, idle, compiling or unattributed.

    Attributes:
        within_ps: of forward, backward and optimizer: communication, host and idle time in the midst of it, told in
            these parts. With it the pass is as long as a clock around it would tell.
    """

    within_ps: int


@dataclass(frozen=True)
class Anatomy(Breakdown):
    """The time of steps by what it served, in the order of a step."""

    parts: tuple[AnatomyPart, ...]

    @property
    def is_told(self) -> bool:
        """Whether any of it is known to serve a pass."""
        return any(part.total_ps for part in self.parts if part.name in PASSES)


@dataclass(frozen=True)
class OpTime:
    """An op's self time over the run (or a phase), from the windows; where these are few, over their steps alone.

    Attributes:
        op: name as the profiler gives it; `other` for all ops that are not listed one by one.
        category: compute, communication, data_movement or host; `mixed` for `other`.
        layer: module path, None where unknown.
        program: name of the compiled program, None where it belongs to none.
        count: executions, estimated; None for `other`.
        self_ps: self time, added over devices and threads: it can exceed the wall time where work runs side by side.
        low_ps: lower end of the 95 % interval of self_ps.
        high_ps: upper end of it.
        share: self_ps as a ratio of all ops' self time in the same scope.
    """

    op: str
    category: str
    layer: str | None
    program: str | None
    count: int | None
    self_ps: int
    low_ps: int
    high_ps: int
    share: float
