"""A recording that is a replay: its loops begin with the first step asked for and end after the last one.

It stands beside the ordinary loop (`recording.Steps`) and not inside of it, so that recording pays nothing for it.

Takes the loops of a replay to its first step, without doing their bodies.

Loops with `resume=True` are taken to run as they did in the original job, from its first loop on. Batches are drawn and
thrown away, loop after loop, as many from each as the original took (`resume/loop_place.py`). Where the loader's state
was recorded it is put back in the loop in which it was taken, and the loops before it are empty.

Batches of the loop that goes on are drawn with the global generators of random numbers as they were when it began in
the original, those of loops before it with the ones of when the program first read `run.resume`, before it restored
its own: a loader that takes its order from them when its loop begins then has the original's. Where the first step is
reached the restored ones are put back.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from operator import sub
from statistics import median
from typing import NoReturn, TypeVar

from phasepoint.core.units import PS_PER_NS
from phasepoint.recorder.recorder import Recorder, Status
from phasepoint.recorder.resume.loader_state import LoaderState, RandomState, restore_state
from phasepoint.recorder.resume.loop_place import LoopPlace, PastLoops
from phasepoint.recorder.resume.request import Event, ReplayRequest, Resume, give_up, tell

JUDGED_STEPS = 10
"""A choice: of the steps behind the target, so many tell whether the others are worth their time."""

Batch = TypeVar("Batch")
Read = TypeVar("Read")


class Skipping:
    """Where the loops of a replay stand.

    Attributes:
        is_there: whether the first step has been reached; from then on loops are left alone.
        drawn: batches drawn and thrown away.
    """

    def __init__(self, request: ReplayRequest) -> None:
        self.drawn = 0
        self._request = request
        self._loops = 0
        self._state = self._read(request.iterator_state, LoaderState.from_text)
        self._place = self._read(request.loop_place, LoopPlace.from_text)
        self._at_start: RandomState | None = None
        self._restored: RandomState | None = None
        self._began_ns = 0
        starts_between = self._place is not None and self._place.loop == 0 and self._place.batches is None
        self.is_there = request.first_step == 0 or starts_between

    def program_restores(self) -> None:
        """The program has asked where to go on: what it restores from here on must stay."""
        if self._at_start is None:
            self._at_start = RandomState.take()

    def take(self, loader: Iterable[Batch], *, resume: bool, loop: int | None = None) -> Iterator[Batch] | None:
        """The batches of a loop that begins now, from the first step on; None where the loop lies before it.

        Args:
            loader: what the loop goes through.
            resume: whether the loop may be skipped. A loop that may not is left alone after the first step. Before it,
                it is one that the program has placed itself and begins with the first step, unless the original's
                loops, or one before it, had `resume=True`: then the first step is in one of those, and it is empty.
            loop: its number among those that may be skipped, where the program leaves out what lies before it.
        """
        next_loop = self._loops
        loop = next_loop if loop is None else loop
        self._loops = max(next_loop, loop) + resume
        if not resume and self._place is None and loop == 0:
            self.is_there = True
        if self.is_there:
            return iter(loader)
        if not resume:
            return None
        self._begin()
        place = self._place
        if self._state is not None:
            return self._restore(self._state, loader, loop)
        if place is None:
            return self._draw_steps(loader)
        for past in range(next_loop, min(loop + 1, place.loop)):
            self._draw_loop(loader, place.past_loop(past), past)
        if place.batches is None and loop + 1 >= place.loop:  # the first step is the first of the next loop
            self._arrive_drawn()
        if loop < place.loop:
            return None
        return iter(loader) if place.batches is None else self._draw_place(loader, place, place.batches)

    def _begin(self) -> None:
        if self._restored is None:
            self._restored = RandomState.take()
            self._began_ns = time.perf_counter_ns()
            if self._at_start is not None:
                self._at_start.put_back()

    def _draw_steps(self, loader: Iterable[Batch]) -> Iterator[Batch] | None:
        """Nothing but the number of steps is known: each of them is a batch."""
        batches = iter(loader)
        left = self._request.first_step - self.drawn
        if self._draw(batches, left) < left:
            return None
        self._arrive_drawn()
        return batches

    def _draw_loop(self, loader: Iterable[Batch], past: PastLoops, loop: int) -> None:
        batches = iter(loader)
        drawn = self._draw(batches, past.batches)
        has_more = past.ended and drawn == past.batches and self._draw(batches, 1) == 1
        if drawn < past.batches or has_more:
            found = "more" if has_more else f"{drawn}"
            self._fail(f"loop {loop} took {past.batches} batches in the original and has {found} now: other data?")

    def _draw_place(self, loader: Iterable[Batch], place: LoopPlace, count: int) -> Iterator[Batch]:
        """Draw what the loop that goes on had taken, in the order that its loader had drawn when it began."""
        if place.generators is not None:
            place.generators.put_back()
        batches = iter(loader)
        drawn = self._draw(batches, count)
        if drawn < count:
            self._fail(f"loop {place.loop} took {count} batches in the original and has {drawn} now: other data?")
        self._arrive_drawn()
        return batches

    def _draw(self, batches: Iterator[Batch], count: int) -> int:
        """Draw so many batches, or as many as there are; returns how many."""
        for drawn in range(count):
            try:
                next(batches)
            except StopIteration:
                return drawn
            self.drawn += 1
        return count

    def _restore(self, state: LoaderState, loader: Iterable[Batch], loop: int) -> Iterator[Batch] | None:
        its_loop = 0 if self._place is None else self._place.loop
        if loop < its_loop:
            return None
        batches = restore_state(state, loader)
        if batches is None:
            self._fail(
                f"the {state.owner} of loop {loop} has no {state.load}, which the original's had; expected the same "
                "kind of loader"
            )
        self._arrive()
        tell(self._request, "restored", loop=loop, dur_ps=self._dur_ps())
        return batches

    def _arrive_drawn(self) -> None:
        self._arrive()
        tell(self._request, "skipped", batches=self.drawn, dur_ps=self._dur_ps())

    def _arrive(self) -> None:
        self.is_there = True
        if self._restored is not None:
            self._restored.put_back()

    def _dur_ps(self) -> int:
        return (time.perf_counter_ns() - self._began_ns) * PS_PER_NS

    def _read(self, text: str | None, read: Callable[[str], Read]) -> Read | None:
        try:
            return None if text is None else read(text)
        except ValueError as error:
            self._fail(f"what was recorded with the checkpoint cannot be read: {error}")

    def _fail(self, reason: str) -> NoReturn:
        give_up(self._request, "failed", reason)


class Replaying:
    """Leads a program through its replay.

    Args:
        request: what is asked for.
        recorder: the recording's hooks.
        close: ends the recording; called once, with its status.

    Attributes:
        is_over: whether the last step was done: all loops are empty from then on.
    """

    def __init__(self, request: ReplayRequest, recorder: Recorder, close: Callable[[Status], object]) -> None:
        self.is_over = False
        self._request = request
        self._recorder = recorder
        self._close = close
        self._skipping = Skipping(request)
        self._was_read = False
        self._has_marks = False
        self._ended_ns: list[int] = []
        tell(request, "begun", path=request.path)

    @property
    def resume(self) -> Resume | None:
        """Where to go on; None where nothing is to be restored. Reading it tells that the program follows."""
        request = self._request
        if not self._was_read:
            self._was_read = True
            tell(request, "resume-read")
        if not request.needs_restore:
            return None
        self._skipping.program_restores()
        return Resume(request.checkpoint, request.checkpoint_step, request.first_step, request.last_step)

    def iterate(self, loader: Iterable[Batch], *, resume: bool, loop: int | None) -> Iterator[Batch]:
        """The loop itself: like the ordinary one, within the steps asked for."""
        if self.is_over:
            return
        self._check()
        batches = self._skipping.take(loader, resume=resume, loop=loop)
        if batches is None:
            return
        recorder = self._recorder
        try:
            while not self.is_over:
                recorder.ask()
                if self.ends():
                    return
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                recorder.got()
                yield batch
        finally:
            if not self.is_over:
                recorder.end_loop()
                self.ends()

    def mark(self) -> None:
        """A step of a job without a loop begins. After the last one the process ends: there is no loop to end."""
        if not self._has_marks:
            self._has_marks = True
            tell(self._request, "marked")
            self._skipping.is_there = True
        self._check()
        if not self.is_over:
            self._recorder.ask()
        if self.is_over or self.ends():
            raise SystemExit(0)
        self._recorder.got(waited=False)

    def left(self, error: BaseException | None) -> None:
        """The recording's block was left, normally or by an error."""
        if self.is_over:
            return
        self.is_over = True
        request, step = self._request, self._recorder.next_step
        if error is not None and not isinstance(error, SystemExit):
            tell(request, "ended-early", reason=f"the program failed: {type(error).__name__}: {error}"[:1000])
        elif not self._skipping.is_there:
            reason = (
                f"the job ended before step {request.first_step}, where the replay begins: its loops with resume=True "
                f"had {self._skipping.drawn} batches in all. Loops with resume=True must run as they did in the "
                "original, from the job's first one on"
            )
            tell(request, "ended-early", reason=reason)
        elif step <= request.last_step:
            reason = f"the job ended before step {step}; the replay's last one is {request.last_step}"
            tell(request, "ended-early", reason=reason)
        else:
            tell(request, "done", step=request.last_step)

    def _check(self) -> None:
        """End the process where the program or the recorder does not do what the replay needs."""
        if self._request.needs_restore and not self._was_read:
            self._give_up(
                "ignored",
                f"the program began its first step without reading run.resume; expected it to restore "
                f"{self._request.checkpoint} before its first loop (docs/replay.md)",
            )
        self._check_recorder()

    def _check_recorder(self) -> None:
        if self._recorder.guard.off:
            self._give_up("failed", f"the recorder switched itself off: {self._recorder.guard.reason}")

    def ends(self) -> bool:
        """Whether the last step is over; if so the run is written and the replay done."""
        self._check_recorder()
        if self._recorder.next_step <= self._request.last_step and not self._is_hopeless():
            return False
        self.is_over = True
        self._close("ok")
        tell(self._request, "done", step=self._recorder.next_step - 1)
        return True

    def _is_hopeless(self) -> bool:
        """Whether its steps take longer than is of use. The first one behind the target ends the capture, too."""
        most_ns, behind = self._request.hopeless_ns, self._recorder.next_step - self._request.target_last - 2
        if most_ns is None or behind != len(self._ended_ns):
            return False
        self._ended_ns.append(time.perf_counter_ns())
        return behind == JUDGED_STEPS and median(map(sub, self._ended_ns[1:], self._ended_ns)) > most_ns

    def _give_up(self, event: Event, reason: str) -> NoReturn:
        self.is_over = True
        self._close("failed")
        give_up(self._request, event, reason)
