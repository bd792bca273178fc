"""`torch.utils.data.DataLoader` over a dataset with indices: workers and how far they are ahead.

One epoch has one order of batches, drawn from the sampler of the loader as written, just when and how that loader would
draw it. Every loader that is built makes the batches at its own positions of this order, so that a change in the middle
of an epoch loses, repeats and exchanges nothing. Loaders that are built in the middle of an epoch leave the generators
of random numbers as they were.
"""

import multiprocessing
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from phasepoint.tune.adapters.torch.feed import TorchFeed, end_workers
from phasepoint.tune.adapters.torch.worker import (
    LimitedStart,
    NumberedIndices,
    TimedCollate,
    TimedDataset,
    draws_random_numbers,
    new_times,
)
from phasepoint.tune.cache import CAN_KEEP, Cached, marked_functions
from phasepoint.tune.knobs import FREE, Effect, Knob, Setting, Turn, worker_counts
from phasepoint.tune.pipeline import Width
from phasepoint.tune.source import Feed, Positions, random_numbers_kept

AHEAD = (2, 4, 8)
"""Batches that each worker may be ahead: PyTorch's default, and more where single batches are slow."""

HANG_S = 20.0
"""How long a worker that is not forked may take to begin: it imports what the job does. A choice."""

_KEPT_BATCHES = 4096
"""Indices of so many batches are kept: more than lie between a batch that failed and the last one that was begun."""

_DEFAULT_AHEAD = 2  # PyTorch's

RECEIVE_AHEAD = "receive_ahead"
"""The knob's name: batches that a thread of ours takes over from workers before the loop asks for them."""

_RECEIVED = 2  # one that is ready, and one on its way

CACHE = "cache"
"""The knob's name: whether results of the user's `Cached` functions, or else whole samples, stay in memory."""

OURS = (RECEIVE_AHEAD, CACHE)
"""What no factory is asked for."""

OF_WORKERS = ("prefetch_factor", "persistent_workers")
"""What PyTorch refuses where there are none."""


