"""When each session was last heard of, by anything but its steps: how long one lasted that never closed."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

LAST_SEEN = ("windows", "hints", "checkpoints", "checkpoint_waits", "gaps")
"""Tables of stretches."""


def last_seen_ps(tables: Mapping[str, pa.Table]) -> dict[tuple[int, int], int]:
    """By host and attempt, the latest end of anything but steps, in ps of the session.

    Args:
        tables: those of `LAST_SEEN`, as `Run.table` gives them.
    """
    latest: dict[tuple[int, int], int] = {}
    for name in LAST_SEEN:
        table = tables[name]
        ends = pc.add(table.column("start_ps"), table.column("dur_ps")).to_pylist()
        keys = zip(table.column("host").to_pylist(), table.column("attempt").to_pylist(), strict=True)
        for key, end_ps in zip(keys, ends, strict=True):
            latest[key] = max(latest.get(key, 0), end_ps or 0)
    return latest
