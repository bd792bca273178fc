"""`Cached`: a function whose results can stay in memory for the next epoch, shared by the loop and its workers.

Results lie in a file without a name, in memory: a table of keys, and behind it one result after the other. It is found
without a lock; those who add one take turns, under a lock that the kernel lets go of when its holder dies.
"""

import mmap
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from numbers import Integral
from statistics import median
from typing import Any, Generic, NamedTuple, TypeVar

Result = TypeVar("Result")

CAN_KEEP = hasattr(os, "memfd_create")
"""Linux alone has files without a name."""

_MEASURED_RESULTS = 5
"""Of each function in each process: their size, and how long it takes to make one of what was kept."""

_FULL_RATIO = 0.75  # of a table: beyond it, looking for a place becomes slow

_LENGTH_BYTES, _ENTRY, _HEADER = 8, 2, 2  # of a result's length; numbers of an entry; numbers before the first


class Cacheable(NamedTuple):
    """Of one batch, what its making spent in functions whose results can be kept.

    Attributes:
        made_ns: time in them.
        kept_ns: what the same would take with results that were kept, as far as it was measured.
        size_bytes: of the results, kept.
    """

    made_ns: int = 0
    kept_ns: int = 0
    size_bytes: int = 0


class _Batch(threading.local):
    """What is being made on a thread: whether results are kept, and what was spent."""

    caches = False
    spent = Cacheable()


_batch = _Batch()
_marked: "weakref.WeakSet[Cached[Any]]" = weakref.WeakSet()


class Cached(Generic[Result]):
    """A function of one argument whose results are kept where `loader` finds that it pays, and the memory is there.

    For what a dataset does before anything random: `ImageFolder(root, transform, loader=pp.tune.Cached(read_picture))`.
    The result must depend on the argument alone.

    Args:
        function: of one argument: a number, a text, a path, or a tuple of such.
        is_marked: whether it is one that the user has marked; then nothing else of a dataset is kept.

    Example:
        >>> square = Cached(lambda number: number * number)
        >>> square(3)
        9
    """

    def __init__(self, function: Callable[[Any], Result], *, is_marked: bool = True) -> None:
        self._function = function
        self._file: CacheFile | None = None
        self._measured: list[Cacheable] = []  # of the first results
        self._typical: Cacheable | None = None  # of one; None where they cannot be kept, or it is not known yet
        if is_marked:
            _marked.add(self)

    def __call__(self, key: Any) -> Result:
        """The result: one that was kept, where there is one."""
        began_ns = time.perf_counter_ns()
        file = self._file if _batch.caches and _is_key(key) else None
        found = None if file is None else file.get(key)
        result: Result = self._function(key) if found is None else found[0]
        made_ns = time.perf_counter_ns() - began_ns
        if found is None and file is not None:
            file.put(key, result)
        if not self.is_measured:
            self._measure(result)
        self.note(1, made_ns)
        return result

    @property
    def is_measured(self) -> bool:
        """Whether it is known what keeping a result would take."""
        return len(self._measured) >= _MEASURED_RESULTS

    def note(self, count: int, made_ns: int) -> None:
        """So many results of the batch that is made took so long."""
        typical, spent = self._typical, _batch.spent
        if typical is not None:
            _batch.spent = Cacheable(
                spent.made_ns + made_ns,
                spent.kept_ns + count * typical.kept_ns,
                spent.size_bytes + count * typical.size_bytes,
            )

    def _measure(self, result: Result) -> None:
        """What keeping a result would take."""
        try:
            data = pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
            began_ns = time.perf_counter_ns()
            pickle.loads(bytearray(data))
            self._measured.append(Cacheable(0, time.perf_counter_ns() - began_ns, len(data)))
        except Exception:  # noqa: BLE001 - whatever a user's class raises
            self._measured, self._typical = [Cacheable()] * _MEASURED_RESULTS, None
            return
        kept_ns = round(median(one.kept_ns for one in self._measured))
        size_bytes = sum(one.size_bytes for one in self._measured) // len(self._measured)
        self._typical = Cacheable(0, kept_ns, size_bytes)

    @property
    def size_bytes(self) -> int:
        """Of what is kept."""
        return 0 if self._file is None else self._file.size_bytes

    def keep(self, count: int, most_bytes: int) -> None:
        """Keep results from here on, of so many arguments, in so much memory."""
        if self._file is None:
            self._file = CacheFile(count, most_bytes)

    def let_go(self) -> None:
        """Nothing is kept any more."""
        self._file = None


