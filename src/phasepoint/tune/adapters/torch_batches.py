"""`torch.utils.data.DataLoader` over a dataset with indices: workers and how far they are ahead.

One epoch has one order of batches, drawn from the sampler of the loader as written, just when and how that loader would
draw it. Every loader that is built makes the batches at its own positions of this order, so that a change in the middle
of an epoch loses, repeats and exchanges nothing. Loaders that are built in the middle of an epoch leave the generators
of random numbers as they were.
"""

import multiprocessing
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from phasepoint.tune.adapters.torch_worker import (
    LimitedStart,
    NumberedIndices,
    TimedCollate,
    TimedDataset,
    new_times,
    read_time,
)
from phasepoint.tune.knobs import Effect, Knob, Setting, Turn
from phasepoint.tune.pipeline import Width
from phasepoint.tune.source import BatchTime, Feed, Positions, WrongBatchError, random_numbers_kept

AHEAD = (2, 4, 8)
"""Batches that each worker may be ahead: PyTorch's default, and more where single batches are slow."""

HANG_S = 20.0
"""How long a worker that is not forked may take to begin: it imports what the job does. A choice."""

_KEPT_BATCHES = 4096
"""Indices of so many batches are kept: more than lie between a batch that failed and the last one that was begun."""

_DEFAULT_AHEAD = 2  # PyTorch's


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
        self._reseed = reseed
        self._epochs = 0
        self._written = written
        self._sampler = written.batch_sampler if written.batch_sampler is not None else written.sampler
        found = tuple(knob for knob in _knobs(written, cpus) if accepted is None or knob.name in accepted)
        self.knobs: Sequence[Knob] = tuple(declared) or found
        written_values = {"num_workers": written.num_workers, "prefetch_factor": _ahead_of(written)}
        self.as_written: Setting = {knob.name: _written(written, knob, written_values) for knob in self.knobs}
        self._loaders: list[tuple[Setting, Any]] = [(self.as_written, written)]

    @staticmethod
    def takes(loader: Any) -> bool:
        """Whether it is such a loader: one whose sampler gives indices."""
        from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe

        streams = IterableDataset | IterDataPipe | MapDataPipe
        return isinstance(loader, DataLoader) and not isinstance(loader.dataset, streams)

    def length(self) -> int | None:
        """Batches of an epoch."""
        try:
            return len(self._sampler)
        except TypeError:
            return None

    def width(self, setting: Setting) -> Width:
        """Workers, and batches under way."""
        workers = int(setting.get("num_workers", 0))
        return Width(workers, workers * int(setting.get("prefetch_factor") or _DEFAULT_AHEAD))

    def begin_epoch(self) -> "EpochOrder":
        """The sampler is asked for a new order when its first batch is."""
        self._epochs += 1
        return EpochOrder(self._sampler, None if self._reseed is None else (self._reseed, self._epochs))

    def open(
        self, order: "EpochOrder", setting: Setting, positions: Positions, *, start: int, begins_epoch: bool = False
    ) -> Feed:
        """A loader of this setting whose sampler gives what this feed makes."""
        if begins_epoch:
            return self._feed(self._loader_of(setting), setting, order, positions, start)
        import torch

        with random_numbers_kept():
            loader = self._build(setting)
        loader.generator = torch.Generator()  # its workers' seed is drawn from this, and from no other
        return self._feed(loader, setting, order, positions, start)

    def _build(self, setting: Setting) -> Any:
        """A loader of a setting. PyTorch warns of more workers than cores; whether they help is what is tried."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return self._make_loader(**_arguments(setting))

    def _loader_of(self, setting: Setting) -> Any:
        """One loader for all epochs of a setting, as in a job without tuning: its workers may persist."""
        for known, loader in self._loaders:
            if known == setting:
                return loader
        loader = self._build(setting)
        self._loaders.append((setting, loader))
        return loader

    def _feed(self, loader: Any, setting: Setting, order: "EpochOrder", positions: Positions, start: int) -> Feed:
        drawn = vars(loader).get("_phasepoint_drawn")
        if drawn is None:
            drawn = _instrument(loader)
        drawn.begin(order, positions, start)
        if setting == self.as_written or not loader.num_workers:
            return TorchFeed(iter(loader), drawn)
        is_forked = _start_method(loader) == "fork"
        loader.timeout = loader.timeout or (self.silent_s if is_forked else max(self.silent_s, HANG_S))
        loader.worker_init_fn = LimitedStart(_own_start(loader.worker_init_fn), self.worker_bytes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return TorchFeed(_unguarded(iter(loader)), drawn)


def _start_method(loader: Any) -> str:
    """How its workers are started."""
    context = loader.multiprocessing_context or multiprocessing
    return str(context.get_start_method())


def _own_start(worker_init_fn: Any) -> Any:
    """The user's, where the loader was begun before."""
    return worker_init_fn.own if isinstance(worker_init_fn, LimitedStart) else worker_init_fn


