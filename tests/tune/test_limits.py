"""Amounts of memory, and what the process tree takes."""

import os
import subprocess
import sys

import pytest

from phasepoint.tune.limits import parse_bytes, process_tree, tree_bytes, usable_cpus, usable_memory_bytes
from phasepoint.tune.live.memory_watch import MemoryWatch


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GB", 8 * 10**9),
        ("512 MiB", 512 << 20),
        ("1.5g", 1_500_000_000),
        ("7", 7),
        (2**20, 2**20),
        ("2TB", 2 * 10**12),
    ],
)
def test_amounts(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "much", "8 XB", "-1GB", 0, "0", "1.2.3GB"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ValueError, match="memory is"):
        parse_bytes(text)


def test_a_child_counts_with_its_own_pages():
    before = tree_bytes()
    hold = "import sys, time; held = bytearray(200 << 20); print('there', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline()
        assert child.pid in set(process_tree(os.getpid()))
        assert tree_bytes() - before > 190 << 20
    finally:
        child.communicate()
    assert child.pid not in set(process_tree(os.getpid()))


def test_this_machine_has_something():
    assert usable_cpus() >= 0.1
    assert usable_memory_bytes() > 1 << 28


def test_a_watch_is_full_before_its_limit():
    amounts = iter([900, 949, 951])
    watch = MemoryWatch(1000, lambda: next(amounts))
    states = []
    for _ in range(3):
        watch.look()
        states.append(watch.is_full)
    assert states == [False, False, True]
    assert watch.most_bytes == 951


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError])
def test_a_process_that_ends_while_it_is_looked_at_has_no_children(monkeypatch, error):
    def gone(_):
        raise error

    monkeypatch.setattr(os, "listdir", gone)
    assert list(process_tree(1)) == [1]