def marked_functions() -> list[Cached[Any]]:
    """All functions of the job whose results the user lets be kept."""
    return list(_marked)


@contextmanager
def caching(*, caches: bool) -> Iterator[None]:
    """A batch is made: results are kept, and found again, or not; `cacheable` then tells of this batch."""
    _batch.caches, _batch.spent = caches, Cacheable()
    try:
        yield
    finally:
        _batch.caches = False


def cacheable() -> Cacheable:
    """Of the batch that was made last on this thread; nothing where results cannot be kept."""
    return _batch.spent


class CacheFile:
    """Results by key, for all processes that have inherited it, or got it pickled while its maker lives.

    Args:
        count: keys that may come.
        most_bytes: that results may take; what does not fit is not kept.
    """

    def __init__(self, count: int, most_bytes: int) -> None:
        self._entries = 1 << (2 * max(count, 1) - 1).bit_length()
        self._most_bytes = most_bytes
        self._descriptor = os.memfd_create("phasepoint-cache")
        self._place = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        os.ftruncate(self._descriptor, self._table_bytes)
        self._map()

    def __getstate__(self) -> tuple[int, int, str]:
        return self._entries, self._most_bytes, self._place

    def __setstate__(self, state: tuple[int, int, str]) -> None:
        self._entries, self._most_bytes, self._place = state
        self._descriptor = os.open(self._place, os.O_RDWR | os.O_CLOEXEC)
        self._map()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    @property
    def _table_bytes(self) -> int:
        return 8 * (_HEADER + _ENTRY * self._entries)

    def _map(self) -> None:
        self._table = memoryview(mmap.mmap(self._descriptor, self._table_bytes)).cast("q")

    @property
    def size_bytes(self) -> int:
        """Of all results."""
        return int(self._table[0])

    def get(self, key: Hashable) -> tuple[Any] | None:
        """The result of a key, alone in a tuple; None where none is kept."""
        mark = _mark(key)
        at = self._find(mark)
        if self._table[at] != mark:
            return None
        place = self._table[at + 1]
        length = int.from_bytes(os.pread(self._descriptor, _LENGTH_BYTES, place), "little")
        data = os.pread(self._descriptor, length, place + _LENGTH_BYTES)
        try:
            known, result = pickle.loads(data)
        except Exception:  # noqa: BLE001 - whatever a user's class raises: it is made anew
            return None
        return (result,) if known == key else None

    def put(self, key: Hashable, result: Any) -> None:
        """Keep a result, where there is room."""
        try:
            data = pickle.dumps((key, result), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001 - whatever a user's class raises: it is not kept
            return
        mark, taken_bytes = _mark(key), len(data) + _LENGTH_BYTES
        with self._alone():
            at, table = self._find(mark), self._table
            size_bytes, count = table[0], table[1]
            if table[at] or size_bytes + taken_bytes > self._most_bytes or count >= _FULL_RATIO * self._entries:
                return
            place = self._table_bytes + size_bytes
            os.pwrite(self._descriptor, len(data).to_bytes(_LENGTH_BYTES, "little") + data, place)
            table[0], table[1] = size_bytes + taken_bytes, count + 1
            table[at + 1] = place
            table[at] = mark  # from here on it is found

    def _find(self, mark: int) -> int:
        """Where in the table a mark stands, or would."""
        entry = mark % self._entries
        while self._table[_HEADER + _ENTRY * entry] not in (0, mark):
            entry = (entry + 1) % self._entries
        return _HEADER + _ENTRY * entry

    @contextmanager
    def _alone(self) -> Iterator[None]:
        import fcntl

        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)


def _is_key(key: Any) -> bool:
    """Whether it is the same in all processes, and equal to nothing else that reads alike."""
    if isinstance(key, tuple):
        return all(map(_is_key, key))
    return isinstance(key, Integral | str | bytes | os.PathLike)


def _mark(key: Hashable) -> int:
    """A number that stands for a key, the same in all processes; two keys may have the same."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest(), "little") >> 1 | 1
