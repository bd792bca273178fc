"""The converter's door to a run: parts with a name that the window gives, so that converting twice is harmless."""

import pyarrow as pa

from phasepoint.store.filesystem import (
    delete_file,
)
from phasepoint.store.parts import write_table_part
from phasepoint.store.raw import check_raw_path
from phasepoint.store.reader import Run


def write_part(run: Run, shard_name: str, table_name: str, part_name: str, table: pa.Table) -> int:
    """Write a part under a given name, complete when it appears, and return its size in bytes.

    Writing the same part again replaces it. A part that compaction has merged already stays covered by the merged one.

    Args:
        part_name: without suffix, such as `part-window-000012`.

    Raises:
        TableError: the rows do not fit the table's declaration.
        StoreError: no such shard, a bad name, or the file cannot be written.
    """
    return write_table_part(run.location, run.shard(shard_name).name, table_name, part_name, table)


def drop_raw(run: Run, shard_name: str, relative_path: str) -> None:
    """Delete a raw capture that is no longer needed; one that is gone already is no error.

    Raises:
        StoreError: no such shard, a path that leads out of `raw/`, or it cannot be deleted.
    """
    shard = run.shard(shard_name).name
    check_raw_path(run.location, shard, relative_path)
    delete_file(run.location, f"{shard}/{relative_path}")
