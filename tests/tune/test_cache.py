"""Results kept from one epoch to the next: found by all processes, under no other key, within their memory."""

import multiprocessing
import os
import pickle
import signal
import threading

import pytest

from phasepoint.tune.cache import CAN_KEEP, Cacheable, Cached, CacheFile, cacheable, caching, marked_functions

pytestmark = pytest.mark.skipif(not CAN_KEEP, reason="files without a name are Linux's")


def fill(file, first, count):
    for key in range(first, first + count):
        file.put(key, [key] * (key % 50))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:os.fork.. was called:RuntimeWarning")
def test_what_several_processes_keep_each_finds(method):
    context, file = multiprocessing.get_context(method), CacheFile(4000, 1 << 30)
    workers = [context.Process(target=fill, args=(file, first, 1500)) for first in (0, 500, 1000, 2500)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert all(file.get(key) == ([key] * (key % 50),) for key in range(4000))
    assert file.get(4000) is None
    lengths = [len(pickle.dumps((key, [key] * (key % 50)), pickle.HIGHEST_PROTOCOL)) for key in range(4000)]
    assert file.size_bytes == sum(lengths) + 8 * 4000  # each once, whoever made it


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:os.fork.. was called:RuntimeWarning")
def test_a_process_that_dies_while_it_keeps_something_stops_nobody():
    context, file = multiprocessing.get_context("fork"), CacheFile(1_000_000, 1 << 30)
    worker = context.Process(target=fill, args=(file, 0, 1_000_000))
    worker.start()
    while not file.size_bytes:
        pass
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(60)
    done = threading.Event()
    threading.Thread(target=lambda: (file.put("last", 1), done.set()), daemon=True).start()
    assert done.wait(30)
    assert file.get("last") == (1,)
    assert file.get(0) == ([],)


def test_what_does_not_fit_is_not_kept():
    file = CacheFile(10, 100)
    file.put("small", 1)
    file.put("large", bytes(200))
    assert file.get("small") == (1,)
    assert file.get("large") is None
    assert file.size_bytes <= 100
    many = CacheFile(2, 1 << 20)
    fill(many, 0, 100)
    assert sum(many.get(key) is not None for key in range(100)) in range(2, 7)


def test_keys_that_share_a_mark_are_told_apart(monkeypatch):
    monkeypatch.setattr("phasepoint.tune.cache._mark", lambda key: 7)
    file = CacheFile(10, 1 << 20)
    file.put("one", 1)
    file.put("two", 2)
    assert (file.get("one"), file.get("two")) == ((1,), None)


def test_what_cannot_be_kept_is_made_anew():
    made = []

    def lock_of(key):
        made.append(key)
        return threading.Lock()

    kept = Cached(lock_of)
    kept.keep(10, 1 << 20)
    with caching(caches=True):
        first, second = kept(1), kept(1)
    assert made == [1, 1]
    assert first is not second
    assert not kept.size_bytes


def test_results_are_kept_only_while_a_batch_that_keeps_is_made():
    made = []

    def double(key):
        made.append(key)
        return 2 * key

    kept = Cached(double)
    assert kept in marked_functions()
    with caching(caches=True):
        assert kept(3) == 6  # nothing says yet that it may be kept
    kept.keep(10, 1 << 20)
    for caches in (True, True, False):
        with caching(caches=caches):
            assert (kept(3), kept([1])) == (6, [1, 1])  # a list is no key
    assert made == [3, 3, [1], [1], 3, [1]]
    kept.let_go()
    with caching(caches=True):
        kept(3)
    assert made[-1] == 3


def test_a_batch_tells_what_of_it_could_be_kept():
    kept = Cached(lambda key: bytes(1000))
    with caching(caches=False):
        for key in range(8):
            kept(key)
    told = cacheable()
    assert told.made_ns > 0
    assert 8 * 1000 < told.size_bytes < 8 * 1100
    with caching(caches=False):
        pass
    assert cacheable() == Cacheable(0, 0, 0)
    locks = Cached(lambda key: threading.Lock())
    with caching(caches=False):
        locks(1)
    assert cacheable() == Cacheable()  # they cannot be kept


def test_a_kept_function_goes_to_another_process():
    kept = Cached(abs)
    kept.keep(10, 1 << 20)
    with caching(caches=True):
        kept(-3)
    other = pickle.loads(pickle.dumps(kept))
    assert other.size_bytes == kept.size_bytes > 0
    assert other._file.get(-3) == (3,)
