"""A trace in Chrome's JSON, read once from beginning to end in bounded memory: its rows are spooled, its facts kept.

What a trace in Chrome's JSON says beside its events: the rank, the devices, from when its times count.

Events that are no JSON: what a forgiving reader can still make of them.
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.errors import SourceError
from phasepoint.core.units import format_counted
from phasepoint.sources.chrome import scan
from phasepoint.sources.chrome.blocks import (
    BLOCK_BYTES,
    MAX_EVENT_BYTES,
    NEXT_EVENT,
    ByteSource,
    TraceBlock,
    block_of,
    read_blocks,
)
from phasepoint.sources.chrome.gather import Gatherer, Scanned, scan_block
from phasepoint.sources.chrome.kinds import Fate, fate_of
from phasepoint.sources.chrome.spool import Spool


class _Literal(str):
    """A number as it was written: a float has no room for nanoseconds since 1970."""

    __slots__ = ()


_DECODER = json.JSONDecoder(strict=False, parse_float=_Literal, parse_int=_Literal)
_VALUE = re.compile(
    r'("(?:name|cat|Call stack|Module Hierarchy|kernel)"\s*:\s*")(.*?)'
    r'(?="\s*(?:,\s*"[^"\\]{1,64}"\s*:|\}\s*[,}\]]|\}\s*$))',
    re.DOTALL,
)
"""A text whose quotes may not be escaped: up to the quote behind which the next key, or the object's end, stands."""
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_BARE_QUOTE = re.compile(r'(?<!\\)((?:\\\\)*)"')


def next_event(text: bytes, start: int) -> int | None:
    """Where the event behind a damaged one at `start` begins; None where there is none."""
    found = NEXT_EVENT.search(text, start + 1)
    return found.end() if found else None


@dataclass(frozen=True)
class Repaired:
    """What could be read of a stretch of text.

    Attributes:
        events: JSON of the events.
        unreadable: stretches that could not be read.
        behind: what stands behind the `]` of the events; None where they go on.
    """

    events: tuple[bytes, ...]
    unreadable: int
    behind: bytes | None


def repair_events(text: bytes) -> Repaired:
    """Read a stretch with at least one damaged event in it.

    Args:
        text: the stretch, from the beginning of the damaged event to the next event.
    """
    plain = text.decode("utf-8", "replace")
    read = _read(plain)
    if read.unreadable:
        again = _read(_escape(plain))
        read = again if again.unreadable < read.unreadable else read
    return read


def _read(text: str) -> Repaired:
    found: list[bytes] = []
    unreadable = place = 0
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        if place >= len(text):
            return Repaired(tuple(found), unreadable, None)
        if text[place] == "]":
            return Repaired(tuple(found), unreadable, text[place + 1 :].encode())
        try:
            value, place = _DECODER.raw_decode(text, place)
            event = _encode(value).encode("utf-8", "replace") if isinstance(value, dict) else None
        except (ValueError, RecursionError):
            event, place = None, len(text)
        if event is None:
            unreadable += 1
        else:
            found.append(event)


def _escape(text: str) -> str:
    """The text with bare quotes in names escaped, and backslashes that escape nothing doubled."""

    def escape(match: re.Match[str]) -> str:
        return match[1] + _BARE_QUOTE.sub(r'\1\\"', match[2])

    return _VALUE.sub(escape, _BAD_ESCAPE.sub(r"\\\\", text))


def _encode(value: Any) -> str:
    """JSON of a decoded value, numbers as they were written."""
    if isinstance(value, _Literal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_encode(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encode, value)) + "]"
    return json.dumps(value)


_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})')
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*"?(\d{1,9})')
_TIMES = re.compile(rb'"ts"\s*:\s*"?(-?\d{1,17})(?!\d)')
_LIMIT_NS = 1 << 62
"""A clock that began later than 2116 is damaged."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class KinetoHead:
    """Facts of a file.

    Attributes:
        rank: of the process, None where the file does not say.
        devices: `gpu:0 NVIDIA H100 80GB HBM3`, …
        base_unix_ns: Unix ns from which its times count; 0 where they are Unix times themselves.
    """

    rank: int | None = None
    devices: tuple[str, ...] = ()
    base_unix_ns: int = 0


def find_events(text: bytes) -> int | None:
    """Where the array of events begins, behind its `[`; None where there is none."""
    begin = len(_BOM) if text.startswith(_BOM) else 0
    stripped = text[begin:].lstrip()
    if stripped[:1] == b"[":
        return len(text) - len(stripped) + 1
    found = _EVENTS.search(text) if stripped[:1] == b"{" else None
    return found.end() if found else None


def is_empty_trace(text: bytes) -> bool:
    """Whether a file without a list of events is whole all the same: an object that has no such key."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and "traceEvents" not in fields


