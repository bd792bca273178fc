"""Launch parameters of kernels and bytes of copies, which GPU profilers write as text into events' stats.

Read in a pass of its own over the planes that hold such stats; planes of other devices and of the host cost nothing.
Source of the texts: openxla/xla, `xla/backends/profiler/gpu/kernel_details.h` (`ToXStat`) and `cupti_collector.cc`
(November 2026); traces of jax 0.6 on AMD GPUs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Bytes, Int64s
from phasepoint.core.compiled import compiled
from phasepoint.sources.events.rows import MISSING, launch_columns
from phasepoint.sources.xplane.gather import Events
from phasepoint.sources.xplane.planes import Plane
from phasepoint.sources.xplane.wire import INTACT, LENGTH, read_field, read_text

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN202

_STATS = ("kernel_details", "memcpy_details", "memset_details", "cuda_graph_id")
_KERNEL, _COPY, _FILL, _GRAPH = range(len(_STATS))
_NUMBER = re.compile(r"\b(regs|static_shared|dynamic_shared|group_mem|size|num_bytes):(\d{1,18})\b")
_THREE = re.compile(r"\b(grid|block):(\d{1,18}),(\d{1,18}),(\d{1,18})")
_OCCUPANCY = re.compile(r"\bocc_pct:([0-9.eE+-]+)")

_INT64_DIGITS = 19
"""A number of fewer digits fits an int64."""

_MOST_REGISTERS = 1024
"""No GPU has as many for a thread. AMD's profiler of 2025 left this and the shared memory as they lay in memory."""


@dataclass(frozen=True)
class Details:
    """What stats say of single events.

    Attributes:
        launches: columns of `launches`; empty where nothing is known.
        bytes: `[n_events]` bytes moved; None where no event says.
        problems: what could not be read, in words.
    """

    launches: Mapping[str, Any]
    bytes: pa.Array | None
    problems: list[str]


def read_details(data: Bytes, planes: Sequence[Plane], events: Events) -> Details:
    """Read the details of all planes' events.

    Args:
        data: the whole XSpace.
        planes: its planes.
        events: their events.
    """
    found: list[tuple[Int64s, Int64s, Int64s, list[str]]] = []
    lost, track = 0, 0
    for plane in planes:
        ids = {key: i for i, name in enumerate(_STATS) for key in plane.stat_ids(name)}
        if plane.device() is not None and ids:
            for i, line in enumerate(plane.lines):
                low, high = events.first[track + i : track + i + 2].tolist()
                if high - low == line.events and high > low:
                    found.append(_of_line(data, plane, ids, (line.start, line.end), low))
                else:  # rows and events cannot be told to be the same
                    lost += high > low
        track += len(plane.lines)
    problems = (
        [f"on {lost} lines some events could not be read; no launch parameters of the others are kept"] if lost else []
    )
    return _details(found, len(events.kind), problems)


def _of_line(
    data: Bytes, plane: Plane, ids: Mapping[int, int], span: tuple[int, int], first: int
) -> tuple[Int64s, Int64s, Int64s, list[str]]:
    """Row, stat and number of the text of each detail on a line, and the texts; of numbers the decimal digits."""
    keys = np.array(sorted(ids), np.int64)
    which = np.array([ids[int(key)] for key in keys], np.int64)
    event, stat, kind, value, length = _collect(data, *span, keys, which)
    texts: list[str] = []
    known: dict[tuple[int, str | int], int] = {}
    numbers = np.empty(len(event), np.int64)
    for i, (form, content, size) in enumerate(zip(kind.tolist(), value.tolist(), length.tolist(), strict=True)):
        key = (form, read_text(data, (content, content + size)) if form == 5 else content)
        if key not in known:
            known[key] = len(texts)
            texts.append(plane.stat_name.get(content, "") if form == 7 else str(key[1]))
        numbers[i] = known[key]
    return event + first, stat, numbers, texts


def _details(found: Sequence[tuple[Int64s, Int64s, Int64s, list[str]]], n_events: int, problems: list[str]) -> Details:
    columns = {name: np.full(n_events, MISSING, np.int64) for name in _COLUMNS} if found else {}
    occupancy = np.full(n_events if found else 0, np.nan)
    for row, stat, number, texts in found:
        read = [_read_text(text) for text in texts]
        for name in _COLUMNS:
            values = np.array([one.get(name, MISSING) for one in read], np.int64)[number]
            known = values != MISSING
            columns[name][row[known]] = values[known]
        ratios = np.array([_occupancy(text) for text in texts])[number]
        occupancy[row[ratios > 0]] = ratios[ratios > 0]
        graphs = np.flatnonzero(stat == _GRAPH)
        columns["graph"][row[graphs]] = [
            int(texts[at]) if texts[at].isdecimal() and len(texts[at]) < _INT64_DIGITS else MISSING
            for at in number[graphs].tolist()
        ]
    if not found:
        return Details({}, None, problems)
    moved = columns["bytes"]
    return Details(
        _launches(columns, occupancy),
        pa.array(moved, pa.int64(), mask=moved == MISSING) if (moved != MISSING).any() else None,
        problems,
    )


