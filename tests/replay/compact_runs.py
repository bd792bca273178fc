"""Steps of one host made by hand for the tests of compacts, and a slow oracle of what chosen ones say of the whole."""

import math
import statistics
from fractions import Fraction

import numpy as np
import pyarrow as pa

from phasepoint.estimates.captured import PARTS, Captured
from phasepoint.phases.clock.steps import read_series
from phasepoint.replay.compact.compact import HostSteps

MS = 10**9


def series(dur_ps, input_ps, compile_ps):
    """Steps as the clock knows them."""
    return read_series(pa.table({"dur_ps": dur_ps, "input_ps": input_ps, "compile_ps": compile_ps}))


def host_steps(n, rng, *, captured="all", phases=3):
    """Steps of several phases and lengths, a few of them far longer, with parts that add up.

    Captured are all, some or none; some: windows of five steps, one in ten.
    """
    phase = (np.arange(n) // 25) % phases
    dur = ((1 + phase) * MS * np.exp(0.1 * rng.normal(size=n))).astype(np.int64)
    dur[rng.random(n) < 0.02] *= 9
    input_ps = (dur * rng.uniform(0, 0.3, n) * (phase == 1)).astype(np.int64)
    compile_ps = np.zeros(n, np.int64)
    shares = rng.dirichlet(np.array([8, 0.5, 1, 2, 2, 0.2, 1, 0.1]), n)
    parts = np.floor(shares * dur[:, None]).astype(np.int64)
    parts[:, 0] += dur - parts.sum(axis=1)
    row = np.arange(n)
    if captured != "all":
        row = row[(row // 5) % 10 == 3] if captured == "some" else row[:0]
    of_window = Captured(row, row // 5, np.full(len(row), 10.0), parts[row])
    return HostSteps(0, np.arange(n), series(dur, input_ps, compile_ps), of_window, phase)


def oracle(stratum, values, size):
    """Total and standard error of a stratified sample, by the book, in plain Python.

    Returns the exact total, the variance as float, and Welch's degrees of freedom.
    """
    total, variance, weighted = Fraction(0), 0.0, 0.0
    for index, n_all in enumerate(size):
        mine = [value for value, where in zip(values, stratum, strict=True) if where == index]
        if not mine:
            continue
        total += Fraction(n_all) * Fraction(sum(mine), len(mine))
        if len(mine) == n_all:
            continue
        part = float(n_all * (n_all - len(mine)) * statistics.variance(map(Fraction, mine)) / len(mine))
        variance += part
        weighted += part**2 / (len(mine) + 1)
    return total, variance, math.inf if not weighted else variance**2 / weighted - 2


__all__ = ["MS", "PARTS", "host_steps", "oracle"]