def typical_time_us(text: bytes) -> int:
    """A time among the first events', whole µs; 0 where there is none. Many may stand at 0, or some years away."""
    times = sorted(time for found in _TIMES.findall(text) if (time := int(found)))
    return times[len(times) // 2] if times else 0


def read_head(before: bytes, behind: bytes) -> tuple[KinetoHead, bool]:
    """The facts, and whether the file is whole JSON around its events.

    Args:
        before: what stands before the events, with their `[`.
        behind: what stands behind their `]`.
    """
    is_list = before.strip().removeprefix(_BOM) == b"["
    text = (before + b"]" + behind).removeprefix(_BOM)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        base, rank = _BASE.search(text), _RANK.search(text)
        return KinetoHead(int(rank[1]) if rank else None, (), _base_ns(base[1].decode() if base else None)), False
    if is_list or not isinstance(fields, dict):
        return KinetoHead(), True
    distributed = fields.get("distributedInfo")
    rank_number = whole_number(distributed.get("rank")) if isinstance(distributed, dict) else None
    listed = fields.get("deviceProperties")
    devices = tuple(
        f"gpu:{one['id']} {one['name']}".encode("utf-8", "replace").decode("utf-8")  # an escape may be half a character
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict) and {"id", "name"} <= one.keys()
    )
    base_ns = _base_ns(fields.get("baseTimeNanoseconds"))
    return KinetoHead(rank_number if rank_number is None or rank_number >= 0 else None, devices, base_ns), True


def _base_ns(value: Any) -> int:
    number = whole_number(value)
    return number if number is not None and 0 <= number < _LIMIT_NS else 0


def whole_number(value: Any) -> int | None:
    """An integer given as a number or as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


_MAX_AROUND_BYTES = 64 << 20
"""What stands before or behind the events may be so large."""

TIMELESS_RATIO = 0.01
"""From this share of a file's events on, those that have no time are told beside the accounts, a choice."""

_LOOK_BYTES = 1 << 18  # a choice: some 800 events tell the typical time
_THREADS = 2  # that scan, beside the one that unpacks
_AHEAD = 3  # blocks under way: one more than threads, so that none waits


