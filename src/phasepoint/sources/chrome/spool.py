"""SpooledRows of all blocks, kept in memory while they are few, else in a temporary file; read back by slices of time.

Each block's rows are sorted by start, so that a slice of time is one range of each block.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.sources.chrome.rows import order_rows

SLICE_ROWS = 3 << 16
"""SpooledRows of a slice, about: so many are in memory at once."""

_SAMPLE = 256  # a choice: every 256th start is kept, to tell where slices end
_FIELDS = (
    ("start", np.int64),
    ("dur", np.int64),
    ("correlation", np.int64),
    ("kind", np.int32),
    ("track", np.int32),
    ("shape", np.int32),
    ("keys", np.int64),
    ("values", np.int64),
)
_ROW_FIELDS = 6  # the first fields have a value a row, the others a value an argument


@dataclass(frozen=True, eq=False)
class SpooledRows:
    """SpooledRows by start, the longest first, with their arguments.

    Attributes:
        start, dur: `[n]` ps.
        correlation: `[n]` ids, -1 where there is none.
        kind, track, shape: `[n]` numbers of the file's tables; shape -1 where there is none.
        keys: `[m]` row × 256 + slot of each argument, those of one row together.
        values: `[m]` their values.
    """

    start: Int64s
    dur: Int64s
    correlation: Int64s
    kind: NDArray[np.int32]
    track: NDArray[np.int32]
    shape: NDArray[np.int32]
    keys: Int64s
    values: Int64s


class Spool:
    """Takes the rows of blocks, and gives slices of time.

    Args:
        slice_rows: rows of a slice, about.
    """

    def __init__(self, slice_rows: int = SLICE_ROWS) -> None:
        self.n_rows = 0
        self._slice_rows = slice_rows
        self._blocks: list[tuple[Any, ...]] = []  # arrays, or (offset, length) in the file
        self._samples: list[Int64s] = []
        self._file: Any = None
        self._size = 0

    def close(self) -> None:
        """Let go of everything."""
        if self._file is not None:
            self._file.close()
        self._blocks = []

    def add(self, rows: SpooledRows) -> None:
        """Take some rows, sorted by start."""
        if not len(rows.start):
            return
        arrays = tuple(np.ascontiguousarray(getattr(rows, name), kind) for name, kind in _FIELDS)
        self.n_rows += len(rows.start)
        self._samples.append(rows.start[:: min(_SAMPLE, max(len(rows.start) // 8, 1))].copy())
        self._blocks.append(arrays)
        if self._file is None and self.n_rows > self._slice_rows:
            self._file = tempfile.TemporaryFile(prefix="phasepoint-")  # noqa: SIM115 — closed in close
            self._blocks = [self._write(block) for block in self._blocks]
        elif self._file is not None:
            self._blocks[-1] = self._write(arrays)

    def slices(self) -> Iterator[tuple[SpooledRows, int | None]]:
        """Slices in the order of time, each with the instant at which the next begins (None for the last).

        Every row whose start lies before that instant is in a slice up to this one.
        """
        cuts = self._cuts()
        places = [self._places(block, cuts) for block in self._blocks]
        for k in range(len(cuts) + 1):
            parts = [
                self._part(block, row_place[k : k + 2], key_place[k : k + 2])
                for block, (row_place, key_place) in zip(self._blocks, places, strict=True)
            ]
            yield _join(parts), int(cuts[k]) if k < len(cuts) else None

    def _write(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        where = []
        for array in arrays:
            where.append((self._size, len(array)))
            self._file.write(memoryview(array).cast("B") if len(array) else b"")
            self._size += array.nbytes
        return tuple(where)

    def _read(self, block: tuple[Any, ...], field: int, low: int, high: int) -> NDArray[Any]:
        stored = block[field]
        if not isinstance(stored, tuple):
            return np.asarray(stored[low:high])
        kind = np.dtype(_FIELDS[field][1])
        data = os.pread(self._file.fileno(), (high - low) * kind.itemsize, stored[0] + low * kind.itemsize)
        return np.frombuffer(data, kind)

    def _length(self, block: tuple[Any, ...], field: int) -> int:
        stored = block[field]
        return int(stored[1]) if isinstance(stored, tuple) else len(stored)

    def _cuts(self) -> Int64s:
        if self._file is not None:
            self._file.flush()
        n_slices = -(-self.n_rows // self._slice_rows)
        if n_slices <= 1:
            return np.empty(0, np.int64)
        samples = np.sort(np.concatenate(self._samples))
        places = np.arange(1, n_slices) * len(samples) // n_slices
        return np.unique(samples[places])

    def _places(self, block: tuple[Any, ...], cuts: Int64s) -> tuple[list[int], list[int]]:
        """Where each slice's rows and arguments begin in a block."""
        n_rows, n_keys = self._length(block, 0), self._length(block, _ROW_FIELDS)
        if not len(cuts):
            return [0, n_rows], [0, n_keys]
        rows = [0, *np.searchsorted(self._read(block, 0, 0, n_rows), cuts).tolist(), n_rows]
        keys = self._read(block, _ROW_FIELDS, 0, n_keys) >> 8
        return rows, np.searchsorted(keys, rows).tolist()

    def _part(self, block: tuple[Any, ...], rows: list[int], keys: list[int]) -> tuple[NDArray[Any], ...]:
        found = [self._read(block, field, *rows) for field in range(_ROW_FIELDS)]
        found += [self._read(block, field, *keys) for field in range(_ROW_FIELDS, len(_FIELDS))]
        found[_ROW_FIELDS] = found[_ROW_FIELDS] - (rows[0] << 8)
        return tuple(found)


def _join(parts: list[tuple[NDArray[Any], ...]]) -> SpooledRows:
    """SpooledRows of several blocks as one, in order."""
    filled = [part for part in parts if len(part[0])] or [tuple(np.empty(0, kind) for _, kind in _FIELDS)]
    base = 0
    keys = []
    for part in filled:
        keys.append(part[_ROW_FIELDS] + (base << 8))
        base += len(part[0])
    columns = [np.concatenate([part[i] for part in filled]) for i in range(_ROW_FIELDS)]
    joined, values = np.concatenate(keys), np.concatenate([part[-1] for part in filled])
    order = order_rows(columns[0], columns[1])
    if order is not None:
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        columns = [column[order] for column in columns]
        joined = place[joined >> 8] << 8 | (joined & 255)
    start, dur, correlation, kind, track, shape = columns
    return SpooledRows(start, dur, correlation, kind, track, shape, joined, values)
