"""Events of one plane in arrays: the loop of `xplane_events` over all its lines, in two threads where that pays.

Memory that the arrays of one reading stage leave to those of the next.

The first touch of a page costs more than what is then done with it: much of a large capture's reading time is the
system's, for handing out pages. What one stage needs and the next does not therefore stands where the next one's will.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phasepoint.core.arrays import Bytes, Int64s
from phasepoint.sources.xplane.events import LIMIT_PS, SLOTS, decode_lines
from phasepoint.sources.xplane.planes import Plane

_ALIGNMENT = 64  # bytes of a cache line


class Scratch:
    """Arrays one behind the other in one piece of memory, of which what is untouched takes none.

    Args:
        size_bytes: its size; arrays for which there is no room left get memory of their own.
    """

    def __init__(self, size_bytes: int) -> None:
        self._memory = np.empty(size_bytes, np.uint8)
        self._used_bytes = 0

    def take(self, size: int, dtype: DTypeLike) -> NDArray[Any]:
        """An array, `[size]`, that is not filled."""
        begin = self._used_bytes
        end = begin + size * np.dtype(dtype).itemsize
        if end > len(self._memory):
            return np.empty(size, dtype)
        self._used_bytes = -(-end // _ALIGNMENT) * _ALIGNMENT
        return self._memory[begin:end].view(dtype)

    def reset(self) -> None:
        """Give the memory out again from its beginning; what was taken before must not be used any more."""
        self._used_bytes = 0


_LUT_SIZE = 1 << 20
"""Ids below this are looked up in an array; profilers count from 1, so only damaged bytes hold larger ones."""

_MANY_EVENTS = 100_000
"""From so many events on, a second thread pays."""


@dataclass(frozen=True)
class PlaneEvents:
    """Events of one plane.

    Attributes:
        first: `[n_lines + 1]` where each line's events begin; `first[i] : first[i + 1]` are those of line i.
        kind: `[n_events]` index into `kinds`.
        start_ps: `[n_events]` start, counted like the lines' time stamps.
        dur_ps: `[n_events]` duration.
        link: `[n_events]` correlation id with HAS_CORRELATION, run id with HAS_RUN.
        kinds: `[n_kinds, 7]` what events of a kind share: see `KIND_COLUMNS`.
        marks: `[n_marks, 2]` events with a step number: event, number.
        device_times: `[n, 2]` events placed by the device's own clock, which gave their duration too: event, start in
            ps.
        open: `[n, 2]` ops not seen to complete on their thread: event, id under which completion is announced.
        ends: `[n, 2]` completions not matched on the spot: id, time in ps.
        entries: `[n, 2]` first op of each execution on a line: event, id of the task in which it ran; below 0 if in
            none.
        records: `[n, 3]` tasks handed over: id, line, time in ps.
        ignored: bookkeeping events.
        dropped: events that could not be read or placed.
        damaged: lines whose bytes are damaged: `(line, offset)`.
    """

    first: Int64s
    kind: NDArray[np.int32]
    start_ps: Int64s
    dur_ps: Int64s
    link: Int64s
    kinds: Int64s
    marks: Int64s
    device_times: Int64s
    open: Int64s
    ends: Int64s
    entries: Int64s
    records: Int64s
    ignored: int
    dropped: int
    damaged: list[tuple[int, int]]


KIND_COLUMNS = ("meta", "op", "op_bytes", "program", "ordinal", "flags", "level")
"""Of a kind: index of the metadata; id of the text that names its HLO op, or that text's offset where `op_bytes` is
not 0; program id; device ordinal; which of these are known (HAS_…); the level of its line."""


def decode_events(
    data: Bytes,
    plane: Plane,
    *,
    base_ns: int,
    meta_class: NDArray[np.int8],
    line_level: NDArray[np.int8],
    scratch: Scratch,
) -> PlaneEvents:
    """Decode every event of a plane.

    Args:
        data: the whole XSpace.
        plane: the plane.
        base_ns: what the lines' time stamps count from: 0, or a Unix time in ns where they are absolute.
        meta_class: `[n_metadata]` KEEP, IGNORE, …
        line_level: `[n_lines]` a number for the level of the line's events; below 0 for lines that repeat what others
            hold: their events are counted as ignored.
        scratch: memory for the second thread's events, until they stand behind the first's.
    """
    bounds = np.array([(line.start, line.end) for line in plane.lines], np.int64).reshape(-1, 2)
    base_ps = np.array([_line_base_ps(line.timestamp_ns, base_ns) for line in plane.lines], np.int64)
    meta = _id_table({int(key): i for i, key in enumerate(plane.meta_id)})
    slot = _id_table({key: SLOTS[name] for key, name in plane.stat_name.items() if name in SLOTS})
    tables = (*meta, meta_class, *slot)
    counts = np.array([line.events for line in plane.lines], np.int64)
    cuts = _cut_lines(counts)
    rows = np.append(0, np.cumsum(counts))[cuts]
    outputs = [_allocate(int(rows[-1]))]
    if len(cuts) > 2:
        outputs.append(_allocate(int(rows[2] - rows[1]), scratch))

    def read(part: int, careful: bool | None = None) -> tuple[list[NDArray], Int64s, Int64s]:  # type: ignore[type-arg]
        lines = slice(cuts[part], cuts[part + 1])
        address = data.ctypes.data
        arguments = (data, address, bounds[lines], base_ps[lines], line_level[lines], tables, outputs[part])
        arrays, found, stops = decode_lines(*arguments, careful)
        if found[2] and careful is None:  # written by another serializer, or damaged
            return read(part, True)
        return list(arrays), found, stops

    if len(cuts) == 2:
        parts = [read(0)]
    else:
        with ThreadPoolExecutor(1) as other:
            second = other.submit(read, 1)
            parts = [read(0), second.result()]
    arrays = _append_part(parts[0][0], parts[1][0], outputs[0], cuts[1]) if len(parts) > 1 else parts[0][0]
    ignored, dropped, _ = sum(found for _, found, _ in parts).tolist()  # type: ignore[union-attr]
    stops = np.concatenate([stops for _, _, stops in parts])
    return PlaneEvents(*(*arrays, ignored, dropped, [(int(i), int(stops[i])) for i in np.flatnonzero(stops >= 0)]))


def _cut_lines(counts: Int64s) -> list[int]:
    """Where each thread's lines begin, and the end: the halves by events, or all in one."""
    half = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2)) + 1
    halves = counts.sum() >= _MANY_EVENTS and half < len(counts)
    return [0, half, len(counts)] if halves else [0, len(counts)]


