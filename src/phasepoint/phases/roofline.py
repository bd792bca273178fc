"""How near ops come to what the device can do: flop per second over flop per byte, below the device's peaks.

Source: Williams, Waterman & Patterson, "Roofline: An Insightful Visual Performance Model" (2009): at an intensity of
I flop/byte a device reaches at most min(peak flop/s, I × memory bytes/s).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from phasepoint.devices.specs import device_spec, unknown_device_note
from phasepoint.phases.op_costs import OpCost
from phasepoint.store import Run

MAX_POINTS = 40
"""Ops drawn per phase, those with the most time."""

_PS_PER_S = 10**12


@dataclass(frozen=True)
class PeakRate:
    """A device's peak for one element type, flop/s, as its maker publishes it, with the document that says so."""

    kind: str
    flop_per_s: float
    published: str
    source: str


@dataclass(frozen=True)
class DevicePeaks:
    """The roof: what one device can do at most.

    Attributes:
        device: its name in the table of devices.
        memory_bytes_per_s: memory bandwidth, bytes/s.
        memory_published: the same as its maker writes it.
        memory_source: the document that says so.
        rates: peaks by element type, fastest first.
    """

    device: str
    memory_bytes_per_s: float
    memory_published: str
    memory_source: str
    rates: tuple[PeakRate, ...]


@dataclass(frozen=True)
class RooflinePoint:
    """An op below the roof.

    Attributes:
        op, category, layer: of the op.
        self_ps: its self time in the captured steps.
        flop, bytes: of all its captured executions.
        flop_per_byte: its intensity.
        flop_per_s: what it reached.
    """

    op: str
    category: str
    layer: str | None
    self_ps: int
    flop: int
    bytes: int
    flop_per_byte: float
    flop_per_s: float


def find_peaks(run: Run) -> tuple[DevicePeaks | None, str | None]:
    """The peaks of the run's device, or the reason why there are none: unknown, or devices of several kinds."""
    names = list(dict.fromkeys(name for shard in run.shards for name in shard.session.devices))
    if not names:
        return None, "the run does not name its devices, so their peak rates are not known"
    specs = {spec.name: spec for spec in map(device_spec, names) if spec is not None}
    if not specs:
        return None, unknown_device_note(names[0])
    if len(specs) > 1 or any(device_spec(name) is None for name in names):
        return None, f"the run has devices of several kinds ({', '.join(names[:4])}), so there is no one roof"
    spec = next(iter(specs.values()))
    rates = (PeakRate(k, rate.value, rate.published, rate.source.title) for k, rate in spec.flop_per_s.items())
    memory = spec.memory_bytes_per_s
    by_rate = tuple(sorted(rates, key=lambda rate: -rate.flop_per_s))
    return DevicePeaks(spec.name, memory.value, memory.published, memory.source.title, by_rate), None


def roofline_points(costs: Sequence[OpCost]) -> tuple[RooflinePoint, ...]:
    """The ops whose time, flop and bytes are all known and above 0, the most time first, at most `MAX_POINTS`."""
    points = []
    for cost in costs:
        if not (cost.flop and cost.bytes and cost.self_ps > 0):
            continue
        rate = cost.flop * _PS_PER_S / cost.self_ps
        intensity = cost.flop / cost.bytes
        named = (cost.op, cost.category, cost.layer, cost.self_ps, cost.flop, cost.bytes)
        points.append(RooflinePoint(*named, intensity, rate))
    return tuple(sorted(points, key=lambda p: (-p.self_ps, p.op))[:MAX_POINTS])
