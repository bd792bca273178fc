"""Any other iterable: its batches made ahead on a thread, one after the other, in the order that it gives.

There is one iterator, and it goes on whichever setting is in force: the knob says how many batches may wait, and 0
makes each where it is asked for, as without tuning. What runs on the thread is the iterable's own code, so only what
draws nothing from the global generators of random numbers keeps the job's results; that is watched.

Knobs of the user's own that can be turned while the iterator runs (`Knob(…, apply=pool.resize)`) are turned between two
batches; others are given to the factory when an epoch begins.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from phasepoint.tune.knobs import Effect, Knob, Setting, Turn
from phasepoint.tune.limits import run_delay_ns
from phasepoint.tune.pipeline import Width
from phasepoint.tune.source import BatchTime, Feed, Positions, random_fingerprint

PREFETCH = "prefetch"
"""The knob's name."""

AHEAD = (0, 1, 2, 4, 8)
"""Batches that may wait: each more helps only where their times scatter."""

_AHEAD_OF_WORKER = 2
"""A choice: batches that a worker of the user's has under way, where only it knows."""

WATCHED_BATCHES = 16
"""After an epoch's first: whether making them draws random numbers. 0.1 ms each. What the first one draws (a sampler's
seed) does not count: the loop waits for it, so that it is drawn at the same moment with a thread and without."""


class Stream:
    """A factory of iterables.

    Args:
        make_loader: the user's factory.
        written: what it gives without being asked for anything.
        accepted: names that the factory takes; not used.
        cpus: cores that the job may use; not used.
        declared: knobs of the user's own.
        reseed: not used: one iterator makes all batches.
    """

    kind = "iterable"
    can_repeat = False
    worker_bytes: int | None = None
    silent_s = math.inf
    room_bytes = 0

    def __init__(
        self,
        make_loader: Callable[..., Any],
        written: Any,
        *,
        accepted: frozenset[str] | None = None,
        cpus: int,
        declared: Sequence[Knob] = (),
        reseed: int | None = None,
    ) -> None:
        del accepted, cpus, reseed
        self._make_loader, self._written = make_loader, written
        self._live = tuple(knob for knob in declared if knob.apply is not None)
        self._between = tuple(replace(knob, turn=Turn.EPOCH) for knob in declared if knob.apply is None)
        self._draws = False
        self._made: dict[tuple[tuple[str, Any], ...], Iterable[Any]] = {}
        self.as_written: Setting = {PREFETCH: 0} | {knob.name: knob.values[0] for knob in declared}

    @staticmethod
    def takes(loader: Any) -> bool:
        """Everything that can be iterated."""
        return hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")

    @property
    def knobs(self) -> Sequence[Knob]:
        """How far ahead, and the user's own."""
        effect = Effect.RANDOM_NUMBERS if self._draws else Effect.NOTHING
        return (Knob(PREFETCH, AHEAD, effect, Turn.LIVE), *self._live, *self._between)

    def length(self) -> int | None:
        """Batches of an epoch, where the iterable says."""
        try:
            return len(self._written)
        except TypeError:
            return None

    def width(self, setting: Setting) -> Width:
        """The user's own workers; without any, one thread, where any batch may wait; and the user's own threads."""
        if workers := self._workers(setting):
            return Width(workers, _AHEAD_OF_WORKER * workers, starts=True)
        ahead = int(setting.get(PREFETCH, 0))
        readers = math.prod(int(setting[knob.name]) for knob in self._live if knob.threads)
        return Width(1 if ahead else 0, ahead, readers)

    def _workers(self, setting: Setting) -> int:
        """Workers of the iterable's own that make its batches side by side."""
        numbers = [int(setting[knob.name]) for knob in self._between if knob.threads]
        return math.prod(numbers) if numbers else 0

    def begin_epoch(self) -> "OneIterator":
        """The iterable is asked for its iterator when the first view is opened."""
        return OneIterator(self._note_draws)

    def open(
        self, order: "OneIterator", setting: Setting, positions: Positions, *, start: int, begins_epoch: bool = False
    ) -> Feed:
        """A view of the one iterator; where workers make the batches, what the loop sees tells how long each took."""
        del positions, start
        if begins_epoch:
            order.iterator = iter(self._iterable_of(setting))
        order.views += 1
        return StreamFeed(order, setting, self._live, self._workers(setting))

    def _iterable_of(self, setting: Setting) -> Iterable[Any]:
        """What an epoch with a setting goes over: one for all epochs of a setting, as in a job without tuning."""
        key = self._changed(setting)
        if not key:
            return self._written  # type: ignore[no-any-return]
        if key not in self._made:
            self._made[key] = self._make_loader(**dict(key))
        return self._made[key]

    def _changed(self, setting: Setting) -> tuple[tuple[str, Any], ...]:
        """What the factory is asked for: what is not as written."""
        values = [(knob.name, setting[knob.name]) for knob in self._between]
        return tuple((name, value) for name, value in values if value != self.as_written[name])

    def let_go(self, setting: Setting, stays: Setting) -> None:
        """What it has made goes, with what that has started."""
        del stays
        self._made.pop(self._changed(setting), None)

    def cache_bytes(self) -> int:
        """None."""
        return 0

    def close(self) -> None:
        """What was made for settings goes."""
        self._made.clear()

    def _note_draws(self) -> None:
        self._draws = True


