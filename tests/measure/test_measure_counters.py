"""Counters of the processor: what is asked of the system, and what is said where it refuses."""

import errno
import sys

import pytest

from phasepoint.core.errors import RecordError
from phasepoint.measure import counters as level_counters
from phasepoint.measure.counters import EVENTS, available_counters, counting


@pytest.fixture(autouse=True)
def _forget():
    available_counters.cache_clear()
    yield
    available_counters.cache_clear()


def refuse(number):
    def open_counter(event, thread):
        raise OSError(number, "refused")

    return open_counter


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="perf_event_open is Linux's")
@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.ENOENT, "shows its processes no such counter"), (errno.EACCES, "perf_event_paranoid"), (99, "refused")],
)
def test_a_machine_that_refuses_is_described(monkeypatch, number, reason):
    monkeypatch.setattr(level_counters, "_open", refuse(number))
    found, missing = available_counters()
    assert found == ()
    assert reason in missing
    assert all(event.name in missing for event in EVENTS)
    with pytest.raises(RecordError, match="no counters: "), counting(True):
        pass


def test_other_systems_have_none(monkeypatch):
    monkeypatch.setattr(level_counters.sys, "platform", "darwin")
    assert available_counters()[0] == ()
    assert "Linux" in available_counters()[1]


def test_counts_of_all_threads_add_up(monkeypatch, tmp_path):
    for thread in ("10", "11"):
        (tmp_path / thread).mkdir()
    counts = {3: 5, 4: 7}
    opened = iter(counts)
    monkeypatch.setattr(level_counters, "_TASKS", tmp_path)
    monkeypatch.setattr(level_counters, "available_counters", lambda: ((EVENTS[0],), None))
    monkeypatch.setattr(level_counters, "_open", lambda event, thread: next(opened))
    monkeypatch.setattr(level_counters, "_ioctl", lambda file, request: None)
    monkeypatch.setattr(level_counters.os, "read", lambda file, size: counts[file].to_bytes(8, sys.byteorder))
    closed = []
    monkeypatch.setattr(level_counters.os, "close", closed.append)
    with counting(True) as counters:
        assert counters() == {"cycles": 12}
    assert sorted(closed) == [3, 4]


def test_nothing_is_counted_unless_wanted():
    with counting(False) as counters:
        assert counters() == {}
