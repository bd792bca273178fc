"""Programs beside a job that work and are stopped in turns, and what they cost it, by the job's own pace."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np

from noise import Process, running_beside
from phasepoint.sources.ingest.opened import open_run

NEIGHBOURS_A_CORE = 2
ON_S = 2.0
"""For how long they work at a time, about."""

EDGE_S = 0.1
"""Left out on either side of a change when the pace is taken: a step is partly of both."""

Stretch = tuple[float, float]
"""From when to when the neighbours worked, Unix seconds."""


@contextmanager
def in_turns(share: float, *, seed: int) -> Iterator[list[Stretch]]:
    """Neighbours that cost a job of one thread about this share of its time; gives the stretches in which they worked.

    Beside so many for each core a job gets 1 / (1 + so many) of its core.
    """
    count = NEIGHBOURS_A_CORE * (os.cpu_count() or 1)
    off_s = ON_S * max(NEIGHBOURS_A_CORE / (1 + NEIGHBOURS_A_CORE) / share - 1, 0.1)
    stretches: list[Stretch] = []
    ended, rng = threading.Event(), random.Random(seed)

    def take_turns(running: Sequence[Process]) -> None:
        tell(running, signal.SIGSTOP)
        while not ended.wait(off_s * rng.uniform(0.5, 1.5)):
            began = time.time()
            tell(running, signal.SIGCONT)
            ended.wait(ON_S * rng.uniform(0.5, 1.5))
            tell(running, signal.SIGSTOP)
            stretches.append((began, time.time()))

    with running_beside(("compute",) * count, on_s=0, off_s=0, seed=seed) as running:
        thread = threading.Thread(target=take_turns, args=(running,))
        thread.start()
        try:
            yield stretches
        finally:
            ended.set()
            thread.join()


def tell(running: Sequence[Process], number: signal.Signals) -> None:
    """Send all processes a signal."""
    for process in running:
        process.send_signal(number)


def lost_to_neighbours(run: Path, stretches: Sequence[Stretch]) -> tuple[float, float]:
    """Seconds that the job lost while they worked, and the standard error.

    Each such stretch is held against the pace of the calm ones before and after it; where these differ, the machine
    wandered, and half of the difference is the error.
    """
    opened = open_run(str(run))
    steps = opened.table("steps").to_pydict()
    starts = np.sort(np.asarray(steps["start_ps"])) / 1e12 + opened.shards[0].session.epoch_unix_ns / 1e9
    counted = np.arange(len(starts), dtype=float)
    first, last = float(starts[0]), float(starts[-1])
    inside = [(max(a, first), min(b, last)) for a, b in stretches if b > first and a < last]

    def made(begin: float, end: float) -> float:
        return float(np.diff(np.interp([begin, end], starts, counted))[0])

    edges = [(first, first), *inside, (last, last)]
    calm = [(a[1] + EDGE_S, b[0] - EDGE_S) for a, b in pairwise(edges)]
    pace = np.array([made(a, b) / (b - a) if b - a > EDGE_S else np.nan for a, b in calm])
    around = np.column_stack((pace[:-1], pace[1:]))
    mean = np.nanmean(around, axis=1)
    lost = [b - a - made(a, b) / rate for (a, b), rate in zip(inside, mean, strict=True)]
    errors = [
        made(a, b) / rate * np.nan_to_num(abs(one - two) / 2 / rate)
        for (a, b), rate, (one, two) in zip(inside, mean, around, strict=True)
    ]
    return float(np.sum(lost)), float(np.sqrt(np.sum(np.square(errors))))
