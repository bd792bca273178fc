"""`estimate_change`: time and cost of the whole run if some phases went as in their replays (docs/change.md)."""

import math
from collections.abc import Sequence

import numpy as np

from phasepoint.core.errors import NoDataError, UsageError
from phasepoint.core.units import PS_PER_S
from phasepoint.phases.clock.steps import RunClock, sum_ps
from phasepoint.replay.change.clean_steps import (
    CleanSteps,
    MadeReplay,
    find_replayed_phase,
    read_clean_steps,
    read_made_replay,
)
from phasepoint.replay.change.substitution import Order, exchange_phase
from phasepoint.replay.change.types import Estimate, Exchange, FewSteps, JobCost, Kept, Value
from phasepoint.replay.compact.compact import compact_run
from phasepoint.replay.plan.plan import find_phase
from phasepoint.store import Run
from phasepoint.summary.analysis import Analysis

ACCELERATOR_HOURS, HOST_HOURS, DEVICE_HOURS = "accelerator-hours", "host-hours", "device-hours"
_PS_PER_HOUR = 3600 * PS_PER_S  # the unit that devices are rented by


def price_run(
    counted: tuple[str, int] | None, before_ps: int, after: Value, *, price_per_hour: float | None = None
) -> JobCost | None:
    """The cost of a run's time.

    Args:
        counted: unit and number of devices, as `count_devices` gives them.
        before_ps: time of the run.
        after: the same under a change.
        price_per_hour: of one device for an hour, 0 or more, in any currency.

    Returns:
        Hours = devices × time; None where the number of devices is not known.

    Raises:
        UsageError: a price below 0 or not finite, or a price where nothing says how many devices there were.
    """
    if price_per_hour is not None and not 0 <= price_per_hour < math.inf:
        raise UsageError(f"price per hour {price_per_hour:g}: expected 0 or more, the price of one device for an hour")
    if counted is None:
        if price_per_hour is not None:
            raise UsageError("the run does not say how many devices it had; give their number with --devices N")
        return None
    unit, devices = counted
    hours = [
        None if t is None else devices * t / _PS_PER_HOUR
        for t in (before_ps, after.value_ps, after.low_ps, after.high_ps)
    ]
    money = [None if h is None or price_per_hour is None else h * price_per_hour for h in hours]
    saved = None if money[0] is None or money[1] is None else money[0] - money[1]
    return JobCost(
        unit=unit,
        devices=devices,
        before=devices * before_ps / _PS_PER_HOUR,
        after=devices * after.value_ps / _PS_PER_HOUR,
        after_low=hours[2],
        after_high=hours[3],
        price_per_hour=price_per_hour,
        money_before=money[0],
        money_after=money[1],
        money_after_low=money[2],
        money_after_high=money[3],
        money_saved=saved,
    )


def count_devices(run: Run, clock: RunClock, devices: int | None) -> tuple[str, int] | None:
    """Unit of the cost and how many devices it counts.

    Accelerators are those of the newest session of every host; a run on CPUs counts its hosts, since the devices that a
    framework makes of one CPU are no machines.

    Args:
        run: the run.
        clock: its sessions.
        devices: their number where the caller knows better, 1 or more.

    Returns:
        None where the run names no device.

    Raises:
        UsageError: `devices` below 1.
    """
    if devices is not None:
        if devices < 1:
            raise UsageError(f"{devices} devices: expected 1 or more")
        return DEVICE_HOURS, devices
    newest = {shard.host: shard for shard in sorted(run.shards, key=lambda shard: shard.attempt)}
    names = [name for shard in newest.values() for name in shard.session.devices] or list(run.manifest.devices)
    if not names:
        return None
    accelerators = sum(not name.lower().startswith(("cpu", "host")) for name in names)
    if accelerators:
        return ACCELERATOR_HOURS, accelerators
    return HOST_HOURS, max(len({session.host for session in clock.sessions}), 1)


COMPILING, CHECKPOINTS, OUTSIDE = "compiling", "checkpoints", "outside steps"


