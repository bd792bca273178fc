"""Parts that cannot be read, as rows of `gaps`: what is not seen is said."""

from collections.abc import Sequence

import pyarrow as pa

from phasepoint.core.tables import table_from_rows
from phasepoint.store.shard_table import LostPart


def lost_part_gaps(lost: Sequence[LostPart]) -> pa.Table:
    """One row of `gaps` for each lost part; from when to when is not known, since the part cannot be read."""
    return table_from_rows(
        "gaps",
        [
            {"why": "lost-part", "unknown": f"rows of {p.table} in {p.part}, which cannot be read: {p.reason}"}
            for p in lost
        ],
    )
