"""A robust time per step of many ops at once, with what it becomes when a part of the run is left out.

What disturbs a step on a shared machine (a neighbour, a page fault, a preemption) only ever adds time, and disturbs one
recording more than the next. So an op's time per step is the mean of its faster half without the fastest tenth, over
the steps in which it runs, times the share of steps in which it runs. A slow-down of the op itself moves all its steps.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Floats, Int64s

LOWEST, HIGHEST = 0.1, 0.5
"""Ranks whose mean is the location, as shares of the steps in which the op runs."""

GROUPS = 20
"""Parts of a run that are left out in turn. Each must be longer than what neighbouring steps share."""


@dataclass(frozen=True, eq=False)
class Locations:
    """Time per step of several rows.

    Attributes:
        whole_ps: `[n_rows]`, over all samples.
        without_ps: `[n_groups, n_rows]`, each with one group of samples left out; no groups where there is one sample.
    """

    whole_ps: Floats
    without_ps: Floats


def locate(values: Int64s, group: Int64s) -> Locations:
    """The location of each row, with and without each group of samples.

    Args:
        values: `[n_rows, n]`, ps, 0 where the op did not run.
        group: `[n]`, from 0 up, none unused.
    """
    order = np.argsort(values, axis=1, kind="stable")
    ranked = np.take_along_axis(values, order, axis=1)
    groups = group[order]
    n_groups = int(group.max(initial=-1)) + 1
    without = [
        _mean_of_ranks(ranked[kept].reshape(len(values), -1))
        for kept in (groups != number for number in range(n_groups if n_groups > 1 else 0))
    ]
    return Locations(_mean_of_ranks(ranked), np.array(without, np.float64).reshape(len(without), len(values)))


def contiguous_groups(block: Int64s) -> Int64s:
    """Up to `GROUPS` groups of neighbouring blocks of nearly equal size, `[n]`, from the block of each sample `[n]`.

    Args:
        block: of each sample, from 0 up in the order of time: windows, or the samples themselves.
    """
    n_blocks = int(block.max(initial=-1)) + 1
    return block * min(GROUPS, n_blocks) // max(n_blocks, 1)


def _mean_of_ranks(ranked: Int64s) -> Floats:
    """Location of each row of sorted values `[n_rows, n]`."""
    n = ranked.shape[1]
    zeros = (ranked <= 0).sum(axis=1)
    present = n - zeros
    first = zeros + np.floor(LOWEST * present).astype(np.int64)
    last = np.maximum(zeros + np.ceil(HIGHEST * present).astype(np.int64), np.minimum(first + 1, n))
    sums = np.concatenate([np.zeros((len(ranked), 1)), np.cumsum(ranked, axis=1, dtype=np.float64)], axis=1)
    rows = np.arange(len(ranked))
    total = sums[rows, last] - sums[rows, first]
    return np.where(present > 0, total / np.maximum(last - first, 1) * present / max(n, 1), 0.0)
