"""Whether two runs are recordings of one job at all: by the ops that they have in common."""

from collections.abc import Sequence

from phasepoint.core.units import format_ratio
from phasepoint.stack.diff_result import EVERYTHING, OUTSIDE, UNATTRIBUTED, DiffRow

LEAST_COMMON = 0.5
"""Ratio of its op time that at least one side must share with the other: a job to which as much was added as there was
still shares all that it had, and two programs share little but copies and sums."""

_NO_OPS = (EVERYTHING, OUTSIDE, UNATTRIBUTED)


def tell_unrelated(rows: Sequence[DiffRow], base_command: str, run_command: str) -> str | None:
    """Why the sides are probably different jobs, one sentence; None where their ops look like one job's.

    Args:
        rows: of the comparison.
        base_command: how the base was started, for the sentence.
        run_command: how the run was started.
    """
    ops = [row for row in rows if row.level == "op" and row.name not in _NO_OPS]
    common = [row for row in ops if row.base_ps and row.run_ps]
    base_ps, run_ps = sum(row.base_ps for row in ops), sum(row.run_ps for row in ops)
    if not base_ps or not run_ps:
        return None
    base_share = sum(row.base_ps for row in common) / base_ps
    run_share = sum(row.run_ps for row in common) / run_ps
    if max(base_share, run_share) >= LEAST_COMMON:
        return None
    return (
        f"these are probably different jobs: {format_ratio(1 - base_share)} of the base's op time and "
        f"{format_ratio(1 - run_share)} of the run's is in ops that the other has not "
        f"(base: {base_command}; run: {run_command}); what changed within one job cannot be read from them"
    )
