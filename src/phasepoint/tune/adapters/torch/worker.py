"""What of a tuned PyTorch loader runs in its workers: the dataset and the collation, timed where batches are made.

The dataset is wrapped and otherwise untouched: what it does not find in the wrapper is its own.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from phasepoint.tune.cache import Cacheable, Cached, cacheable, caching
from phasepoint.tune.limits import limit_data, run_delay_ns
from phasepoint.tune.source import BatchTime, random_fingerprint, random_numbers_kept, seed_random_numbers

_SLOTS = 1024
"""Batches whose times are kept; more than are ever under way at once."""

_FIELDS = 8  # of a slot: position + 1, three times, arrays, and a `Cacheable`

_WATCHED = 16
"""Of each process the first batches, and then one in so many: whether making them draws random numbers. 0.1 ms each."""

_open_batch = threading.local()


def new_times(context: Any | None) -> Any:
    """Where times go: an array that processes of a context share; None where the loop's own thread makes batches.

    Its last number is not 0 once the making of a batch has drawn random numbers.
    """
    size = _FIELDS * _SLOTS + 1
    return [0] * size if context is None else context.RawArray("q", size)


def draws_random_numbers(times: Any) -> bool:
    """Whether the making of a batch has drawn some, as far as was seen."""
    return bool(times[-1])


def read_time(times: Any, position: int) -> BatchTime | None:
    """What making the batch at a position took; None where it was not made, or long ago."""
    slot = _FIELDS * (position % _SLOTS)
    if times[slot] != position + 1:
        return None
    wall_ns, cpu_ns, delay_ns, arrays, *kept = times[slot + 1 : slot + _FIELDS]
    return BatchTime(wall_ns, cpu_ns, delay_ns, Cacheable(*kept), arrays)


class NumberedIndices:
    """Indices of one batch (or one index, where the dataset makes batches), its position in the epoch, its seeds."""

    def __init__(self, position: int, indices: Any, seeds: tuple[int, ...] | None) -> None:
        self.position = position
        self.indices = indices
        self.seeds = None if seeds is None else (*seeds, position)


class TimedDataset:
    """A dataset whose batches are timed where they are made. Everything else is the dataset's own.

    Args:
        dataset: the user's.
        times: where times go.
        whole: its `__getitem__`, where whole samples may be kept; None where the user says what may.
        caches: whether results are kept.
    """

    def __init__(self, dataset: Any, times: Any, whole: Cached[Any] | None = None, caches: bool = False) -> None:
        vars(self).update(_dataset=dataset, _times=times, _whole=whole, _caches=caches)

    def __getitems__(self, numbered: NumberedIndices) -> Any:
        dataset, indices, make = vars(self)["_dataset"], numbered.indices, vars(self)["_whole"]
        together = getattr(dataset, "__getitems__", None)
        with _Timed(numbered), caching(caches=vars(self)["_caches"]):
            if make is None and together:
                return together(indices)
            if make is not None and (vars(self)["_caches"] or not make.is_measured):
                return [make(index) for index in indices]
            began_ns = time.perf_counter_ns()
            samples = [dataset[index] for index in indices]
            if make is not None:  # not one by one: a sample may take a microsecond
                make.note(len(indices), time.perf_counter_ns() - began_ns)
            return samples

    def __getitem__(self, numbered: Any) -> Any:
        dataset = vars(self)["_dataset"]
        if not isinstance(numbered, NumberedIndices):
            return dataset[numbered]
        with _Timed(numbered), caching(caches=vars(self)["_caches"]):
            return dataset[numbered.indices]

    def __len__(self) -> int:
        return len(vars(self)["_dataset"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_dataset" not in vars(self):
            raise AttributeError(name)
        return getattr(vars(self)["_dataset"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_dataset"], name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return TimedDataset, tuple(vars(self)[name] for name in ("_dataset", "_times", "_whole", "_caches"))


class TimedCollate:
    """The loader's own `collate_fn`; it ends a batch."""

    def __init__(self, collate: Callable[[Any], Any], times: Any) -> None:
        self._collate, self._times = collate, times

    def __call__(self, samples: Any) -> Any:
        """The batch of these samples."""
        batch = self._collate(samples)
        _end(self._times, batch)
        return batch


class _Timed:
    """The making of a batch, until it is collated; random numbers of its own end with the samples, or with an error."""

    def __init__(self, numbered: NumberedIndices) -> None:
        self._numbered = numbered
        self._kept = random_numbers_kept() if numbered.seeds is not None else None

    def __enter__(self) -> None:
        if self._kept is not None:
            self._kept.__enter__()
            seed_random_numbers(self._numbered.seeds or ())
        if getattr(_open_batch, "process", None) != os.getpid():  # a fork takes the count over
            _open_batch.process, _open_batch.count = os.getpid(), 0
        _open_batch.count = count = _open_batch.count + 1
        is_watched = self._kept is None and (count <= _WATCHED or not count % _WATCHED)
        _open_batch.before = random_fingerprint() if is_watched else None
        times = time.perf_counter_ns(), time.thread_time_ns(), run_delay_ns()
        _open_batch.begun = self._numbered.position, *times

    def __exit__(self, *error: object) -> None:
        if self._kept is not None:
            self._kept.__exit__(None, None, None)


def _end(times: Any, batch: Any) -> None:
    begun = getattr(_open_batch, "begun", None)
    if begun is not None:
        position, wall_ns, cpu_ns, delay_ns = begun
        slot = _FIELDS * (position % _SLOTS)
        times[slot + 1] = time.perf_counter_ns() - wall_ns
        times[slot + 2] = time.thread_time_ns() - cpu_ns
        times[slot + 3] = run_delay_ns() - delay_ns
        times[slot + 4] = _arrays_in(batch)
        times[slot + 5 : slot + _FIELDS] = cacheable()
        times[slot] = position + 1
        if _open_batch.before is not None and random_fingerprint() != _open_batch.before:
            times[-1] = 1
        _open_batch.begun = None


def _arrays_in(batch: Any) -> int:
    """What is handed over one by one between processes."""
    if isinstance(batch, dict):
        batch = batch.values()
    elif not isinstance(batch, list | tuple):
        return int(hasattr(batch, "shape"))
    return sum(map(_arrays_in, batch))


class LimitedStart:
    """Begins a worker that the user did not ask for: the kernel keeps it within its share of the memory.

    Args:
        own: the user's `worker_init_fn`.
        most_bytes: that it may add to what it has of the job when it begins; None sets no limit.
    """

    def __init__(self, own: Callable[[int], None] | None, most_bytes: int | None) -> None:
        self.own, self._most_bytes = own, most_bytes

    def __call__(self, worker: int) -> None:
        """Run in the worker."""
        if self._most_bytes is not None:
            limit_data(self._most_bytes)
        if self.own is not None:
            self.own(worker)
