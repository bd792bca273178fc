"""The bytes of a trace in blocks that end between two events, whatever the file's size; unpacked on the way.

A cut is a guess: a `}`, a comma and an object that begins with a key of events. The scanner finds out whether it was
right: a block that was cut well ends between events.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from isal import igzip_lib, isal_zlib
from numpy.typing import NDArray

from phasepoint.core.errors import SourceError
from phasepoint.core.packing import PackedTooFar, is_packed, most_unpacked
from phasepoint.sources.chrome.json_bytes import PADDING

BLOCK_BYTES = 8 << 20  # a choice: some 25,000 events at a time
MAX_EVENT_BYTES = 32 << 20
"""An event that goes on for longer is taken for damaged; so much is held while its end is looked for."""

_PIECE_BYTES = 1 << 14  # a choice: of packed bytes that are unpacked at once; what is behind a member is copied
_LOOK_BACK_BYTES = 1 << 16  # a choice: some 200 events, of which one ends

NEXT_EVENT = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|args|pid|tid|ts|dur|id)"\s*:)')
"""What stands between two events; the match ends where the second begins."""


@dataclass(frozen=True, eq=False)
class TraceBlock:
    """Some bytes of a trace.

    Attributes:
        data: `[n + PADDING]` the bytes and what may be read behind them.
        size: bytes.
        is_last: whether the file ends with them.
    """

    data: NDArray[np.uint8]
    size: int
    is_last: bool

    def text(self, start: int, end: int | None = None) -> bytes:
        """Some of the bytes."""
        return self.data[start : self.size if end is None else end].tobytes()


class ByteSource(Protocol):
    """Where the bytes come from."""

    def readinto(self, room: memoryview) -> int:
        """Fill some of the room; 0 at the end."""


def block_of(text: bytes, *, is_last: bool) -> TraceBlock:
    """A block of these bytes."""
    data = np.zeros(len(text) + PADDING, np.uint8)
    data[: len(text)] = np.frombuffer(text, np.uint8)
    return TraceBlock(data, len(text), is_last)


def read_blocks(
    source: ByteSource, *, block_bytes: int = BLOCK_BYTES, spare: deque[NDArray[np.uint8]] | None = None
) -> Iterator[TraceBlock]:
    """The bytes of a source, cut where events seem to end; a stretch without such a place is one block however long
    it is, up to `MAX_EVENT_BYTES`.

    Args:
        source: the bytes.
        block_bytes: size of a block, about.
        spare: arrays of blocks that are not needed any more: fresh memory costs a third of reading.
    """
    spare = deque() if spare is None else spare
    rest = b""
    while True:
        room = block_bytes if len(rest) < block_bytes // 2 else 2 * len(rest)
        data = _array_of(len(rest) + room + PADDING, spare)
        data[: len(rest)] = np.frombuffer(rest, np.uint8)
        size, is_last = _fill(source, data, len(rest), len(rest) + room)
        if is_last:
            data[size : size + PADDING] = 0
            yield TraceBlock(data, size, True)
            return
        cut = _last_cut(data, size)
        if cut is None and size < MAX_EVENT_BYTES:
            rest = data[:size].tobytes()
            continue
        cut = size if cut is None else cut
        rest = data[cut:size].tobytes()
        yield TraceBlock(data, cut, False)


def _array_of(size: int, spare: deque[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    while spare:
        data = spare.popleft()
        if len(data) >= size:
            return data
    return np.empty(size + size // 8, np.uint8)


def _fill(source: ByteSource, data: NDArray[np.uint8], size: int, full: int) -> tuple[int, bool]:
    view = memoryview(data)  # type: ignore[arg-type]
    while size < full:
        count = source.readinto(view[size:full])
        if not count:
            return size, True
        size += count
    return size, False


def _last_cut(data: NDArray[np.uint8], size: int) -> int | None:
    for begin in (max(size - _LOOK_BACK_BYTES, 0), 0):
        cuts = [found.end() for found in NEXT_EVENT.finditer(data[begin:size].tobytes())]
        if cuts:
            return begin + cuts[-1]
    return None


class PlainBytes:
    """Bytes in memory as a source."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._pos = 0

    def readinto(self, room: memoryview) -> int:
        """Fill the room as far as there are bytes."""
        count = min(len(room), len(self._data) - self._pos)
        room[:count] = self._data[self._pos : self._pos + count]
        self._pos += count
        return count


class FileBytes:
    """A file as a source, without gzip if it is packed; what a truncated one still gives.

    Attributes:
        size: bytes given so far.
        problem: what was wrong with the packing, None where nothing was.
    """

    def __init__(self, path: Path) -> None:
        self.size = 0
        self.problem: str | None = None
        self._path = path
        self._file = path.open("rb", buffering=0)
        self._machine = None
        self._rest = memoryview(b"")
        self._packed_bytes = path.stat().st_size
        head = self._file.read(2)
        self._file.seek(0)
        if is_packed(head):
            self._machine = isal_zlib.decompressobj(31)

    def __enter__(self) -> "FileBytes":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def readinto(self, room: memoryview) -> int:
        """Fill some of the room.

        Raises:
            SourceError: it cannot be read, nothing of it can be unpacked, or more than a trace can hold.
        """
        try:
            count = self._file.readinto(room) if self._machine is None else self._unpack(room)
        except OSError as error:
            raise SourceError(f"{self._path}: cannot be read: {error.strerror or error}") from error
        self.size += count
        if self._machine is not None and self.size > most_unpacked(self._packed_bytes):
            raise PackedTooFar(str(self._path), self._packed_bytes)
        return count

    def _unpack(self, room: memoryview) -> int:
        while not len(self._rest):
            if not self._more():
                return 0
        count = min(len(room), len(self._rest))
        room[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _more(self) -> bool:
        """Unpack some more; False at the end, or where the rest cannot be unpacked."""
        machine = self._machine
        if machine is None or self.problem is not None:
            return False
        try:
            if machine.eof:
                rest = machine.unused_data
                if len(rest) < 2:  # too few to tell a member by
                    rest += self._file.read(_PIECE_BYTES)
                if not is_packed(rest):
                    return False
                self._machine = machine = isal_zlib.decompressobj(31)
                packed = rest
            else:
                packed = machine.unconsumed_tail or self._file.read(_PIECE_BYTES)
            if not packed:
                self.problem = "the gzip data is cut off"
            else:
                self._rest = memoryview(machine.decompress(packed, BLOCK_BYTES))
        except (igzip_lib.IsalError, EOFError) as error:  # type: ignore[misc]  # its stub says a value
            self.problem = f"gzip data that cannot be unpacked: {error}"
        if self.problem is not None and not self.size and not len(self._rest):
            raise SourceError(f"{self._path}: {self.problem}")
        return self.problem is None
