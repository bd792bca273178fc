"""One capture window at a time: opening and closing the profiler, and what that cost on the job's thread."""

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass

from phasepoint.core.units import PS_PER_NS
from phasepoint.recorder.cost import CostAccount
from phasepoint.recorder.epoch import Clock
from phasepoint.recorder.planner import Opening
from phasepoint.recorder.session import PendingCapture, ProfilerBusyError, ProfilerSession

SOFT_LIMIT_NS = 2_000_000_000
"""A window that has been open for so long closes at the next step boundary, however few steps it has."""

HARD_LIMIT_NS = 10_000_000_000
"""A window whose step does not end is closed by the watchdog after this, or after three times a typical step."""


@dataclass(frozen=True)
class CapturedWindow:
    """A window whose profiler session was closed; the flusher writes it.

    Attributes:
        window: its number.
        first_step, last_step: steps captured in full; last below first where none was.
        start_ns, end_ns: when capture was on.
        opening: why.
        start_ps, stop_ps: cost of opening and closing on the job's thread.
        slowdown_ps: what was charged of the captured steps' excess over their neighbours (`WindowRunner._charge`);
            None where there were none to compare with.
        capture: gives the raw bytes.
    """

    window: int
    first_step: int
    last_step: int
    start_ns: int
    end_ns: int
    opening: Opening
    start_ps: int
    stop_ps: int
    slowdown_ps: int | None
    capture: PendingCapture


@dataclass(frozen=True)
class LostWindow:
    """A window that could not be opened or kept.

    Attributes:
        why: as in the `gaps` table: profiler-busy or lost-window.
        start_ns, end_ns: when it was, or should have been, on.
        first_step: first step concerned.
        reason: what happened, in one sentence.
    """

    why: str
    start_ns: int
    end_ns: int
    first_step: int
    reason: str


@dataclass(frozen=True)
class _Open:
    window: int
    first_step: int
    start_ns: int
    opening: Opening
    start_ps: int
    hard_limit_ns: int