_COLUMNS = (
    *("gridx", "gridy", "gridz", "blockx", "blocky", "blockz", "registers", "static", "dynamic", "bytes", "graph"),
)
_NAMES = {
    "regs": "registers", "static_shared": "static", "group_mem": "static", "dynamic_shared": "dynamic",
    "size": "bytes", "num_bytes": "bytes",
}  # fmt: skip


def _read_text(text: str) -> dict[str, int]:
    found = {_NAMES[name]: int(number) for name, number in _NUMBER.findall(text)}
    for name, *three in _THREE.findall(text):
        found |= {f"{name}{axis}": int(number) for axis, number in zip("xyz", three, strict=True)}
    if found.get("registers", 0) > _MOST_REGISTERS:
        return {name: number for name, number in found.items() if name not in ("registers", "static", "dynamic")}
    return found


def _occupancy(text: str) -> float:
    """Share of the threads that fit; 0 where the profiler did not work it out."""
    match = _OCCUPANCY.search(text)
    try:
        return float(match[1]) / 100 if match else 0.0
    except ValueError:
        return 0.0


def _launches(columns: Mapping[str, Int64s], occupancy: NDArray[np.float64]) -> Mapping[str, Any]:
    static, dynamic = columns["static"], columns["dynamic"]
    rows = np.flatnonzero((columns["gridx"] != MISSING) | (columns["graph"] != MISSING))
    of = {name: column[rows] for name, column in columns.items()}
    shared = np.where(dynamic == MISSING, static, np.where(static == MISSING, dynamic, static + dynamic))[rows]
    nothing = np.full(len(rows), MISSING, np.int64)
    found = launch_columns(
        rows,
        grid=[of[f"grid{axis}"] for axis in "xyz"],
        block=[of[f"block{axis}"] for axis in "xyz"],
        registers=of["registers"],
        shared_bytes=shared,
        graph=[of["graph"], nothing],
    )
    ratio = occupancy[found["span"]]
    return {**found, "occupancy_ratio": pa.array(ratio, pa.float64(), mask=np.isnan(ratio))}


@compiled()
def _collect(data, start, end, keys, which):
    """Stats of some ids of the events of a line: XLine has events in field 4, XEvent stats in field 4."""
    size = 0
    event = np.empty(256, np.int64)
    stat, kind, value, length = (np.empty_like(event), np.empty_like(event), np.empty_like(event), np.empty_like(event))
    pos, state, ordinal = start, INTACT, 0
    while pos < end and state == INTACT:
        number, wire, at, content, pos, state = read_field(data, pos, end)
        if number != 4 or wire != LENGTH:
            continue
        inner, stop, inside = at, at + content, INTACT
        while inner < stop and inside == INTACT:
            field, form, where, extent, inner, inside = read_field(data, inner, stop)
            if field != 4 or form != LENGTH:
                continue
            place, last, whole = where, where + extent, INTACT
            key = np.int64(-1)
            found, held, held_size = 0, np.int64(0), np.int64(0)
            while place < last and whole == INTACT:
                part, shape, given, long, place, whole = read_field(data, place, last)
                if part == 1 and shape != LENGTH:
                    key = given
                elif 2 <= part <= 7 and (shape == LENGTH) == (part in (5, 6)):
                    found, held, held_size = part, given, long
            slot = np.searchsorted(keys, key)
            if slot == len(keys) or keys[slot] != key or found in (0, 2, 6):
                continue
            if size == len(event):
                event = np.concatenate((event, np.empty_like(event)))
                stat = np.concatenate((stat, np.empty_like(stat)))
                kind = np.concatenate((kind, np.empty_like(kind)))
                value = np.concatenate((value, np.empty_like(value)))
                length = np.concatenate((length, np.empty_like(length)))
            event[size], stat[size], kind[size] = ordinal, which[slot], found
            value[size], length[size] = held, held_size
            size += 1
        ordinal += 1
    return event[:size], stat[:size], kind[:size], value[:size], length[:size]
