"""From a network's operations and a device's rates: what holds it back, and what each change should win.

An operation's work is bound by what would take longer, its flop at the rate of products or its bytes at the rate of
copies; what only moves numbers is a part of its own; and what of the latency no operation works is overhead, of
Python, the framework and starting kernels. A change scales the work of each operation as it did when that was run
alone; overhead stays, and is shared by the samples of a batch.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from phasepoint.bench.bottleneck.operations import MOVES, Alternative, TimedOperation
from phasepoint.bench.suite.result import Bottleneck, Change, LayerShare, LayerWork

Part = Literal["compute", "bandwidth", "data movement", "overhead"]

LAYERS_TOLD = 3
"""Of a bottleneck's layers, those with the most time: a choice, what a line can name."""


class DeviceRates(NamedTuple):
    """What a device does at most, as it is set.

    Attributes:
        flop_per_s: of products of square matrices.
        bytes_per_s: read and written by a copy.
    """

    flop_per_s: float
    bytes_per_s: float


def part_of(operation: TimedOperation, rates: DeviceRates) -> Part:
    """What bounds an operation."""
    if operation.name in MOVES:
        return "data movement"
    computing_s, moving_s = operation.flop / rates.flop_per_s, operation.moved_bytes / rates.bytes_per_s
    return "compute" if computing_s > moving_s else "bandwidth"


def find_bottleneck(
    operations: Sequence[TimedOperation],
    latency_ps: int,
    rates: DeviceRates,
    alternatives: Sequence[Alternative],
    replayed: Mapping[int, Sequence[float | None]],
    *,
    beside_ps: int,
) -> Bottleneck:
    """The parts of a latency, and what changes should win.

    Args:
        operations: of one inference.
        latency_ps: of one, measured without their timer.
        rates: of the device.
        alternatives: settings that could be run instead.
        replayed: by an operation's place, what it takes in each of those over what it takes as it is.
        beside_ps: the latency again, in turns with the operations: where the machine has become slower since, or
            faster, so have they.

    Returns:
        Parts that add up to the latency; where operations by themselves take longer than the whole, each is taken for
        less.
    """
    worked_ps = sum(one.work_ps for one in operations)
    scale = latency_ps / max(beside_ps, worked_ps)
    parts: Counter[str] = Counter(dict.fromkeys(("compute", "bandwidth", "data movement"), 0))
    layers: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in parts}
    works: dict[tuple[str, str], list[tuple[TimedOperation, int, str]]] = defaultdict(list)
    for one in operations:
        part, time_ps = part_of(one, rates), int(one.work_ps * scale)
        parts[part] += time_ps
        layers[part][one.layer, one.kind] += time_ps
        works[one.layer, one.kind].append((one, time_ps, part))
    parts["overhead"] = latency_ps - sum(parts.values())
    worst = max(parts, key=lambda name: parts[name])
    changes = []
    for number, other in enumerate(alternatives):
        changed_ps = parts["overhead"] / other.batch
        for place, one in enumerate(operations):
            ratio = replayed[place][number] if place in replayed else None
            changed_ps += scale * one.work_ps * (1.0 if ratio is None else ratio / other.batch)
        changes.append(Change(*other, latency_ps / changed_ps if changed_ps else 1.0))
    causes = layers.get(worst, Counter()).most_common(LAYERS_TOLD)
    shares = tuple(LayerShare(layer, kind, time_ps) for (layer, kind), time_ps in causes)
    every = tuple(_layer_work(layer, kind, rows) for (layer, kind), rows in works.items())
    return Bottleneck(worst, dict(parts), shares, tuple(changes), every)


def _layer_work(layer: str, kind: str, rows: Sequence[tuple[TimedOperation, int, str]]) -> LayerWork:
    by_part: Counter[str] = Counter()
    for _, time_ps, part in rows:
        by_part[part] += time_ps
    return LayerWork(
        layer,
        kind,
        operations=len(rows),
        time_ps=sum(time_ps for _, time_ps, _ in rows),
        flop=sum(one.flop for one, _, _ in rows),
        moved_bytes=sum(one.moved_bytes for one, _, _ in rows),
        part=by_part.most_common(1)[0][0],
    )
