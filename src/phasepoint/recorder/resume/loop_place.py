"""Where the job's loops stand: how many batches each loop with `resume=True` has taken. Kept with every checkpoint.

Step numbers alone do not say it: an evaluation inside a training step counts its batches as steps, too, and is not
gone through when the training loop is taken to its place. So loops inside of others are left out here, and a replay
takes from each loop as many batches as the original did. The generators from which the loader of the loop in progress
may have taken its order are kept, too: by then the job itself has drawn from them.
"""

import json
import threading
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from phasepoint.recorder.resume.loader_state import RandomState, take_state


class PastLoops(Struct, frozen=True):
    """Loops in a row that took equally many batches.

    Attributes:
        batches: taken by each.
        ended: whether the loader had ended; False where the loop was left before.
        times: how many loops these are.
    """

    batches: int
    ended: bool
    times: int


class LoopPlace(Struct, frozen=True):
    """Where the loops stood.

    Attributes:
        past: loops that were over, in order.
        batches: taken by the loop in progress; None between loops.
        generators: the global generators of random numbers when that loop began; None where not kept.
    """

    past: tuple[PastLoops, ...]
    batches: int | None
    generators: RandomState | None = None

    def to_text(self) -> str:
        """As JSON."""
        past = [[one.batches, one.ended, one.times] for one in self.past]
        generators = None if self.generators is None else self.generators.to_plain()
        return json.dumps({"past": past, "batches": self.batches, "generators": generators})

    @staticmethod
    def from_text(text: str) -> "LoopPlace":
        """The place from `to_text`.

        Raises:
            ValueError: it is not of this form.
        """
        try:
            found = json.loads(text)
            past = tuple(PastLoops(int(n), bool(ended), int(times)) for n, ended, times in found["past"])
            batches, plain = found["batches"], found["generators"]
            generators = None if plain is None else RandomState.from_plain(plain)
            return LoopPlace(past, None if batches is None else int(batches), generators)
        except (KeyError, TypeError) as error:
            raise ValueError(f"no place of loops: {error!r}") from error

    @property
    def loop(self) -> int:
        """Number of the loop in progress, or of the next one."""
        return sum(one.times for one in self.past)

    def settled(self, later: "LoopPlace") -> "LoopPlace":
        """The same place, with what a later one tells of it: that the loop was left there, and not gone on with."""
        if self.batches is None or later.loop <= self.loop:
            return self
        left = later.past_loop(self.loop)
        if left.ended or left.batches != self.batches:
            return self
        return LoopPlace((*self.past, PastLoops(left.batches, False, 1)), None)

    def past_loop(self, loop: int) -> PastLoops:
        """The loop of that number, one of those that were over."""
        for one in self.past:
            if loop < one.times:
                return one
            loop -= one.times
        raise IndexError(loop)


class LoopInProgress:
    """A loop that is going on.

    Attributes:
        loader, iterator: what it goes through.
        generators: of random numbers, when it began.
        batches: taken so far; the loop itself counts.
    """

    def __init__(self, loader: Any, iterator: Iterator[Any], generators: RandomState | None) -> None:
        self.loader = loader
        self.iterator = iterator
        self.generators = generators
        self.batches = 0


class LoopPlaces:
    """Follows the loops of a recording, on the job's thread."""

    def __init__(self) -> None:
        self._past: list[PastLoops] = []
        self._current: LoopInProgress | None = None
        self._thread: int | None = None

    def generators(self) -> RandomState | None:
        """Of random numbers, for a loop that is about to begin: its loader may shuffle by them. None inside of one."""
        if self._current is not None:
            return None
        try:
            return RandomState.take(with_devices=False)
        except Exception:  # noqa: BLE001 - a library that is being imported: the job is recorded without them
            return None

    def begin(self, loop: LoopInProgress) -> None:
        """A loop begins."""
        if self._current is None:
            self._current = loop
            self._thread = threading.get_ident()

    def end(self, loop: LoopInProgress, *, ended: bool) -> None:
        """A loop is over; `ended` says whether its loader had no more batches."""
        if loop is not self._current:
            return  # inside of another one
        self._current = None
        last = self._past[-1] if self._past else None
        if last is not None and (last.batches, last.ended) == (loop.batches, ended):
            self._past[-1] = PastLoops(loop.batches, ended, last.times + 1)
        else:
            self._past.append(PastLoops(loop.batches, ended, 1))

    def place(self) -> str | None:
        """Where the loops stand, as text; None on another thread than theirs, or before the first."""
        if threading.get_ident() != self._thread:
            return None
        past, loop = tuple(self._past), self._current
        if loop is None:
            return LoopPlace(past, None).to_text()
        return LoopPlace(past, loop.batches, loop.generators).to_text()

    def loader_state(self) -> str | None:
        """State of the loader of the loop in progress, as text; None where it gives none that can be kept."""
        loop = self._current
        if loop is None or threading.get_ident() != self._thread:
            return None
        try:
            return take_state(loop.loader, loop.iterator)
        except Exception:  # noqa: BLE001 - somebody else's loader: batches can be drawn instead
            return None
