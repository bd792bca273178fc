"""What became of an XPlane's events, and what its planes say of devices and of single operations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Bytes
from phasepoint.core.tables import table_from_columns
from phasepoint.sources.collective_names import collectives_of_kernels
from phasepoint.sources.event_tables import Account, Kind, text_column
from phasepoint.sources.wire import read_text
from phasepoint.sources.xplane_described import Described
from phasepoint.sources.xplane_gather import Events
from phasepoint.sources.xplane_lines import is_host, line_levels, why_left_out
from phasepoint.sources.xplane_planes import Plane

_DEVICE_NAMES = ("device_type_string", "gpu_device_name", "device_vendor")
_COSTS = {"flops": "flop", "model_flops": "flop", "bytes_accessed": "bytes"}
"""Stats of operations that are costs, and their units."""

_DOUBLE, _UNSIGNED, _SIGNED = 2, 3, 4


def account_for(events: Events, planes: Sequence[Plane]) -> list[Account]:
    """What became of the events of every plane; they add up to `events.found`.

    Args:
        events: the events.
        planes: their planes.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    track = 0
    for plane, (ignored, dropped) in zip(planes, events.apart, strict=True):
        left_out = 0
        for i, (line, level) in enumerate(zip(plane.lines, line_levels(plane), strict=True)):
            kept = int(events.first[track + i + 1] - events.first[track + i])
            counts["kept", _what(plane, line.name), ""] += kept
            if level is None:
                counts["skipped", _what(plane, line.name), why_left_out(plane, line.name)] += line.events
                left_out += line.events
        track += len(plane.lines)
        # The last event of a damaged line is counted as dropped, whatever its line is.
        counts["skipped", "bookkeeping", "says who launched what, and when it completed"] += max(ignored - left_out, 0)
        counts["skipped", f"plane {plane.name}", "could not be read or placed"] += dropped + min(ignored - left_out, 0)
    return [Account(*key, rows) for key, rows in sorted(counts.items()) if rows]


def _what(plane: Plane, line: str) -> str:
    if is_host(plane):
        return "host thread"
    if plane.device() is None:
        return f"plane {plane.name}"
    return "stream" if line.startswith("Stream") else f"line {line}"


def describe_devices(data: Bytes, planes: Sequence[Plane]) -> tuple[str, ...]:
    """`gpu:0 NVIDIA H100`, … of the planes of devices that hold events."""
    found = []
    for plane in planes:
        device = plane.device()
        if device is not None and any(line.events for line in plane.lines):
            names = (_text_of(data, plane, name) for name in _DEVICE_NAMES)
            found.append(f"{device} {next((name for name in names if name), '')}".rstrip())
    return tuple(found)


def _text_of(data: Bytes, plane: Plane, stat: str) -> str:
    rows = np.flatnonzero(np.isin(plane.stats.stat, plane.stat_ids(stat)) & np.isin(plane.stats.kind, (5, 7)))
    if not len(rows):
        return ""
    value, length = int(plane.stats.value[rows[0]]), int(plane.stats.length[rows[0]])
    inline = read_text(data, (value, value + length))
    return plane.stat_name.get(value, "") if plane.stats.kind[rows[0]] == 7 else inline


def tables_of_spans(described: Described, launches: Mapping[str, Any], planes: Sequence[Plane]) -> dict[str, pa.Table]:
    """Rows of `launches`, `collectives` and `metrics`, where there are any.

    Args:
        described: the events.
        launches: columns of `launches`.
        planes: the planes.
    """
    kinds = [Kind(one.name, one.device, one.level, "", True) for one in described.events.kinds]
    found = {
        "launches": launches,
        "collectives": collectives_of_kernels(kinds, described.events.kind),
        "metrics": _costs(planes),
    }
    rows = {name: columns for name, columns in found.items() if columns and len(next(iter(columns.values())))}
    return {
        name: table_from_columns(
            name, {"window": np.full(len(next(iter(columns.values()))), described.window, np.int64), **columns}
        )
        for name, columns in rows.items()
    }


def _costs(planes: Sequence[Plane]) -> Mapping[str, Any]:
    """Flop and bytes of one execution of an operation, which the profiler gives once for all of them (TPU)."""
    found: list[tuple[str, float, str]] = []
    for plane in planes:
        names = {key: name for name in _COSTS for key in plane.stat_ids(name)}
        stats = plane.meta_stats
        if plane.device() is None or not names:
            continue
        wanted = np.isin(stats.stat, list(names)) & np.isin(stats.kind, (_DOUBLE, _UNSIGNED, _SIGNED))
        for i in np.flatnonzero(wanted):
            bits = stats.value[i]
            value = float(bits.view(np.float64)) if stats.kind[i] == _DOUBLE else float(bits)
            owner = int(stats.owner[i])
            op = plane.meta_display[owner] or plane.meta_name[owner].partition(" = ")[0].removeprefix("%")
            found.append((names[int(stats.stat[i])], value, f"{plane.device()} {op}"))
    names_of = list(_COSTS)
    codes = np.array([names_of.index(name) for name, _, _ in found], np.int64)
    return {
        "name": text_column(codes, names_of),
        "unit": text_column(codes, list(_COSTS.values())),
        "value": np.array([value for _, value, _ in found], np.float64),
        "of": [of for _, _, of in found],
    }
