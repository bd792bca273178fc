"""A trace in Chrome's JSON, read once from beginning to end in bounded memory: its rows are spooled, its facts kept."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.errors import SourceError
from phasepoint.sources import kineto_scan as scan
from phasepoint.sources.kineto_blocks import BLOCK_BYTES, MAX_EVENT_BYTES, Block, ByteSource, block_of, read_blocks
from phasepoint.sources.kineto_gather import Gatherer, Scanned, scan_block
from phasepoint.sources.kineto_head import KinetoHead, find_events, is_empty_trace, read_head, typical_time_us
from phasepoint.sources.kineto_kinds import Fate, fate_of
from phasepoint.sources.kineto_repair import next_event, repair_events
from phasepoint.sources.kineto_spool import Spool

_MAX_AROUND_BYTES = 64 << 20
"""What stands before or behind the events may be so large."""

_LOOK_BYTES = 1 << 18
_THREADS = 2
_AHEAD = 3


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

    def _find_events(self, blocks: Iterator[Block]) -> Block | None:
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

    def _scan(self, pool: ThreadPoolExecutor, first: Block, blocks: Iterator[Block]) -> None:
        """Scan blocks side by side, and take them in their order."""
        waiting: deque[tuple[Block, Future[Scanned]]] = deque()
        rest = b""

        def submit(block: Block) -> None:
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

    def _take(self, block: Block, scanned: Scanned) -> bytes:
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
        whole = whole or (is_list and not ended)  # the format lets a list end without its `]`
        if self._damaged_at is None and whole:
            return
        where = "it ends before its end" if not ended else "what stands around the events is no JSON"
        if self._damaged_at is not None:
            where = f"from byte {self._damaged_at} on"
        read = self.found - self.unreadable
        self.problem = f"damaged JSON ({where}); {read} events were read, {self.unreadable} could not be"


def _ahead(pool: ThreadPoolExecutor, blocks: Iterator[Block]) -> Iterator[Block]:
    """The blocks, each read while the one before is worked on."""
    future = pool.submit(next, blocks, None)
    while (block := future.result()) is not None:
        future = pool.submit(next, blocks, None)
        yield block
