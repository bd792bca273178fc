"""Shares of a whole number, exactly."""

import numpy as np

from phasepoint.core.arrays import Int64s


def share_out(owner: Int64s, value: Int64s, weight: Int64s) -> Int64s:
    """Share each owner's value among its rows in proportion to their weights, as whole numbers that add up to it.

    Args:
        owner: `[n]` whose part each row is, any integers.
        value: `[n]` the owner's whole value, equal in all its rows, not negative.
        weight: `[n]` not negative; where all of an owner are 0, its first row has everything.

    Returns:
        `[n]` parts. What rounding leaves goes to the owner's rows in order, one each.

    Example:
        >>> share_out(np.array([0, 0, 0]), np.array([10, 10, 10]), np.array([1, 1, 1])).tolist()
        [4, 3, 3]
    """
    if not len(owner):
        return np.empty(0, np.int64)
    order = np.argsort(owner, kind="stable")
    sorted_owner = owner[order]
    first = np.concatenate(([True], sorted_owner[1:] != sorted_owner[:-1]))
    group = np.cumsum(first) - 1
    begin = np.flatnonzero(first)
    total_weight = np.add.reduceat(weight[order].astype(np.float64), begin)
    whole = value[order][begin]
    parts = np.zeros(len(order), np.int64)
    heavy = total_weight[group] > 0
    exact = whole[group][heavy] * (weight[order][heavy] / total_weight[group][heavy])
    parts[heavy] = np.floor(exact).astype(np.int64)
    parts[heavy] = np.minimum(parts[heavy], whole[group][heavy])
    left = whole - np.add.reduceat(parts, begin)
    place = np.arange(len(order)) - begin[group]
    size = np.diff(np.append(begin, len(order)))
    parts += left[group] // size[group] + (place < left[group] % size[group])
    # Of an owner without weight all of it was left; its first row has it.
    weightless = ~heavy
    parts[weightless] = np.where(first[weightless], whole[group][weightless], 0)
    result = np.empty(len(order), np.int64)
    result[order] = parts
    return result
