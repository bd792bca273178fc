"""What an estimate under a change says, as values: everything that the terminal and `--json` draw.

Every time is integer picoseconds, every ratio 1 where nothing changes, missing is None.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """A time with its interval.

    Attributes:
        value_ps: the time.
        low_ps: lower end, equal to value_ps where it was measured; None where too little was compared to know.
        high_ps: upper end, likewise.
    """

    value_ps: int
    low_ps: int | None
    high_ps: int | None


@dataclass(frozen=True)
class PartChange:
    """A category of the exchanged phase, over all its steps.

    Attributes:
        category: as in a breakdown: compute, communication, data_movement, host, idle, unattributed, input.
        before_ps: time in the original, estimated from its windows.
        after_ps: time under the change, estimated from the replay's windows.
    """

    category: str
    before_ps: int
    after_ps: int


@dataclass(frozen=True)
class OpChange:
    """An op of the exchanged phase, self time over all its steps.

    Attributes:
        op: name as the profiler gives it; a change of the program may rename it.
        category: compute, communication, data_movement or host.
        before_ps: in the original; None where it is not among its largest ops.
        after_ps: under the change; None where it is not among the replay's largest ops.
    """

    op: str
    category: str
    before_ps: int | None
    after_ps: int | None


@dataclass(frozen=True)
class ScalarChange:
    """A logged value at the same steps, with and without the change. Whether it matters is not judged.

    Attributes:
        name: the user's name for it: loss.
        steps: steps at which both have it.
        first_step: first of these.
        last_step: last of these.
        before: mean in the original.
        after: mean under the change.
        largest_difference: largest after - before of a step, by size.
        largest_step: where.
    """

    name: str
    steps: int
    first_step: int
    last_step: int
    before: float
    after: float
    largest_difference: float
    largest_step: int


@dataclass(frozen=True)
class Exchange:
    """A phase whose steps were exchanged for those of its replays.

    Attributes:
        phases: names of the phases exchanged: the replayed one, then those that were joined to it.
        changes: paths of the replays.
        baselines: paths of the replays without the change that stand for the original; empty where there are none.
        steps: steps of these phases in the original.
        steps_ratio: steps that the job needs under the change over those without it.
        compared_steps: steps that the ratio of step times rests on.
        first_step: first step compared.
        last_step: last step compared.
        step_before_ps: mean step of these phases in the original, less compilation and checkpoints.
        step_after_ps: the same under the change.
        ratio: step time under the change over that without it.
        low: lower end of the ratio's interval, None where a single step was compared.
        high: upper end.
        within: standard error from the scatter of the steps compared, as a ratio of `ratio`; None as above.
        place: standard error from the choice of the steps compared, likewise; None where it could not be seen.
        machine_ratio: step time of the baselines over the original's: the machine's doing; None without baselines.
        machine_low: lower end of its interval.
        machine_high: upper end.
        before_ps: time of these phases in the original, less compilation and checkpoints.
        after: the same under the change.
        categories: of before_ps and after, each adding up to it; empty where one side was not captured.
        ops: largest ops, by the larger of both sides; empty where one side was not captured.
        scalars: logged values at the same steps.
        notes: what limits it, in words.
    """

    phases: tuple[str, ...]
    changes: tuple[str, ...]
    baselines: tuple[str, ...]
    steps: int
    steps_ratio: float
    compared_steps: int
    first_step: int
    last_step: int
    step_before_ps: int
    step_after_ps: int
    ratio: float
    low: float | None
    high: float | None
    within: float | None
    place: float | None
    machine_ratio: float | None
    machine_low: float | None
    machine_high: float | None
    before_ps: int
    after: Value
    categories: tuple[PartChange, ...]
    ops: tuple[OpChange, ...]
    scalars: tuple[ScalarChange, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Kept:
    """Time that was kept as it was.

    Attributes:
        name: a phase, or `compiling`, `checkpoints`, `outside steps`.
        time_ps: of all hosts.
    """

    name: str
    time_ps: int


@dataclass(frozen=True)
class FewSteps:
    """The time inside steps as few of them give it (`replay.compact`).

    Attributes:
        steps_used: steps that the estimate rests on.
        steps_total: steps of the run.
        estimate: their time raised to the whole.
    """

    steps_used: int
    steps_total: int
    estimate: Value


@dataclass(frozen=True)
class JobCost:
    """What the run costs, before and after.

    Attributes:
        unit: accelerator-hours, host-hours (a run on CPUs) or device-hours (the number was given).
        devices: what is counted: accelerators, hosts, or the number given.
        before: hours in the unit.
        after: the same under the change.
        after_low: lower end of its interval, None where unknown.
        after_high: upper end.
        price_per_hour: of one device (or host), None where none was given.
        money_before: in the price's currency; None without a price, as all below.
        money_after: under the change.
        money_after_low: lower end of its interval.
        money_after_high: upper end.
        money_saved: before less after.
    """

    unit: str
    devices: int
    before: float
    after: float
    after_low: float | None
    after_high: float | None
    price_per_hour: float | None
    money_before: float | None
    money_after: float | None
    money_after_low: float | None
    money_after_high: float | None
    money_saved: float | None


@dataclass(frozen=True)
class Estimate:
    """A run with some of its phases exchanged, the rest kept.

    Attributes:
        run: the original.
        hosts: its hosts; times of the run are those of one, the mean of all.
        confidence: of all intervals.
        before_ps: the run's time as recorded.
        after: its time under the change.
        steps_before_ps: part of before_ps inside steps.
        steps_after: the same under the change.
        saved: before less after, below 0 where the change costs time.
        ratio: after over before.
        exchanges: the phases exchanged.
        kept: what was kept, largest first, of all hosts.
        from_windows: without a change: what the run's representatives say; None else, and for several hosts.
        cost: hours, and money where a price is known; None where the number of devices is not.
        notes: what limits the estimate, in words.
    """

    run: str
    hosts: int
    confidence: float
    before_ps: int
    after: Value
    steps_before_ps: int
    steps_after: Value
    saved: Value
    ratio: float
    exchanges: tuple[Exchange, ...]
    kept: tuple[Kept, ...]
    from_windows: FewSteps | None
    cost: JobCost | None
    notes: tuple[str, ...]