class OneIterator:
    """An iterator whose items can be made ahead on a thread; how many may wait can be changed at any time.

    Args:
        note_draws: called where making an item drew random numbers.

    Attributes:
        iterator: the user's.
        views: of it that are open.
        last_time: what making the last item took.
        was_ready: whether it had been made before it was asked for.
    """

    def __init__(self, note_draws: Callable[[], None]) -> None:
        self.iterator: Iterator[Any] = iter(())
        self.views = 0
        self.was_ready = False
        self.last_time: BatchTime | None = None
        self._note_draws = note_draws
        self._count = 0
        self._made: deque[tuple[Any, BaseException | None, BatchTime]] = deque()
        self._ahead = 0
        self._changed = threading.Condition()
        self._making = threading.Lock()
        self._has_ended = False
        self._thread: threading.Thread | None = None

    def turn(self, ahead: int) -> None:
        """So many items may wait from here on."""
        if ahead == self._ahead:
            return
        with self._changed:
            self._ahead = ahead
            self._changed.notify_all()
        if ahead and self._thread is None and not self._has_ended:
            self._thread = threading.Thread(target=self._run, name="phasepoint-prefetch", daemon=True)
            self._thread.start()

    def take(self) -> Any:
        """The next item. Raises what the iterator raises, in its place."""
        with self._changed:
            self.was_ready = bool(self._made)
            while self._ahead and not self._made and not self._has_ended:
                self._changed.wait()
            made = self._made.popleft() if self._made else None
            self._changed.notify_all()
        if made is None:
            with self._making:  # the thread may still be at its last one
                if not self._made:
                    self._made.append(self._make())
            made = self._made.popleft()
        item, error, self.last_time = made
        if error is not None:
            raise error
        return item

    def stop(self) -> None:
        """No more items are made ahead."""
        with self._changed:
            self._ahead, self._has_ended = 0, True
            self._changed.notify_all()

    def _make(self) -> tuple[Any, BaseException | None, BatchTime]:
        is_watched = 0 < self._count <= WATCHED_BATCHES and not self._ahead
        self._count += 1
        before = random_fingerprint() if is_watched else ()
        began_ns, began_cpu_ns, began_delay_ns = time.perf_counter_ns(), time.thread_time_ns(), run_delay_ns()
        item: Any = None
        error: BaseException | None = None
        try:
            item = next(self.iterator)
        except BaseException as raised:  # noqa: BLE001 - it is raised where the loop asks for this item
            error = raised
        took = BatchTime(
            time.perf_counter_ns() - began_ns, time.thread_time_ns() - began_cpu_ns, run_delay_ns() - began_delay_ns
        )
        if is_watched and random_fingerprint() != before:
            self._note_draws()
        return item, error, took

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._has_ended and len(self._made) >= self._ahead:
                    self._changed.wait()
                if self._has_ended:
                    return
            with self._making:
                if self._ahead <= len(self._made):
                    continue
                made = self._make()
                with self._changed:
                    self._made.append(made)
                    self._has_ended = self._has_ended or made[1] is not None
                    self._changed.notify_all()


class StreamFeed:
    """One setting's view of it.

    Args:
        one: the iterator.
        setting: in force.
        own: the user's knobs that are turned while it runs.
        workers: that make its batches side by side and cannot be timed: a batch takes as many steps as there are, in a
            loop that waits for it; 0 where the loop's thread or ours makes them.
    """

    def __init__(self, one: OneIterator, setting: Setting, own: Sequence[Knob], workers: int = 0) -> None:
        self._one, self._setting, self._own, self._workers = one, setting, own, workers
        self._taken_ns = self._step_ns = 0
        self._is_closed = False
        self.was_ready = False

    def take(self, position: int) -> Any:
        """The next item, with this setting in force."""
        del position
        for knob in self._own:
            if knob.apply is not None and _IN_FORCE.get(knob.name) != self._setting[knob.name]:
                _IN_FORCE[knob.name] = self._setting[knob.name]
                knob.apply(self._setting[knob.name])
        self._one.turn(int(self._setting[PREFETCH]))
        item = self._one.take()
        self.was_ready = self._one.was_ready
        now_ns = time.perf_counter_ns()
        self._step_ns, self._taken_ns = now_ns - self._taken_ns if self._taken_ns else 0, now_ns
        return item

    def time_of(self, position: int) -> BatchTime | None:
        """Of the item that was taken last."""
        del position
        if self._workers:
            return BatchTime(self._step_ns * self._workers, 0) if self._step_ns else None
        return self._one.last_time

    def close(self) -> None:
        """The last view that is closed ends the thread."""
        if not self._is_closed:
            self._is_closed = True
            self._one.views -= 1
            if not self._one.views:
                self._one.stop()


_IN_FORCE: dict[str, Any] = {}
"""Values of the user's own knobs that were set last."""
