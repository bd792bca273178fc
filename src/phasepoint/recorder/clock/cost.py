"""What recording cost, by purpose: the account that the budget is held against and that the run ends with."""

import threading
from typing import Literal, get_args

from msgspec import Struct

Purpose = Literal["entry", "clock", "flush", "start", "slowdown", "stop", "wait", "write", "convert"]
"""What a cost was for.

entry: imports and opening the run. clock: the step clock and the planning of windows. flush: the background thread's
rounds. start, slowdown, stop: a window, on the job's thread. wait: what windows of other ranks held this one up by,
beyond what its own took. write: rendering, compressing and writing its capture.
convert: CPU time of a converter process on this machine.
"""

PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


class RecorderCost(Struct, frozen=True):
    """What recording has cost so far, in picoseconds.

    Wall time on the job's thread and CPU time off it are added up: on a machine whose cores are all busy a second of
    either delays the job by a second, elsewhere the sum is an upper bound.

    Attributes:
        entry_ps, clock_ps, flush_ps, start_ps, slowdown_ps, stop_ps, wait_ps, write_ps, convert_ps: see
            `Purpose`.
        total_ps: their sum.
        elapsed_ps: the recording's length so far.
        windows: windows captured.
    """

    entry_ps: int
    clock_ps: int
    flush_ps: int
    start_ps: int
    slowdown_ps: int
    stop_ps: int
    wait_ps: int
    write_ps: int
    convert_ps: int
    total_ps: int
    elapsed_ps: int
    windows: int

    @property
    def ratio(self) -> float | None:
        """Share of the recording's length that recording cost, 0–1; None before any time has passed."""
        return self.total_ps / self.elapsed_ps if self.elapsed_ps > 0 else None


class CostAccount:
    """Adds costs up, from the job's thread and the flusher's."""

    def __init__(self) -> None:
        self._spent_ps = dict.fromkeys(PURPOSES, 0)
        self._lock = threading.Lock()
        self.windows = 0

    def spend(self, purpose: Purpose, cost_ps: int) -> None:
        """Add one cost. A negative one (a clock's noise) counts as nothing."""
        if cost_ps > 0:
            with self._lock:
                self._spent_ps[purpose] += cost_ps

    def restate(self, purpose: Purpose, cost_ps: int) -> None:
        """Say anew what one purpose cost in all, where what was charged before proved to be too much or too little."""
        with self._lock:
            self._spent_ps[purpose] = max(0, cost_ps)

    def count_window(self) -> None:
        """One more window was captured."""
        self.windows += 1

    @property
    def fixed_ps(self) -> int:
        """What the step clock and flushing cost so far: it goes on whether windows open or not."""
        return self._spent_ps["clock"] + self._spent_ps["flush"]

    @property
    def windows_ps(self) -> int:
        """What windows cost on the job's thread so far."""
        return self._spent_ps["start"] + self._spent_ps["slowdown"] + self._spent_ps["stop"]

    @property
    def total_ps(self) -> int:
        """Everything spent so far."""
        with self._lock:
            return sum(self._spent_ps.values())

    def cost(self, elapsed_ps: int) -> RecorderCost:
        """The account as a value, after `elapsed_ps` of recording."""
        with self._lock:
            spent = dict(self._spent_ps)
        return RecorderCost(
            **{f"{purpose}_ps": cost_ps for purpose, cost_ps in spent.items()},
            total_ps=sum(spent.values()),
            elapsed_ps=elapsed_ps,
            windows=self.windows,
        )