def _unguarded(iterator: Any) -> Any:
    """Take its workers out of PyTorch's watch, which raises in the job's own code when one dies.

    The death of a worker shows when a batch is asked for, too, and then the setting in force makes that batch.
    """
    from torch import _C

    remove = getattr(_C, "_remove_worker_pids", None)
    if remove is not None and getattr(iterator, "_worker_pids_set", False):
        remove(id(iterator))
        iterator._worker_pids_set = False
    return iterator


def _knobs(loader: Any, cpus: int) -> tuple[Knob, ...]:
    effect = Effect.NOTHING if loader.in_order else Effect.ORDER
    return (
        Knob("num_workers", tuple(range(max(cpus, loader.num_workers) + 1)), effect, Turn.REBUILD),
        Knob("prefetch_factor", tuple(sorted({*AHEAD, _ahead_of(loader)})), Effect.NOTHING, Turn.REBUILD),
    )


def _written(loader: Any, knob: Knob, values: Mapping[str, Any]) -> Any:
    """What a knob is set to in the loader as written."""
    return values[knob.name] if knob.name in values else getattr(loader, knob.name, knob.values[0])


def _ahead_of(loader: Any) -> int:
    return int(loader.prefetch_factor or _DEFAULT_AHEAD)


def _arguments(setting: Setting) -> Mapping[str, Any]:
    """What the factory is called with: PyTorch refuses `prefetch_factor` without workers."""
    return {name: value for name, value in setting.items() if name != "prefetch_factor" or setting.get("num_workers")}


class EpochOrder:
    """One epoch's batches as the sampler gives them: lists of indices by position, the last ones kept."""

    def __init__(self, sampler: Any, seeds: tuple[int, ...] | None = None) -> None:
        self.seeds = seeds
        self._sampler = sampler
        self._drawn: dict[int, Any] = {}
        self._next = 0
        self._iterator: Iterator[Any] | None = None

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


def _instrument(loader: Any) -> DrawnSampler:
    """Put our sampler in place of the loader's and time its batches; its attributes may not be set once it is made."""
    drawn = DrawnSampler()
    drawn.times = new_times(loader.multiprocessing_context or multiprocessing if loader.num_workers else None)
    attributes = vars(loader)
    attributes["batch_sampler" if loader.batch_sampler is not None else "sampler"] = drawn
    attributes["dataset"] = TimedDataset(loader.dataset, drawn.times)
    attributes["collate_fn"] = TimedCollate(loader.collate_fn, drawn.times)
    attributes["_phasepoint_drawn"] = drawn
    return drawn


class TorchFeed:
    """An iterator of such a loader."""

    def __init__(self, iterator: Any, drawn: DrawnSampler) -> None:
        self._iterator = iterator
        self._times, self._drawn = drawn.times, drawn.drawn

    def take(self, position: int) -> Any:
        """The next batch.

        Raises:
            WrongBatchError: it is another one.
        """
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise
        except BaseException:
            self._drawn.popleft()
            raise
        if self._drawn.popleft() != position:
            raise WrongBatchError(f"the batch at position {position} is not the next one")
        return batch

    def time_of(self, position: int) -> BatchTime | None:
        """As the worker measured it."""
        return read_time(self._times, position)

    def close(self) -> None:
        """Let go of the iterator on another thread: its workers finish the batches that they are making."""
        iterator, self._iterator = self._iterator, iter(())
        ending = threading.Thread(target=_let_go, args=([iterator],), name="phasepoint-close", daemon=True)
        del iterator
        with suppress(RuntimeError):  # the interpreter ends; PyTorch ends its workers then
            ending.start()


def _let_go(held: list[Any]) -> None:
    iterator = held.pop()
    shut_down = getattr(iterator, "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()
