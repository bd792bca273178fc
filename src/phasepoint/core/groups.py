"""Sums, medians and unions by group, exactly."""

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.compiled import compiled
from phasepoint.core.encoding import first_rows, renumber


def sum_by(group: Int64s, n_groups: int, values: Int64s) -> Int64s:
    """`[n_groups]` sums of `[n]` integers; rows of a group below 0 are left out."""
    sums = np.zeros(n_groups, np.int64)
    kept = group >= 0
    np.add.at(sums, group[kept], values[kept])
    return sums


def medians_by(group: Int64s, values: Int64s) -> tuple[Int64s, Int64s]:
    """The groups there are, rising, and the lower median of each one's values; both arguments are `[n]`."""
    order = np.lexsort((values, group))
    groups, first, count = np.unique(group[order], return_index=True, return_counts=True)
    return groups, values[order][first + (count - 1) // 2]


def union_by(group: Int64s, n_groups: int, start_ps: Int64s, end_ps: Int64s) -> Int64s:
    """The time that each group's intervals cover, ps.

    Args:
        group: `[n]` whose interval it is; rows below 0 are left out.
        n_groups: how many groups there are.
        start_ps: `[n]` starts.
        end_ps: `[n]` ends, none before its start.

    Returns:
        `[n_groups]` ps.
    """
    order = np.lexsort((start_ps, group))
    covered = np.zeros(n_groups, np.int64)
    _cover(order, np.ascontiguousarray(group), start_ps, end_ps, covered)
    return covered


@compiled()
def _cover(order, group, start_ps, end_ps, covered):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    reach, current = np.int64(0), np.int64(-1)
    for i in order:
        one = group[i]
        if one < 0:
            continue
        if one != current or start_ps[i] > reach:
            reach = start_ps[i]
            current = one
        if end_ps[i] > reach:
            covered[one] += end_ps[i] - reach
            reach = end_ps[i]


def number_groups(*codes: Int64s) -> tuple[Int64s, Int64s]:
    """Number the combinations of codes from 0, in order of their first row.

    Returns:
        `[n]` number of each row's combination, and `[n_groups]` the first row of each.
    """
    number = np.zeros(len(codes[0]), np.int64)
    for code in codes:
        values, place = renumber(code)
        number = renumber(number * max(len(values), 1) + place)[1]
    first = first_rows(number)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[number], first[order]
