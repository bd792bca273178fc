"""The same trace read a second way: protobuf's own decoder, plain Python, time painted instant by instant.

Knows CPU traces only: threads of `/host:CPU`, ops by their `hlo_op`, completions by `end:` events. Slow on purpose.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from xplane_schema.messages import XSpace


@dataclass
class Span:
    name: str
    op: str | None
    program: int | None
    device: str
    track: str
    order: int
    start: int
    end: int
    step: int | None
    tail: int = 0
    self_time: int = 0


def read(data):
    """`(spans, ignored)` of a CPU trace, with self times."""
    space = XSpace.FromString(data)
    spans, ends, ignored = [], {}, 0
    producers = {}
    for plane in space.planes:
        if plane.name != "/host:CPU":
            continue
        names = {entry.key: entry.value.name for entry in plane.event_metadata}
        texts = {entry.key: entry.value.name for entry in plane.stat_metadata}
        for line in plane.lines:
            track = line.display_name or line.name
            for order, event in enumerate(line.events):
                name = names[event.metadata_id]
                stats = {texts[s.metadata_id]: _value(s, texts) for s in event.stats}
                start = line.timestamp_ns * 1000 + event.offset_ps
                if name.startswith("end: "):
                    ends[stats.get("_c")] = start
                    ignored += 1
                elif name.startswith("ThreadpoolListener::"):
                    ignored += 1
                else:
                    op = stats.get("hlo_op")
                    device = f"cpu:{stats.get('device_ordinal', 0)}" if op else "host"
                    span = Span(
                        name, op, stats.get("program_id") if op else None, device, track, order, start,
                        start + event.duration_ps, stats.get("step_num"),
                    )  # fmt: skip
                    spans.append(span)
                    if op and "_p" in stats:
                        producers[stats["_p"]] = span
    for task, time in ends.items():
        span = producers.get(task)
        if span and time > span.end and span.op.split(".")[0] not in ("while", "conditional", "call"):
            span.tail = time - span.end
    tracks = defaultdict(list)
    for span in spans:
        tracks[span.track].append(span)
    for members in tracks.values():
        _paint(members)
    return spans, ignored


def _value(stat, texts):
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind)
    return texts[value] if kind == "ref_value" else value


def _paint(members):
    """Charge every instant of a track to its last started span; inside an op, runtime calls are the op's own time."""
    for low, high, span in painted(members):
        span.self_time += high - low
    for span in members:
        span.self_time += span.tail


def painted(members):
    members = sorted(members, key=lambda s: (s.start, -s.end, s.order))
    reach = {}
    for i, span in enumerate(members):  # a span is cut where a later one starts inside it and outlives it
        later = [o.start for o in members[i + 1 :] if o.start < span.end < o.end]
        reach[id(span)] = min([span.end, *later])
    edges = sorted({s.start for s in members} | {s.end for s in members})
    active, pending = [], list(reversed(members))
    for low, high in pairwise(edges):
        while pending and pending[-1].start <= low:
            active.append(pending.pop())
        active = [s for s in active if reach[id(s)] > low]
        if active:
            ops = [s for s in active if s.op is not None]
            yield low, high, (ops or active)[-1]


def breakdown(spans, category_of, low, high, device, is_idle):
    """Wall time of one step by category, painted over all tracks."""
    late = {f"late {name}": [] for name in ("compute", "communication", "data_movement")}  # ends are told late
    works = {"compute": [], "communication": []}
    layers = works | {name: late[name] for name in ("late compute", "late communication")}
    layers |= {"data_movement": []} | late | {"host": []}
    tracks = defaultdict(list)
    for span in spans:
        tracks[span.track].append(span)
        if span.tail and span.device == device:
            late[f"late {category_of(span)}"].append((span.end, span.end + span.tail))
    for members in tracks.values():
        for a, b, span in painted(members):
            if span.op is not None:
                if span.device == device:
                    layers[category_of(span)].append((a, b))
            elif not is_idle(span):
                layers["host"].append((a, b))
    edges = sorted({low, high} | {t for part in layers.values() for ab in part for t in ab if low < t < high})
    total = dict.fromkeys([*layers.keys() - late.keys(), "idle"], 0)
    for a, b in pairwise(edges):
        owner = next((n for n, part in layers.items() if any(x <= a and b <= y for x, y in part)), "idle")
        total[owner.removeprefix("late ")] += b - a
    return total