class TorchBatches:
    """A factory of such loaders.

    Args:
        make_loader: the user's factory.
        written: what it gives without being asked for anything.
        accepted: names that the factory takes; None where it takes any.
        cpus: cores that the job may use.
        declared: knobs that the user names, in place of those found.
        reseed: where given, each batch has random numbers of its own, drawn from this, the epoch and its position: then
            they do not depend on which worker makes it.
    """

    kind = "torch DataLoader"
    can_repeat = True
    worker_bytes: int | None = None
    silent_s = HANG_S
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
        self._make_loader = make_loader
        self._whole = _whole_samples(written.dataset)
        offered = _knobs(written, cpus, self._functions())
        self._reseed = reseed
        self._epochs = 0
        self._written = written
        self._sampler = written.batch_sampler if written.batch_sampler is not None else written.sampler
        found = tuple(knob for knob in offered if accepted is None or knob.name in accepted.union(OURS))
        self._knobs = tuple(declared) or found
        self.as_written: Setting = {knob.name: value_as_written(written, knob) for knob in self._knobs}
        self._loaders: list[tuple[Setting, Any]] = [(self.as_written, written)]

    @staticmethod
    def takes(loader: Any) -> bool:
        """Whether it is such a loader: one whose sampler gives indices, and whose workers may be started."""
        from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe

        streams = IterableDataset | IterDataPipe | MapDataPipe
        return isinstance(loader, DataLoader) and not isinstance(loader.dataset, streams) and not forks_threads(loader)

    @property
    def knobs(self) -> Sequence[Knob]:
        """What can be turned; no workers where starting them might hang, which is seen only when JAX is imported.

        Where making batches draws random numbers, they depend on which worker makes which. A cache of what comes before
        leaves that as it is.
        """
        knobs = self._knobs
        if forks_threads(self._written):
            knobs = tuple(knob for knob in knobs if knob.name != "num_workers")
        drawn = vars(self._written).get("_phasepoint_drawn")
        if drawn is None or not draws_random_numbers(drawn.times):
            return knobs
        goes_on = bool(self._written.num_workers and self._written.persistent_workers)
        kept = [knob for knob in knobs if knob.name == CACHE and self._whole is None and not goes_on]
        others = [knob for knob in knobs if knob.name != CACHE]
        return (*(replace(knob, effect=_drawing(knob.effect)) for knob in others), *kept)

    def length(self) -> int | None:
        """Batches of an epoch."""
        try:
            return len(self._sampler)
        except TypeError:
            return None

    def width(self, setting: Setting) -> Width:
        """Workers, and batches under way."""
        return torch_width(setting, self._written)

    def begin_epoch(self) -> "EpochOrder":
        """The sampler is asked for a new order when its first batch is."""
        self._epochs += 1
        return EpochOrder(self._sampler, None if self._reseed is None else (self._reseed, self._epochs))

    def open(
        self, order: "EpochOrder", setting: Setting, positions: Positions, *, start: int, begins_epoch: bool = False
    ) -> Feed:
        """A loader of this setting whose sampler gives what this feed makes."""
        if setting.get(CACHE):
            for function in self._functions():
                function.keep(len(self._written.dataset), self.room_bytes)
        import torch

        if begins_epoch:
            order.generator_state = (self._written.generator or torch.default_generator).get_state()
            loader = self._loader_of(setting)
            self._draw_as_written(loader)
            feed = self._feed(loader, setting, order, positions, start, persists=loader.persistent_workers)
            order.draw()
            return feed
        with random_numbers_kept():
            loader = self._build(setting)
        loader.generator = torch.Generator()  # its workers' seed is drawn from this, and from no other: the same seed
        loader.generator.set_state(order.generator_state)
        return self._feed(loader, setting, order, positions, start)

    def _draw_as_written(self, loader: Any) -> None:
        """Draw what the written loader would: each new iterator draws its workers' seed, one that goes on does not."""
        import torch

        draws = loader._iterator is None
        would_draw = self._epochs == 1 or not self._written.persistent_workers
        if would_draw and not draws:
            torch.empty((), dtype=torch.int64).random_(generator=self._written.generator)
        elif draws and not would_draw:
            loader.generator = torch.Generator()

    def _build(self, setting: Setting) -> Any:
        """A loader of a setting. PyTorch warns of more workers than cores; whether they help is what is tried."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return self._make_loader(**self._arguments(setting))

    def _arguments(self, setting: Setting) -> Mapping[str, Any]:
        """What the factory is called with: what is not as written, without what PyTorch refuses where no worker is."""
        changed = {name: value for name, value in setting.items() if value != self.as_written[name]}
        for name in OURS:
            changed.pop(name, None)
        if setting.get("num_workers", self._written.num_workers):
            return changed
        return {name: value for name, value in changed.items() if name not in OF_WORKERS}

    def _loader_of(self, setting: Setting) -> Any:
        """One loader for all epochs of a setting, as in a job without tuning: its workers may persist."""
        for known, loader in self._loaders:
            if known == setting:
                return loader
        loader = self._build(setting)
        self._loaders.append((setting, loader))
        return loader

    def let_go(self, setting: Setting, stays: Setting) -> None:
        """Workers that persist end; the next epoch of this setting, if there is one, starts others."""
        for known, loader in self._loaders:
            if known == setting:
                _end(loader)
        if setting.get(CACHE) and not stays.get(CACHE):
            for function in self._functions():
                function.let_go()

    def cache_bytes(self) -> int:
        """Of results that the user's functions, or the dataset, have made."""
        return sum(function.size_bytes for function in self._functions())

    def close(self) -> None:
        """Workers that persist end, but for those of the user's own loader, which may go on without us."""
        for known, loader in self._loaders:
            if known != self.as_written:
                _end(loader)

    def _functions(self) -> Sequence[Cached[Any]]:
        """Whose results may be kept: the user's, or the dataset's samples as a whole."""
        return marked_functions() if self._whole is None else [self._whole]

    def _feed(
        self,
        loader: Any,
        setting: Setting,
        order: "EpochOrder",
        positions: Positions,
        start: int,
        *,
        persists: bool = False,
    ) -> Feed:
        drawn = vars(loader).get("_phasepoint_drawn")
        if drawn is None:
            drawn = _instrument(loader, self._whole, caches=bool(setting.get(CACHE)))
        drawn.begin(order, positions, start)
        if setting == self.as_written or not loader.num_workers:
            return TorchFeed(iter(loader), drawn.times, drawn.drawn, persists=persists)
        is_forked = _start_method(loader) == "fork"
        loader.timeout = loader.timeout or (self.silent_s if is_forked else max(self.silent_s, HANG_S))
        loader.worker_init_fn = LimitedStart(_own_start(loader.worker_init_fn), self.worker_bytes)
        with warnings.catch_warnings(), _unwatched():
            warnings.simplefilter("ignore", UserWarning)
            iterator = iter(loader)
        ahead = int(setting.get(RECEIVE_AHEAD) or 0)
        return TorchFeed(iterator, drawn.times, drawn.drawn, persists=persists, receive_ahead=ahead)


