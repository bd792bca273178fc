"""One capture window at a time: opening and closing the profiler, and what that cost on the job's thread.

A window begins and ends between two steps, or inside one. `is_due` ends it between two steps; `tend`, which the
flusher calls, begins and ends it inside a step, at moments set beforehand, through `ProfilerSession.interrupt`. Whoever
works on the profiler holds the lock all the while; who finds it taken in the middle of a step lets the matter be and
comes again.

What a profiler captured: bytes in memory, or a file of its own that goes once it was written to the run.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal

from msgspec import Struct

from phasepoint.core.units import PS_PER_NS
from phasepoint.recorder.clock.cost import CostAccount
from phasepoint.recorder.clock.epoch import Clock
from phasepoint.recorder.seam.guard import Guard, guarded, guarded_even_off
from phasepoint.recorder.seam.session import PendingCapture, ProfilerBusyError, ProfilerSession
from phasepoint.recorder.windows.planner import Opening


class FileCapture:
    """A capture that the profiler gives as a file only. Called, it gives the bytes, as every pending capture does.

    Args:
        save: writes the file, and says where it is.
    """

    def __init__(self, save: Callable[[], Path]) -> None:
        self.save = save

    def __call__(self) -> bytes:
        """All bytes at once; the file is removed."""
        path = self.save()
        try:
            return path.read_bytes()
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def capture_content(capture: Callable[[], bytes]) -> Iterator[tuple[bytes | Path, int]]:
    """Render a capture: its content, or the file that holds it until the end of the context; and its size in bytes."""
    if not isinstance(capture, FileCapture):
        content = capture()
        yield content, len(content)
        return
    path = capture.save()
    try:
        yield path, path.stat().st_size
    finally:
        path.unlink(missing_ok=True)


SOFT_LIMIT_NS = 2_000_000_000
"""A window that has been open for so long closes at the next step boundary, however few steps it has."""

FIRST_RETRY_NS, LAST_RETRY_NS = 5_000_000, 100_000_000
"""Between two attempts to interrupt a job that cannot be interrupted now (a backward pass of PyTorch); it doubles."""

EndedBy = Literal["steps", "seconds", "loop", "profiler"]
"""What ended a window: it had its steps (or as much time as those may take); its time inside a step was over; the
loop ended; the user's own profiler began."""


class CapturedWindow(Struct, frozen=True):
    """A window whose profiler session was closed; the flusher writes it.

    Attributes:
        window: its number.
        first_step, last_step: steps captured in full; last below first where none was, and first then is the step
            inside which it was.
        cut_step: the step inside which it began or ended; None where it holds whole steps only.
        ended_by: what ended it.
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
    cut_step: int | None = None
    ended_by: EndedBy = "steps"

    @property
    def held_bytes(self) -> int:
        """Bytes to be ready for while it waits to be written: what was planned with, by the time it was on."""
        plan = self.opening.plan
        if plan is None or not plan.limit_ps:
            return 0
        return int(plan.size_bytes * min(1.0, (self.end_ns - self.start_ns) * PS_PER_NS / plan.limit_ps))


class LostWindow(Struct, frozen=True):
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


class _Open(Struct, frozen=True):
    window: int
    first_step: int
    start_ns: int
    opening: Opening
    start_ps: int
    end_ns: int | None
    in_step: bool
    waited_ns: int
    """For the device's backlog, before capture began."""


class _Wanted(Struct, frozen=True):
    """A window that is to begin inside a step."""

    step: int
    at_ns: int
    opening: Opening