class WindowRunner:
    """Opens and closes windows. The job's thread calls everything but `expire`, which is the watchdog's.

    Args:
        session: the profiler.
        clock: where times come from.
        account: what windows cost.
        max_steps: steps in a window.
        until_step: None; or the step before which every window ends. Such windows were asked for and take as many
            steps and as long as that needs.

    Attributes:
        is_open: whether a window is open.
        lost: windows lost so far and not taken yet.
    """

    def __init__(
        self,
        session: ProfilerSession,
        clock: Clock,
        account: CostAccount,
        *,
        max_steps: int,
        until_step: int | None = None,
    ) -> None:
        self.is_open = False
        self.lost: list[LostWindow] = []
        self._session = session
        self._clock = clock
        self._account = account
        self._max_steps = max_steps
        self._until_step = until_step
        self._count = 0
        self._open: _Open | None = None
        self._annotation: AbstractContextManager[object] | None = None
        self._busy: LostWindow | None = None
        self._excess_ns = 0
        self._charged_ns = 0
        self._lock = threading.Lock()

    def open(self, step: int, opening: Opening, *, typical_step_ns: int) -> bool:
        """Open a window before `step`; False where somebody else's profiler is running.

        The wait for the device's backlog is not counted as a cost: that work had to be done anyway.
        """
        asked_ns = self._clock.now_ns()
        if self._session.busy():
            self._lose_busy(asked_ns, step, "another profiler session was running")
            return False
        self._session.drain()
        begin_ns = self._clock.now_ns()
        try:
            self._session.start(with_programs=opening.with_programs)
        except ProfilerBusyError as error:
            self._lose_busy(asked_ns, step, str(error))
            return False
        start_ns = self._clock.now_ns()
        start_ps = self._spend_start((start_ns - begin_ns) * PS_PER_NS)
        hard_limit_ns = max(HARD_LIMIT_NS, 3 * typical_step_ns)
        with self._lock:
            self._open = _Open(self._count, step, start_ns, opening, start_ps, hard_limit_ns)
            self.is_open = True
        self._count += 1
        self._end_busy()
        return True

    @property
    def in_step(self) -> bool:
        """Whether a step's annotation is open."""
        return self._annotation is not None

    def enter_step(self, step: int) -> None:
        """Mark the beginning of a step in the capture."""
        self._annotation = self._session.step_annotation(step)
        self._annotation.__enter__()

    def leave_step(self) -> None:
        """Mark the end of the step in the capture."""
        annotation, self._annotation = self._annotation, None
        if annotation is not None:
            annotation.__exit__(None, None, None)

    def is_due(self, next_step: int, now_ns: int) -> bool:
        """Whether the open window has its steps, or has been open for long enough."""
        window = self._open
        if window is None:
            return False
        if self._until_step is not None:
            return next_step >= self._until_step
        return next_step - window.first_step >= self._max_steps or now_ns - window.start_ns >= SOFT_LIMIT_NS

    def close(self, next_step: int, excess_ns: int | None) -> CapturedWindow | None:
        """Close the open window; `next_step` is the first step it did not capture in full.

        Args:
            next_step: number of the open or next step.
            excess_ns: how much longer the captured steps took than their neighbours, below 0 where they were faster;
                None where that is not known.

        Returns:
            The window, or None where there was none, or where the profiler turned out not to be ours.
        """
        with self._lock:
            window, self._open = self._open, None
            self.is_open = False
        if window is None:
            return None
        self.leave_step()
        waiting_ns = self._clock.now_ns()
        self._session.drain()
        begin_ns = self._clock.now_ns()
        try:
            capture = self._session.stop()
        except ProfilerBusyError as error:
            self._lose_busy(window.start_ns, window.first_step, str(error))
            return None
        end_ns = self._clock.now_ns()
        stop_ps = (end_ns - begin_ns) * PS_PER_NS
        self._account.spend("stop", stop_ps)
        slowdown_ps = None
        if excess_ns is not None:
            slowdown_ps = self._charge(excess_ns + begin_ns - waiting_ns) * PS_PER_NS
            self._account.spend("slowdown", slowdown_ps)
        return CapturedWindow(
            window.window,
            window.first_step,
            next_step - 1,
            window.start_ns,
            end_ns,
            window.opening,
            window.start_ps,
            stop_ps,
            slowdown_ps,
            capture,
        )

    def expire(self, now_ns: int) -> None:
        """Close the profiler of a window whose step does not end. Called on the flusher's thread.

        What it captured is dropped: a capture without a complete step is of no use, and a long one may be large.
        """
        with self._lock:
            window = self._open
            if self._until_step is not None or window is None or now_ns - window.start_ns < window.hard_limit_ns:
                return
            if not self._session.stops_anywhere:
                return  # the next hook on the job's thread closes it
            self._open = None
            self.is_open = False
        self._session.stop()
        self.lost.append(
            LostWindow(
                "lost-window",
                window.start_ns,
                self._clock.now_ns(),
                window.first_step,
                "the step did not end while the window was open; the watchdog closed the profiler",
            )
        )

    def abandon(self) -> None:
        """Make sure that no profiler of ours is left running. Called when the recorder switches itself off."""
        with self._lock:
            window, self._open = self._open, None
            self.is_open = False
        if window is not None:
            self.lost.append(
                LostWindow("lost-window", window.start_ns, window.start_ns, window.first_step, "the recorder was off")
            )
            self._session.stop()

    def take_lost(self, *, final: bool = False) -> list[LostWindow]:
        """Take the windows lost since the last call; a stretch of a busy profiler once it has ended, or if `final`."""
        if final:
            self._end_busy()
        taken, self.lost = self.lost, []
        return taken

    def _charge(self, excess_ns: int) -> int:
        """The part of a window's excess that is charged: what the excesses so far, faster ones too, add up to anew.

        A few steps on a busy machine differ from their neighbours by chance, in both directions. Charging only the
        slower ones would add that noise up; the running sum lets it cancel, and never falls.
        """
        self._excess_ns += excess_ns
        charged_ns = max(0, self._excess_ns - self._charged_ns)
        self._charged_ns += charged_ns
        return charged_ns

    def _lose_busy(self, start_ns: int, step: int, reason: str) -> None:
        """Windows that fail one after another because of the same foreign session make one stretch."""
        if self._busy is not None:
            start_ns, step, reason = self._busy.start_ns, self._busy.first_step, self._busy.reason
        self._busy = LostWindow("profiler-busy", start_ns, self._clock.now_ns(), step, reason)

    def _end_busy(self) -> None:
        busy, self._busy = self._busy, None
        if busy is not None:
            self.lost.append(busy)

    def _spend_start(self, cost_ps: int) -> int:
        self._account.spend("start", cost_ps)
        return cost_ps