def _end(loader: Any) -> None:
    """End the workers of a loader that persist."""
    iterator, loader._iterator = loader._iterator, None
    end_workers(iterator)


def torch_width(setting: Setting, written: Any) -> Width:
    """What a setting of a loader means for the pipeline; what it does not name is as written."""
    workers = int(setting.get("num_workers", written.num_workers))
    ahead = int(setting.get("prefetch_factor") or _ahead_of(written))
    persist = bool(setting.get("persistent_workers", written.persistent_workers))
    receive_ahead = int(setting.get(RECEIVE_AHEAD) or 0) if workers else 0
    ahead = workers * ahead + receive_ahead
    starts = bool(workers) and not persist
    return Width(workers, ahead, starts=starts, receives_ahead=receive_ahead > 0, caches=bool(setting.get(CACHE)))


def forks_threads(loader: Any) -> bool:
    """Whether workers would be forked that the user has not asked for from a process in which JAX runs threads.

    A lock that a thread of JAX holds at that moment stays locked in the worker for ever (Python warns of it).
    """
    return "jax" in sys.modules and not loader.num_workers and _start_method(loader) == "fork"


def _drawing(effect: Effect) -> Effect:
    """What a knob changes where making batches draws random numbers."""
    return Effect.RANDOM_NUMBERS if effect in FREE else effect


def _start_method(loader: Any) -> str:
    """How its workers are started."""
    context = loader.multiprocessing_context or multiprocessing
    return str(context.get_start_method())


def _own_start(worker_init_fn: Any) -> Any:
    """The user's, where the loader was begun before."""
    return worker_init_fn.own if isinstance(worker_init_fn, LimitedStart) else worker_init_fn


@contextmanager
def _unwatched() -> Iterator[None]:
    """Keep workers that start meanwhile out of PyTorch's watch, which raises wherever the job is when one dies: inside
    of a queue that left its lock locked for ever. A death shows when a batch is asked for, and costs the trial."""
    from torch.utils.data._utils import signal_handling

    watch = getattr(signal_handling, "_set_worker_pids", lambda _key, _pids: None)
    signal_handling._set_worker_pids = lambda key, _pids: watch(key, ())  # a watch of nobody, which can be ended
    try:
        yield
    finally:
        signal_handling._set_worker_pids = watch


def _knobs(loader: Any, cpus: int, functions: Sequence[Cached[Any]]) -> tuple[Knob, ...]:
    effect = Effect.NOTHING if loader.in_order else Effect.ORDER
    counts = worker_counts(cpus, loader.num_workers)
    of_loader = loader_knobs(loader, counts, workers=effect, persisting=Effect.NOTHING, turn=Turn.REBUILD)
    receive = Knob(RECEIVE_AHEAD, (0, _RECEIVED), Effect.NOTHING, Turn.REBUILD)
    caching = Effect.NOTHING if marked_functions() else Effect.CACHE
    cache = [Knob(CACHE, (False, True), caching, Turn.EPOCH)] if functions and CAN_KEEP else []
    return (*of_loader, receive, *cache)


