"""Takes the loops of a replay to its first step, without doing their bodies.

Loops with `resume=True` are taken to run as they did in the original job, from its first loop on. A recorded state of
the loader is put back in the loop in which it was taken, and the loops before it are empty. Without one, batches are
drawn and thrown away, loop after loop, one for each of the original's steps.

Batches are drawn with the global generators of random numbers as they were when the program first read `run.resume`,
which it does before it restores its own: a loader that shuffles by them then shuffles as it did in the original. Where
the first step is reached the restored ones are put back.
"""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from phasepoint.core.units import PS_PER_NS
from phasepoint.recorder.loader_state import LoaderState, restore_state
from phasepoint.recorder.random_state import RandomState
from phasepoint.recorder.resume import ReplayRequest, end_process, tell

Batch = TypeVar("Batch")


class Skipping:
    """Where the loops of a replay stand.

    Attributes:
        is_there: whether the first step has been reached; from then on loops are left alone.
        position: number of the original's step that the next drawn batch belongs to.
    """

    def __init__(self, request: ReplayRequest) -> None:
        self.is_there = request.first_step == 0
        self.position = 0
        self._request = request
        self._loops = 0
        self._state = None if request.iterator_state is None else _state(request, request.iterator_state)
        self._at_start: RandomState | None = None
        self._restored: RandomState | None = None
        self._began_ns = 0

    def program_restores(self) -> None:
        """The program has asked where to go on: what it restores from here on must stay."""
        if self._at_start is None:
            self._at_start = RandomState.take()

    def take(self, loader: Iterable[Batch], *, resume: bool) -> Iterator[Batch] | None:
        """The batches of a loop that begins now, from the first step on; None where the loop lies before it.

        Args:
            loader: what the loop goes through.
            resume: whether the loop may be skipped. One that may not, before any that may, is one that the program
                has placed itself; it begins with the first step. Once a loop was skipped all are, until the first step.
        """
        if not resume and self._loops == 0:
            self.is_there = True
        loop, self._loops = self._loops, self._loops + resume
        if self.is_there:
            return iter(loader)
        self._begin()
        if self._state is None:
            return self._draw(loader)
        if not resume or loop < self._state.loop:
            return None
        return self._restore(self._state, loader)

    def _begin(self) -> None:
        if self._restored is None:
            self._restored = RandomState.take()
            self._began_ns = time.perf_counter_ns()
            if self._at_start is not None:
                self._at_start.put_back()

    def _draw(self, loader: Iterable[Batch]) -> Iterator[Batch] | None:
        batches = iter(loader)
        while self.position < self._request.first_step:
            try:
                next(batches)
            except StopIteration:
                return None
            self.position += 1
        self._arrive()
        tell(self._request, "skipped", batches=self.position, dur_ps=self._dur_ps())
        return batches

    def _restore(self, state: LoaderState, loader: Iterable[Batch]) -> Iterator[Batch] | None:
        batches = restore_state(state, loader)
        if batches is None:
            if state.loop > 0:
                reason = (
                    f"the {state.owner} of the loop has no {state.load}, which the original's had; "
                    "expected the same kind of loader"
                )
                tell(self._request, "failed", reason=reason)
                end_process(reason)
            self._state = None
            return self._draw(loader)
        self._arrive()
        tell(self._request, "restored", loop=state.loop, dur_ps=self._dur_ps())
        return batches

    def _arrive(self) -> None:
        self.is_there = True
        self.position = self._request.first_step
        if self._restored is not None:
            self._restored.put_back()

    def _dur_ps(self) -> int:
        return (time.perf_counter_ns() - self._began_ns) * PS_PER_NS


def _state(request: ReplayRequest, text: str) -> LoaderState:
    try:
        return LoaderState.from_text(text)
    except ValueError as error:
        reason = f"the loader's state that was recorded with the checkpoint cannot be read: {error}"
        tell(request, "failed", reason=reason)
        end_process(reason)
