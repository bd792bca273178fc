"""Files that a job saved one by one into one folder are one checkpoint: that folder.

`torch.save(model, "step_500/model.pt"); torch.save(optimizer, "step_500/optimizer.pt")` is recorded as two saves. They
are joined where the folder is of that moment: all files saved to it were saved in one step, by `torch.save` or
safetensors, and its name has a number in it. `out/model.pt` and `out/optimizer.pt` stay two: `out` may hold anything.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

PLAIN = ("torch", "safetensors")
"""Frameworks that save a file at a call and know of no others."""

_NUMBER = re.compile(r"\d")


def join_folders(checkpoints: pa.Table) -> pa.Table:
    """The table `checkpoints` with the files of one folder and one step as one row, in the place of the first.

    Such a row lasts from the first file's beginning to the last one's end; its bytes are those of all its files.

    Args:
        checkpoints: as `Run.table` gives it, or rows of it.
    """
    plain = pc.is_in(checkpoints.column("framework").cast(pa.string()), value_set=pa.array(PLAIN))
    if pc.sum(plain).as_py() in (None, 0, 1):
        return checkpoints
    rows = checkpoints.to_pylist()
    groups = _groups(rows)
    if not groups:
        return checkpoints
    joined = {group[0]: _join([rows[index] for index in group]) for group in groups}
    dropped = {index for group in groups for index in group[1:]}
    kept = [joined.get(index, row) for index, row in enumerate(rows) if index not in dropped]
    return pa.Table.from_pylist(kept, schema=checkpoints.schema)


def _groups(rows: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Places of the rows that are one checkpoint each, by start."""
    saved: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    steps: dict[str, set[int | None]] = defaultdict(set)
    for index, row in enumerate(rows):
        folder, _, name = row["path"].rpartition("/")
        if row["framework"] in PLAIN and folder and name:
            steps[folder].add(row["step"])
            saved[row["host"], row["attempt"], row["step"], folder].append(index)
    found = []
    for (_, _, step, folder), group in saved.items():
        of_moment = step is not None and len(steps[folder]) == 1 and _NUMBER.search(folder.rpartition("/")[2])
        if of_moment and len({rows[index]["path"] for index in group}) > 1:
            found.append(sorted(group, key=lambda index: rows[index]["start_ps"]))
    return found


def _join(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = rows[0]
    sizes = {row["path"]: row["bytes"] for row in rows}  # a path that was written twice counts once
    states = [row for row in rows if row["iterator_state"] is not None] or rows
    places = [row for row in rows if row["loop_place"] is not None] or rows
    end_ps = max(row["start_ps"] + row["dur_ps"] for row in rows)
    return {
        **first,
        "path": first["path"].rpartition("/")[0],
        "dur_ps": end_ps - first["start_ps"],
        "framework": PLAIN[0] if any(row["framework"] == PLAIN[0] for row in rows) else PLAIN[1],
        "bytes": None if None in sizes.values() else sum(sizes.values()),
        "has_iterator": True if any(row["has_iterator"] for row in rows) else None,
        "iterator_state": states[-1]["iterator_state"],
        "loop_place": places[-1]["loop_place"],
    }
