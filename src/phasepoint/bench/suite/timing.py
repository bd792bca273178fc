"""How a pair is timed, in its own process. The standard library alone.

Its own file: it also goes into a packed benchmark, which runs where nothing is installed.
"""

import itertools
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from phasepoint.core.units import PS_PER_NS

BATCH_PART = 0.5
"""Part of the seconds for latencies that each batch size's throughput is measured for."""

MOST_WORDS = 500
"""Characters of an error that are kept."""

LEAST_SAMPLES = 5
"""Latencies, however long one takes. A choice: the middle of fewer says little."""

MOST_SAMPLES = 20_000
"""Latencies of a pair that are kept."""

WARM_RUNS, WARM_S = 3, 0.3
"""Runs before the first that counts: both at least. A choice: caches are warm after one, a core's clock after 0.1 s."""


def warm_up(run: Callable[[], Any]) -> None:
    """Runs that do not count."""
    end_s = time.perf_counter() + WARM_S
    for number in itertools.count():
        if number >= WARM_RUNS and time.perf_counter() > end_s:
            return
        run()


def measure_latencies(run: Callable[[], Any], *, seconds: float) -> list[int]:
    """Times of runs one after the other in ps.

    Args:
        run: returns when its result is there.
        seconds: that is measured; at least `LEAST_SAMPLES` runs however long they take.
    """
    end_s = time.perf_counter() + seconds
    times_ps: list[int] = []
    while len(times_ps) < MOST_SAMPLES and (len(times_ps) < LEAST_SAMPLES or time.perf_counter() < end_s):
        began_ns = time.perf_counter_ns()
        run()
        times_ps.append((time.perf_counter_ns() - began_ns) * PS_PER_NS)
    return times_ps


def measure_speed(run: Callable[[], Any], batch: int, seconds: float) -> float:
    """Samples a second, after one run that does not count.

    Args:
        run: returns when the results of a batch are there.
        batch: samples in it.
        seconds: that is measured; one run at least.
    """
    run()
    began_ns, runs = time.perf_counter_ns(), 0
    while not runs or time.perf_counter_ns() - began_ns < seconds * 1e9:
        run()
        runs += 1
    return runs * batch * 1e9 / (time.perf_counter_ns() - began_ns)


def peak_bytes() -> int:
    """Most memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