def _allocate(capacity: int, scratch: Scratch | None = None) -> tuple[NDArray, ...]:  # type: ignore[type-arg]
    """Room for every event; here, not in the compiled loop: NumPy asks for huge pages, which halves the first read."""
    take = np.empty if scratch is None else scratch.take
    return (
        *(take(capacity, dtype) for dtype in (np.int32, np.int64, np.int64, np.int64)),
        *(np.empty((capacity, 2), np.int64) for _ in range(5)),
        np.empty((capacity, 3), np.int64),
    )


def _append_part(
    one: list[NDArray],  # type: ignore[type-arg]
    two: list[NDArray],  # type: ignore[type-arg]
    outputs: Sequence[NDArray],  # type: ignore[type-arg]
    line: int,
) -> list[NDArray]:  # type: ignore[type-arg]
    """The second thread's events behind the first's; it counted events, kinds and lines from 0."""
    n_events, n_kinds = len(one[1]), len(one[5])
    two[1] += np.int32(n_kinds)
    for place in (6, 7, 8, 10):
        two[place][:, 0] += n_events
    two[11][:, 1] += line
    joined = [np.concatenate((one[0][:-1], two[0] + n_events))]
    places = {1: 0, 2: 1, 3: 2, 4: 3, 6: 4, 7: 5, 8: 6, 9: 7, 10: 8, 11: 9}
    for i in range(1, 12):
        if i == 5:
            joined.append(np.concatenate((one[5], two[5])))
            continue
        output, low, size = outputs[places[i]], len(one[i]), len(two[i])
        output[low : low + size] = two[i]
        joined.append(output[: low + size])
    return joined


def _line_base_ps(timestamp_ns: int, base_ns: int) -> int:
    """A line's time in ps, pushed out of range (so that its events are dropped) where it does not fit."""
    base_ps = (timestamp_ns - base_ns) * 1000
    return base_ps if abs(base_ps) < LIMIT_PS else 2 * LIMIT_PS - 1


def _id_table(index_of: Mapping[int, int]) -> tuple[NDArray[np.int32], Int64s, NDArray[np.int32]]:
    """Id → index: an array for small ids, sorted pairs for the others; -1 is unknown.

    An id of one byte that is in neither is -1 without looking further."""
    small = {key: index for key, index in index_of.items() if 0 <= key < _LUT_SIZE}
    large = sorted((key, index) for key, index in index_of.items() if not 0 <= key < _LUT_SIZE)
    lut = np.full(max(max(small, default=0) + 1, 256), -1, np.int32)  # any one byte can be looked up
    lut[list(small.keys())] = list(small.values())
    keys = np.array([key for key, _ in large], np.int64)
    return lut, keys, np.array([index for _, index in large], np.int32)