def estimate_change(
    original: Analysis,
    changes: Sequence[Run] = (),
    *,
    baselines: Sequence[Run] = (),
    like: Sequence[str] = (),
    steps_ratio: float = 1.0,
    devices: int | None = None,
    price_per_hour: float | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """The run's time and cost if the phases that were replayed went as in their replays, all else as it was.

    Args:
        original: the run, analysed.
        changes: replays of one phase each, with the change; several of one phase are repeats. None: the run as it is.
        baselines: replays without the change: they take the original's place in the ratio of their phase.
        like: names or ids of phases that are taken to change as the replayed one; only where one phase is exchanged.
        steps_ratio: steps that the job needs under the change over those without it: 0.5 for twice the batch.
        devices: number of devices for the cost; None takes what the run says.
        price_per_hour: of one device.
        confidence: of the intervals, between 0 and 1.

    Returns:
        Times that close: what is exchanged and what is kept adds up to the run's time.

    Raises:
        UsageError: a phase that does not exist, a baseline of no exchanged phase, a ratio or price out of range.
        NoDataError: the run has no steps, or a replay none that can be compared.
        ReplayError: a replay was not done.
        StoreError: a replay cannot be read.
    """
    if not 0 < steps_ratio < math.inf:
        raise UsageError(f"ratio of steps {steps_ratio:g}: expected more than 0, such as 0.5 for twice the batch")
    if not original.clock.n_steps:
        raise NoDataError(f"{original.run.path}: holds no steps to estimate from; record a training loop")
    counted = count_devices(original.run, original.clock, devices)
    mine = read_clean_steps(original.clock, original.tables, lead=False)
    orders = _orders(original, changes, baselines, like, steps_ratio=steps_ratio, confidence=confidence)
    exchanges = tuple(exchange_phase(original, mine, order) for order in orders)
    hosts = max(len({session.host for session in original.clock.sessions}), 1)
    before_ps, after = _totals(original.clock.wall_ps, exchanges, hosts)
    steps_before_ps, steps_after = _totals(original.clock.inside_ps, exchanges, hosts)
    low, high = (None if t is None else before_ps - t for t in (after.high_ps, after.low_ps))
    return Estimate(
        run=original.run.path,
        hosts=hosts,
        confidence=confidence,
        before_ps=before_ps,
        after=after,
        steps_before_ps=steps_before_ps,
        steps_after=steps_after,
        saved=Value(before_ps - after.value_ps, low, high),
        ratio=after.value_ps / before_ps if before_ps else 1.0,
        exchanges=exchanges,
        from_windows=None if orders else _from_windows(original, hosts),
        kept=_kept(original, mine, [phase for order in orders for phase in order.phases]),
        cost=price_run(counted, before_ps, after, price_per_hour=price_per_hour),
        notes=_notes(original, orders, steps_ratio),
    )


def _orders(
    original: Analysis,
    changes: Sequence[Run],
    baselines: Sequence[Run],
    like: Sequence[str],
    *,
    steps_ratio: float,
    confidence: float,
) -> list[Order]:
    by_phase: dict[int, list[MadeReplay]] = {}
    unchanged: dict[int, list[MadeReplay]] = {}
    for runs, found in ((changes, by_phase), (baselines, unchanged)):
        for run in runs:
            replay = read_made_replay(run)
            found.setdefault(find_replayed_phase(original, replay), []).append(replay)
    for phase in unchanged.keys() - by_phase.keys():
        exchanged = ", ".join(original.names[number] for number in by_phase) or "none"
        raise UsageError(
            f"{unchanged[phase][0].run.path}: a baseline of phase {original.names[phase]}, of which there is no change "
            f"(changed: {exchanged}); make both replays of the same phase"
        )
    joined = tuple(dict.fromkeys(find_phase(original, name).id for name in like))
    if joined and len(by_phase) != 1:
        raise UsageError(f"--like needs one exchanged phase to be like, there are {len(by_phase)}")
    return [
        Order(
            phases=(phase, *(number for number in joined if number != phase)),
            changes=tuple(replays),
            baselines=tuple(unchanged.get(phase, ())),
            steps_ratio=steps_ratio,
            confidence=confidence,
        )
        for phase, replays in by_phase.items()
    ]


def _totals(total_ps: int, exchanges: Sequence[Exchange], hosts: int) -> tuple[int, Value]:
    """A total of all hosts before and after, per host. Exchanges are independent: their half-widths add as squares."""
    after_ps = total_ps + sum(one.after.value_ps - one.before_ps for one in exchanges)
    ends: list[int | None] = []
    for sign, name in ((-1, "low_ps"), (1, "high_ps")):
        known = [getattr(one.after, name) for one in exchanges]
        if None in known:
            ends.append(None)
            continue
        half = math.hypot(*(end - one.after.value_ps for end, one in zip(known, exchanges, strict=True)))
        ends.append((after_ps + sign * round(half)) // hosts)
    return total_ps // hosts, Value(after_ps // hosts, ends[0], ends[1])


def _kept(original: Analysis, mine: CleanSteps, exchanged: Sequence[int]) -> tuple[Kept, ...]:
    clock, labels = original.clock, original.labels
    times = [
        (name, sum_ps(mine.own_ps[labels == phase])) for phase, name in original.names.items() if phase not in exchanged
    ]
    own_ps, compile_ps = sum_ps(mine.own_ps), sum_ps(clock.compile_ps)
    rows = [
        *times,
        (COMPILING, compile_ps),
        (CHECKPOINTS, clock.inside_ps - own_ps - compile_ps),
        (OUTSIDE, clock.wall_ps - clock.inside_ps),
    ]
    return tuple(Kept(name, time_ps) for name, time_ps in sorted(rows, key=lambda row: -row[1]) if time_ps)


def _from_windows(original: Analysis, hosts: int) -> FewSteps | None:
    """The time inside steps as a compact of the run gives it; a run of several hosts has none of all of them."""
    if hosts > 1:
        return None
    found = compact_run(original)
    value = Value(found.estimate_ps, found.low_ps, found.high_ps)
    return FewSteps(found.steps_used, found.steps_total, value)


def _notes(original: Analysis, orders: Sequence[Order], steps_ratio: float) -> tuple[str, ...]:
    if not orders:
        return ("nothing is exchanged: the run's own time and cost",)
    notes = ["start-up, compiling, checkpoints and phases that were not replayed are kept as they were"]
    exchanged = {phase for order in orders for phase in order.phases}
    sort = {phase.id: (phase.kind, _stem(original.names[phase.id])) for phase in original.result.phases}
    sorts = {sort[phase] for phase in exchanged}
    alike = [phase for phase in original.result.phases if phase.id not in exchanged and sort[phase.id] in sorts]
    if alike:
        share = sum(phase.share for phase in alike)
        names = [original.names[phase.id] for phase in alike]
        notes.append(
            f"{', '.join(names)} ({100 * share:.3g} % of the steps' time) kept too; --like {','.join(names)} joins them"
        )
    if steps_ratio != 1:
        notes.append(
            f"the exchanged phases take {steps_ratio:g} times as many steps; evaluations and checkpoints stay as many"
        )
    slow_ps = _slow_ps(original, exchanged)
    if slow_ps is not None:
        notes.append(slow_ps)
    return tuple(notes)


def _slow_ps(original: Analysis, exchanged: set[int]) -> str | None:
    slow = original.result.slow & np.isin(original.labels, list(exchanged))
    if not slow.any():
        return None
    share = sum_ps(original.clock.dur_ps[slow]) / max(original.clock.inside_ps, 1)
    scaled = f"({100 * share:.2g} % of the steps' time) are scaled with it"
    return f"{int(slow.sum())} steps far slower than their phase {scaled}"


def _stem(name: str) -> str:
    """`train` of `train-2`."""
    head, _, tail = name.rpartition("-")
    return head if head and tail.isdecimal() else name