class KinetoTrace:
    """The rows of a trace and what is known of them.

    Attributes:
        gatherer: kinds, tracks and texts.
        head: what the file says beside its events.
        unreadable: events that could not be read.
        problem: what was wrong with the file, None where nothing was.
        origin_us: whole microseconds from which the rows' times count.
        size: bytes read.
    """

    def __init__(self, source: ByteSource, spool: Spool, *, block_bytes: int = BLOCK_BYTES) -> None:
        self.gatherer = Gatherer()
        self.head = KinetoHead()
        self.unreadable = 0
        self.problem: str | None = None
        self.origin_us = 0
        self.size = 0
        self._spool = spool
        self._damaged_at: int | None = None
        self._behind: bytes | None = None
        self._spare: deque[NDArray[np.uint8]] = deque()
        with ThreadPoolExecutor(_THREADS + 1) as pool:
            blocks = _ahead(pool, read_blocks(source, block_bytes=block_bytes, spare=self._spare))
            first = self._find_events(blocks)
            if first is not None:
                self._scan(pool, first, blocks)
        self._conclude()

    def add_problem(self, words: str) -> None:
        """Something more that is wrong with the file."""
        self.problem = "; ".join(filter(None, (self.problem, words)))

    @property
    def found(self) -> int:
        """Events in the file."""
        used, lost = self.gatherer.counts
        return sum(used) + sum(lost) + self.unreadable

    @property
    def spans(self) -> int:
        """Events that become spans."""
        used, _ = self.gatherer.counts
        pairs = zip(self.gatherer.kinds, used, strict=True)
        return sum(count for event, count in pairs if fate_of(event) in (Fate.SPAN, Fate.BEGIN))

    def _find_events(self, blocks: Iterator[TraceBlock]) -> TraceBlock | None:
        """The first block of events; what stands before them is kept. None where the file has no events at all."""
        text = b""
        for block in blocks:
            text += block.text(0)
            start = find_events(text)
            if start is not None:
                self._before = text[:start]
                self.size = start
                self.origin_us = typical_time_us(text[start : start + _LOOK_BYTES])
                return block_of(text[start:], is_last=block.is_last)
            if len(text) > _MAX_AROUND_BYTES:
                break
        self._before, self.size = text, len(text)
        if not is_empty_trace(text):
            raise SourceError(f"no Kineto trace in {len(text)} bytes: it has no list of events (traceEvents)")
        return None

    def _scan(self, pool: ThreadPoolExecutor, first: TraceBlock, blocks: Iterator[TraceBlock]) -> None:
        """Scan blocks side by side, and take them in their order."""
        waiting: deque[tuple[TraceBlock, Future[Scanned]]] = deque()
        rest = b""

        def submit(block: TraceBlock) -> None:
            waiting.append((block, pool.submit(scan_block, block, 0, self.origin_us)))

        submit(first)
        more = True
        while waiting:
            while more and len(waiting) < _AHEAD:
                following = next(blocks, None)
                more = following is not None
                if following is not None:
                    submit(following)
            block, future = waiting.popleft()
            if self._behind is not None:
                self._behind += block.text(0)[: _MAX_AROUND_BYTES - len(self._behind)]
                self.size += block.size
                continue
            scanned = future.result()
            if rest:  # the block was not cut between events: scan it again with what was left of the one before
                future.cancel()
                block = block_of(rest + block.text(0), is_last=block.is_last)
                scanned = scan_block(block, 0, self.origin_us)
            rest = self._take(block, scanned)
            self.size += block.size - len(rest)
            self._spare.append(block.data)

    def _take(self, block: TraceBlock, scanned: Scanned) -> bytes:
        """Take a block's rows; what is left of it for the next one."""
        while True:
            for piece in scanned.pieces:
                self._spool.add(self.gatherer.rows_of(piece))
            stop = scanned.stop
            if scanned.state == scan.END:
                self._behind = block.text(stop)
                return b""
            if stop >= block.size:
                return b""
            text = block.text(stop)
            following = next_event(text, 0) if scanned.state == scan.BAD else None
            if following is None and not block.is_last and len(text) < MAX_EVENT_BYTES:
                return text
            self._repair(text[:following], at=self.size + stop)
            if following is None or self._behind is not None:
                if self._behind is not None and following is not None:
                    self._behind += text[following:]
                return b""
            scanned = scan_block(block, stop + following, self.origin_us)

    def _repair(self, text: bytes, *, at: int) -> None:
        """Read damaged events as far as that goes."""
        if self._damaged_at is None:
            self._damaged_at = at
        repaired = repair_events(text)
        self.unreadable += repaired.unreadable
        self._behind = repaired.behind
        if repaired.events:
            scanned = scan_block(block_of(b",".join(repaired.events) + b",", is_last=True), 0, self.origin_us)
            for piece in scanned.pieces:
                self._spool.add(self.gatherer.rows_of(piece))

    def _conclude(self) -> None:
        is_list = self._before.strip().endswith(b"[") and b"{" not in self._before
        ended = self._behind is not None or not self._before.rstrip().endswith(b"[")
        whole = True
        if self._before.rstrip().endswith(b"["):
            self.head, whole = read_head(self._before, self._behind or b"")
        if self.gatherer.timeless > TIMELESS_RATIO * self.found:
            self.add_problem(
                f"{self.gatherer.timeless:,} of {format_counted(self.found, 'event')} have no time and are left out; "
                "PyTorch writes 0 for what GPUs did if another profiling session ends before a trace is exported: "
                "export each trace right after its session"
            )
        whole = whole or (is_list and not ended)  # the format lets a list end without its `]`
        if self._damaged_at is None and whole:
            return
        where = "it ends before its end" if not ended else "what stands around the events is no JSON"
        if self._damaged_at is not None:
            where = f"from byte {self._damaged_at} on"
        read = self.found - self.unreadable
        self.add_problem(f"damaged JSON ({where}); {read} events were read, {self.unreadable} could not be")


def _ahead(pool: ThreadPoolExecutor, blocks: Iterator[TraceBlock]) -> Iterator[TraceBlock]:
    """The blocks, each read while the one before is worked on."""
    future = pool.submit(next, blocks, None)
    while (block := future.result()) is not None:
        future = pool.submit(next, blocks, None)
        yield block
