"""Takes the loops of a replay to its first step, without doing their bodies.

Loops with `resume=True` are taken to run as they did in the original job, from its first loop on. Batches are drawn and
thrown away, loop after loop, as many from each as the original took (`recorder.loop_place`). Where the loader's state
was recorded it is put back in the loop in which it was taken, and the loops before it are empty.

Batches of the loop that goes on are drawn with the global generators of random numbers as they were when it began in
the original, those of loops before it with the ones of when the program first read `run.resume`, before it restored
its own: a loader that takes its order from them when its loop begins then has the original's. Where the first step is
reached the restored ones are put back.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn, TypeVar

from phasepoint.core.units import PS_PER_NS
from phasepoint.recorder.loader_state import LoaderState, restore_state
from phasepoint.recorder.loop_place import LoopPlace, PastLoops
from phasepoint.recorder.random_state import RandomState
from phasepoint.recorder.resume import ReplayRequest, end_process, tell

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
        tell(self._request, "failed", reason=reason)
        end_process(reason)
