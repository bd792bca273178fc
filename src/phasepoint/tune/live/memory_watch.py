"""Watches the memory of the job's process tree while loaders are being tried, on a thread of its own."""

import threading
from collections.abc import Callable

from phasepoint.tune.limits import tree_bytes

INTERVAL_S = 0.2
"""Between two looks. One takes 1 to 5 ms of CPU time for each process with some GiB of memory."""

QUIET_INTERVAL_S = 5.0
"""Where no trial runs."""

FULL_RATIO = 0.95
"""Part of the limit at which workers are given up, so that the limit itself is never passed."""


class MemoryWatch:
    """Samples the tree's memory.

    Args:
        limit_bytes: what it may be at most.
        read_bytes: gives it.

    Attributes:
        most_bytes: the largest sample.
        last_bytes: the last one; None before the first.
    """

    def __init__(self, limit_bytes: int, read_bytes: Callable[[], int] = tree_bytes) -> None:
        self.limit_bytes = limit_bytes
        self.most_bytes = 0
        self.last_bytes: int | None = None
        self._read_bytes = read_bytes
        self._hurry = threading.Event()
        self._ended: threading.Event | None = None
        self._closely = False

    @property
    def is_full(self) -> bool:
        """Whether something must be given up."""
        return self.last_bytes is not None and self.last_bytes > FULL_RATIO * self.limit_bytes

    @property
    def room_bytes(self) -> int:
        """What may be added to the last sample before something must be given up."""
        return max(int(FULL_RATIO * self.limit_bytes) - (self.last_bytes or 0), 0)

    def look(self) -> int:
        """Sample now."""
        seen_bytes = self._read_bytes()
        self._note(seen_bytes)
        return seen_bytes

    def start(self, *, closely: bool) -> None:
        """Sample in the background from now on; closely while a trial runs."""
        self._closely = closely
        self._hurry.set()
        if self._ended is None:
            self._ended = threading.Event()
            threading.Thread(target=self._watch, args=(self._ended,), name="phasepoint-memory", daemon=True).start()

    def stop(self) -> None:
        """No more samples; the last one says nothing any more."""
        if self._ended is not None:
            self._ended.set()
            self._hurry.set()
        self._ended, self.last_bytes = None, None

    def _watch(self, ended: threading.Event) -> None:
        while not ended.is_set():
            seen_bytes = self._read_bytes()
            if not ended.is_set():
                self._note(seen_bytes)
            self._hurry.clear()
            self._hurry.wait(INTERVAL_S if self._closely else QUIET_INTERVAL_S)

    def _note(self, seen_bytes: int) -> None:
        self.last_bytes = seen_bytes
        self.most_bytes = max(self.most_bytes, seen_bytes)
