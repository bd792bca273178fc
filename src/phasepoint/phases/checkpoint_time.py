"""When checkpoints held the job: while they were saved, and while it waited for one written in the background."""

from collections.abc import Mapping

import pyarrow as pa

_COLUMNS = ("host", "attempt", "start_ps", "dur_ps")


def checkpoint_stretches(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Stretches of time, one row each: `host`, `attempt`, `start_ps`, `dur_ps`; they may overlap.

    Args:
        tables: `checkpoints` and `checkpoint_waits` as `Run.table` gives them.
    """
    return pa.concat_tables([tables[name].select(_COLUMNS) for name in ("checkpoints", "checkpoint_waits")])