class WindowRunner:
    """Opens and closes windows. The job's thread calls everything but `tend`, which is the flusher's.

    Args:
        session: the profiler.
        clock: where times come from.
        account: what windows cost.
        max_steps: steps in a window.
        until_step: None; or the step before which every window ends. Such windows were asked for and take as many
            steps and as long as that needs.
        guard: keeps faults inside a step from the job.

    Attributes:
        is_open: whether a window is open.
        is_idle: whether none is open or is to begin, and none was since the job's thread last set this.
        lost: windows lost so far and not taken yet.
        on_part: called when a window began or ended inside a step, so that the step is captured in part.
        on_cut: called with a window that ended inside a step.
    """

    def __init__(
        self,
        session: ProfilerSession,
        clock: Clock,
        account: CostAccount,
        *,
        max_steps: int,
        until_step: int | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.guard = Guard() if guard is None else guard
        self.is_open = False
        self.is_idle = True
        self.lost: list[LostWindow] = []
        self.on_part: Callable[[], object] = lambda: None
        self.on_cut: Callable[[CapturedWindow], object] = lambda window: None
        self._session = session
        self._clock = clock
        self._account = account
        self._max_steps = max_steps
        self._until_step = until_step
        self._count = 0
        self._open: _Open | None = None
        self._wanted: _Wanted | None = None
        self._step = 0
        self._annotation: AbstractContextManager[object] | None = None
        self._busy: LostWindow | None = None
        self._excess_ns = 0
        self._charged_ns = 0
        self._waited_before_ns: dict[int, int] = {}
        self._retry_ns = FIRST_RETRY_NS
        self._ask_again_ns = 0
        self._opener: int | None = None
        self._lock = threading.Lock()

    def open(self, step: int, opening: Opening) -> bool:
        """Open a window before `step`; False where somebody else's profiler is running.

        The wait for the device's backlog is not counted as a cost here: see `close`.
        """
        self.is_idle = False
        with self._lock:
            self._wanted = None
            return self._start(step, opening, in_step=False)

    def want(self, step: int, at_ns: int, opening: Opening) -> None:
        """Let a window begin inside `step` at a moment, unless the step is over by then."""
        self.is_idle = False
        with self._lock:
            self._wanted = _Wanted(step, at_ns, opening)

    @property
    def is_wanted(self) -> bool:
        """Whether a window is to begin inside the step in progress."""
        return self._wanted is not None

    def forget(self) -> None:
        """The step is over: no window begins inside it any more."""
        with self._lock:
            self._wanted = None

    @property
    def in_step(self) -> bool:
        """Whether a step's annotation is open."""
        return self._annotation is not None

    def enter_step(self, step: int) -> None:
        """Mark the beginning of a step in the capture."""
        with self._lock:
            self._step = step
            if self._open is not None:
                self._annotation = self._session.step_annotation(step)
                self._annotation.__enter__()

    @property
    def opened(self) -> tuple[int, int]:
        """First step of the open window, and how long the device was waited for before it began."""
        return (0, 0) if self._open is None else (self._open.first_step, self._open.waited_ns)

    def leave_step(self) -> None:
        """Mark the end of the step in the capture."""
        with self._lock:
            self._leave_step()
            self._step += 1

    def is_due(self, next_step: int, now_ns: int) -> bool:
        """Whether the open window has its steps, or has been open for long enough."""
        window = self._open
        if window is None:
            return False
        if self._until_step is not None:
            return next_step >= self._until_step
        has_all = window.in_step or next_step - window.first_step >= self._max_steps
        is_over = window.end_ns is not None and now_ns >= window.end_ns
        return has_all or is_over or now_ns - window.start_ns >= SOFT_LIMIT_NS

    def close(
        self,
        next_step: int,
        excess_ns: int | None,
        edge_ns: int = 0,
        issue_ns: int = 0,
        *,
        ended_by: EndedBy = "steps",
        step_is_open: bool = False,
    ) -> CapturedWindow | None:
        """Close the open window; `next_step` is the first step it did not capture in full.

        Waiting for the device at the window's edges is no loss by itself: what it had in hand had to be done anyway,
        and a host that runs ahead of it waits less later. Then the device has nothing in hand, and waits for the host
        until that has issued something: no longer than a whole step takes to issue.

        Args:
            next_step: number of the open or next step.
            excess_ns: how much longer the captured steps took than their neighbours, below 0 where they were faster;
                None where that is not known.
            edge_ns: what waiting for the device before them cost.
            issue_ns: what it takes the host to issue a step, at most.
            ended_by: what ends it.
            step_is_open: whether step `next_step` is in progress.

        Returns:
            The window, or None where there was none, or where the profiler turned out not to be ours.
        """
        with self._lock:
            self._wanted = None
            window = self._open
            if window is None:
                return None
            self._leave_step()
            waiting_ns = self._clock.now_ns()
            self._session.drain()
            begin_ns = self._clock.now_ns()
            cut_step = next_step if step_is_open else None
            if window.in_step:
                cut_step = next_step = window.first_step
            waited_ns = begin_ns - waiting_ns
            self._waited_before_ns = {next_step: waited_ns}  # a window that follows at once finds nothing in hand
            if excess_ns is not None:
                excess_ns += edge_ns + min(waited_ns, edge_ns if 2 * window.waited_ns >= waited_ns else issue_ns)
            return self._stop(window, next_step, cut_step, ended_by, excess_ns)

    def due_in_s(self, now_ns: int) -> float | None:
        """How long the flusher may sleep before `tend` has something to do, in seconds; None where nothing is set."""
        window, wanted = self._open, self._wanted
        at_ns = wanted.at_ns if wanted is not None else None if window is None else window.end_ns
        return None if at_ns is None else max(0, max(at_ns, self._ask_again_ns) - now_ns) / 1e9

    def tend(self, now_ns: int) -> None:
        """Let a window begin or end inside a step where its moment has come. Called on the flusher's thread."""
        due_s = self.due_in_s(now_ns)
        if due_s is None or due_s > 0:
            return
        self._ask_again_ns = now_ns + self._retry_ns
        self._retry_ns = min(2 * self._retry_ns, LAST_RETRY_NS)
        self._session.interrupt(self.interrupted)

    @guarded
    def interrupted(self) -> None:
        """The job can be interrupted: begin or end the window whose moment has come. Between ops, on some thread."""
        if not self._lock.acquire(blocking=False):
            return  # the job's thread is at work on the profiler itself
        cut = None
        try:
            now_ns = self._clock.now_ns()
            window, wanted = self._open, self._wanted
            if window is not None and window.end_ns is not None and now_ns >= window.end_ns:
                cut = self._cut(window)
                self.on_part()
            elif window is None and wanted is not None and now_ns >= wanted.at_ns:
                self._wanted = None
                if self._start(wanted.step, wanted.opening, in_step=True):
                    self.on_part()
            else:
                return
            self._retry_ns, self._ask_again_ns = FIRST_RETRY_NS, 0
        finally:
            self._lock.release()
        if cut is not None:
            self.on_cut(cut)

    def abandon(self) -> None:
        """Make sure that no profiler of ours is left running. Called when the recorder switches itself off."""
        self._wanted = None
        window = self._open
        if window is None:
            return
        self.is_open = False
        self.lost.append(
            LostWindow("lost-window", window.start_ns, window.start_ns, window.first_step, "the recorder was off")
        )
        if self._opener == threading.get_ident():
            self.stop_abandoned()
        else:
            self._session.interrupt(self.stop_abandoned)

    @guarded_even_off
    def stop_abandoned(self) -> None:
        """Stop the profiler of an abandoned window."""
        window, self._open = self._open, None
        if window is not None:
            self._session.stop()

    def _start(self, step: int, opening: Opening, *, in_step: bool) -> bool:
        asked_ns = self._clock.now_ns()
        if self._session.busy():
            self._lose_busy(asked_ns, step, "another profiler session was running")
            return False
        if not in_step:
            self._session.drain()
        begin_ns = self._clock.now_ns()
        try:
            self._session.start(with_programs=opening.with_programs)
        except ProfilerBusyError as error:
            self._lose_busy(asked_ns, step, str(error))
            return False
        start_ns = self._clock.now_ns()
        start_ps = (start_ns - begin_ns) * PS_PER_NS
        self._account.spend("start", start_ps)
        plan = opening.plan
        end_ns = None if plan is None or plan.limit_ps is None else start_ns + plan.limit_ps // PS_PER_NS
        self._opener = threading.get_ident()
        self._step = step
        waited_ns = 0 if in_step else begin_ns - asked_ns + self._waited_before_ns.get(step, 0)
        self._open = _Open(self._count, step, start_ns, opening, start_ps, end_ns, in_step, waited_ns)
        self.is_open = True
        self._count += 1
        self._end_busy()
        return True

    def _cut(self, window: _Open) -> CapturedWindow | None:
        """Close the window in the middle of a step. The device is not waited for: what it has in hand is cut too."""
        self._leave_step()
        next_step = window.first_step if window.in_step else self._step
        return self._stop(window, next_step, self._step, "seconds", None)

    def _stop(
        self, window: _Open, next_step: int, cut_step: int | None, ended_by: EndedBy, excess_ns: int | None
    ) -> CapturedWindow | None:
        begin_ns = self._clock.now_ns()
        self.is_open = False
        try:
            capture = self._session.stop()
        except ProfilerBusyError as error:
            self._open = None
            self._lose_busy(window.start_ns, window.first_step, str(error))
            return None
        self._open = None
        end_ns = self._clock.now_ns()
        stop_ps = (end_ns - begin_ns) * PS_PER_NS
        self._account.spend("stop", stop_ps)
        slowdown_ps = None
        if excess_ns is not None and cut_step is None:
            slowdown_ps = self._charge(excess_ns) * PS_PER_NS
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
            cut_step,
            ended_by,
        )

    def _leave_step(self) -> None:
        annotation, self._annotation = self._annotation, None
        if annotation is not None:
            annotation.__exit__(None, None, None)

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
