"""What a run's time costs: device hours, and money where a price per hour is known."""

import math
from collections.abc import Sequence

from phasepoint.core.errors import UsageError
from phasepoint.core.units import PS_PER_S
from phasepoint.phases.clock import RunClock
from phasepoint.replay.estimate_types import Cost, Value
from phasepoint.store import Run

ACCELERATOR_HOURS, HOST_HOURS, DEVICE_HOURS = "accelerator-hours", "host-hours", "device-hours"
_PS_PER_HOUR = 3600 * PS_PER_S


def price_run(
    counted: tuple[str, int] | None, before_ps: int, after: Value, *, price_per_hour: float | None = None
) -> Cost | None:
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
    return Cost(
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
    accelerators = _accelerators(names)
    if accelerators:
        return ACCELERATOR_HOURS, accelerators
    return HOST_HOURS, max(len({session.host for session in clock.sessions}), 1)


def _accelerators(names: Sequence[str]) -> int:
    return sum(not name.lower().startswith(("cpu", "host")) for name in names)
