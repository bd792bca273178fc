"""Parts that cannot be read, as rows of `gaps`: what is not seen is said."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from phasepoint.core.tables import table_from_rows


@dataclass(frozen=True)
class LostPart:
    """A part that is there but cannot be read.

    Attributes:
        shard, table, part: which one; `part` is its file's full name.
        reason: what is wrong with it.
        first_step, last_step, start_ps, dur_ps: for a part of `steps`, the hole that it leaves between its
            neighbours; None where there is no neighbour on that side, and for other tables.
    """

    shard: str
    table: str
    part: str
    reason: str
    first_step: int | None = None
    last_step: int | None = None
    start_ps: int | None = None
    dur_ps: int | None = None


@dataclass(frozen=True)
class Hole:
    """Steps and time between two readable parts of `steps`; None where one of them is missing."""

    first_step: int | None
    last_step: int | None
    start_ps: int | None
    dur_ps: int | None


def hole_between(before: pa.Table | None, after: pa.Table | None) -> Hole:
    """What lies between two parts of `steps`, the nearest readable ones before and after a lost one."""
    import pyarrow.compute as pc  # 40 ms, which a recording job that looks at its run must not pay

    first_step = last_step = start_ps = dur_ps = None
    if before is not None and before.num_rows:
        first_step = pc.max(before["step"]).as_py() + 1
        start_ps = pc.max(pc.add(before["start_ps"], before["dur_ps"])).as_py()
    if after is not None and after.num_rows:
        last_step = pc.min(after["step"]).as_py() - 1
        if start_ps is not None:
            dur_ps = max(0, pc.min(after["start_ps"]).as_py() - start_ps)
    if first_step is not None and last_step is not None and last_step < first_step:
        return Hole(None, None, None, None)  # the neighbours leave nothing out, so they are no guide
    return Hole(first_step, last_step, start_ps, dur_ps)


def lost_part_gaps(lost: Sequence[LostPart]) -> pa.Table:
    """One row of `gaps` for each lost part."""
    return table_from_rows(
        "gaps",
        [
            {
                "why": "lost-part",
                "start_ps": p.start_ps,
                "dur_ps": p.dur_ps,
                "first_step": p.first_step,
                "last_step": p.last_step,
                "unknown": f"rows of {p.table} in {p.part}, which cannot be read: {p.reason}",
            }
            for p in lost
        ],
    )