def _whole_samples(dataset: Any) -> Cached[Any] | None:
    """A dataset's samples as results that may be kept; None where the user marks others, or it makes many at once."""
    if marked_functions() or hasattr(dataset, "__getitems__") or not hasattr(dataset, "__len__"):
        return None
    return Cached(dataset.__getitem__, is_marked=False)


def loader_knobs(
    loader: Any, counts: tuple[int, ...], *, workers: Effect, persisting: Effect, turn: Turn
) -> tuple[Knob, ...]:
    """Those of every such loader.

    Args:
        loader: as written.
        counts: numbers of workers that may be tried.
        workers: what another number of workers may change.
        persisting: what workers that outlive their epoch may change.
        turn: when the number of workers, and how far they are ahead, can be turned.
    """
    return (
        Knob("num_workers", counts, workers, turn),
        Knob("prefetch_factor", tuple(sorted({*AHEAD, _ahead_of(loader)})), Effect.NOTHING, turn),
        Knob("persistent_workers", (False, True), persisting, Turn.EPOCH),
    )


def value_as_written(loader: Any, knob: Knob) -> Any:
    """What a knob is set to in the loader as written."""
    if knob.name == "prefetch_factor":
        return _ahead_of(loader)
    return getattr(loader, knob.name, knob.values[0])


def _ahead_of(loader: Any) -> int:
    return int(loader.prefetch_factor or _DEFAULT_AHEAD)


class EpochOrder:
    """One epoch's batches as the sampler gives them: lists of indices by position, the last ones kept.

    Attributes:
        generator_state: of the generator from which the seed of its workers was drawn, before it was.
    """

    generator_state: Any = None

    def __init__(self, sampler: Any, seeds: tuple[int, ...] | None = None) -> None:
        self.seeds = seeds
        self._sampler = sampler
        self._drawn: dict[int, Any] = {}
        self._next = 0
        self._iterator: Iterator[Any] | None = None

    def draw(self) -> None:
        """Draw what the sampler draws when it is asked first, which is when the epoch begins."""
        with suppress(IndexError):
            self.at(0)

    def at(self, position: int) -> Any:
        """What the batch at a position holds. Raises IndexError beyond the epoch's end."""
        if self._iterator is None:
            self._iterator = iter(self._sampler)
        while self._next <= position:
            try:
                self._drawn[self._next] = next(self._iterator)
            except StopIteration:
                raise IndexError(position) from None
            self._drawn.pop(self._next - _KEPT_BATCHES, None)
            self._next += 1
        return self._drawn[position]


class DrawnSampler:
    """In place of a loader's sampler: gives the positions of one feed."""

    def __init__(self) -> None:
        self.times: Any = None
        self.drawn = deque[int]()
        self._position = 0
        self._order: EpochOrder | None = None
        self._positions: Positions = lambda _position: None

    def begin(self, order: EpochOrder, positions: Positions, start: int) -> None:
        """A new feed of the same loader."""
        self._order, self._positions, self._position = order, positions, start
        self.drawn = deque[int]()

    def __iter__(self) -> "DrawnSampler":
        return self

    def __next__(self) -> NumberedIndices:
        position = self._positions(self._position)
        if position is None or self._order is None:
            raise StopIteration
        try:
            indices = self._order.at(position)
        except IndexError:
            raise StopIteration from None
        self._position = position + 1
        self.drawn.append(position)
        return NumberedIndices(position, indices, self._order.seeds)


def _instrument(loader: Any, whole: Cached[Any] | None, *, caches: bool) -> DrawnSampler:
    """Put our sampler in place of the loader's and time its batches; its attributes may not be set once it is made."""
    drawn = DrawnSampler()
    drawn.times = new_times(loader.multiprocessing_context or multiprocessing if loader.num_workers else None)
    attributes = vars(loader)
    attributes["batch_sampler" if loader.batch_sampler is not None else "sampler"] = drawn
    attributes["dataset"] = TimedDataset(loader.dataset, drawn.times, whole, caches)
    attributes["collate_fn"] = TimedCollate(loader.collate_fn, drawn.times)
    attributes["_phasepoint_drawn"] = drawn
    return drawn
