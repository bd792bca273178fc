"""One table of one shard, put together from its parts.

Parts that cannot be read, as rows of `gaps`: what is not seen is said.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa

from phasepoint.core.errors import StoreError, TableError
from phasepoint.core.tables import TableSpec, table_from_rows
from phasepoint.store.filesystem import Location, list_directory, read_file
from phasepoint.store.parts import MERGED_PREFIX, MOST_PS, PART_SUFFIX, decode_part, merged_sources, select_parts
from phasepoint.store.tail import TAIL_SUFFIX, decode_tail


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


REPEATED = {
    "programs": ("program",),
    "instructions": ("program", "op"),
    "conversions": ("window",),
}
"""Tables in which several windows may repeat a row, with the columns that identify it; the first one counts."""

KeepRows = Callable[[pa.Table], pa.Table]
"""What leaves the wanted rows of a part."""

_LIST_TRIES = 20  # a choice: a folder that changes under every look is given up
_APPENDED_S = 0.05  # a choice: a record takes the writer 1 ms


@dataclass(frozen=True)
class ShardTable:
    """One table of one shard.

    Attributes:
        rows: those that can be read.
        lost: the parts that cannot.
        parts: names of all parts there were, and of the tail.
    """

    rows: pa.Table
    lost: tuple[LostPart, ...]
    parts: list[str]


def read_shard_table(location: Location, shard: str, spec: TableSpec, *, keep: KeepRows | None = None) -> ShardTable:
    """All rows of a table in one shard, each once, in the declared order.

    The shard may be written and compacted meanwhile: if a listed part is gone, or a merged part has appeared since,
    the parts are listed again.

    Args:
        location: of the run.
        shard: its name.
        spec: the table.
        keep: which rows of each part are wanted, all if None. No more than one part is in memory beside them.

    Raises:
        StoreError: a part cannot be read because of the file system, or the parts keep changing.
    """
    folder = f"{shard}/{spec.name}"
    for _ in range(_LIST_TRIES):
        names = part_names(location, folder, with_tail=True)
        if not names:  # most tables of most shards: a run of thousands of ranks asks for each of them
            return ShardTable(spec.empty, (), [])
        try:
            tables, lost = _read_parts(location, shard, spec, names, keep)
        except FileNotFoundError:
            continue
        if _merged_of(part_names(location, folder, with_tail=True)) == _merged_of(names):
            rows = order_rows(spec, tables)
            again = sum(table.num_rows for table in tables) - rows.num_rows
            if again and spec.name == "steps":
                reason = f"{again} of its steps have the number of another one; the first counts"
                lost.append(LostPart(shard, spec.name, location.show(folder), reason))
            return ShardTable(rows, tuple(lost), names)
    raise StoreError(f"{location.show(folder)}: its parts kept changing while they were read; try again")


def part_names(location: Location, folder: str, *, with_tail: bool = False) -> list[str]:
    """Names of the parts in a table's folder, sorted, without the suffix; that of a tail keeps its own.

    Raises:
        StoreError: the folder cannot be listed.
    """
    suffixes = (PART_SUFFIX, TAIL_SUFFIX) if with_tail else (PART_SUFFIX,)
    entries = list_directory(location, folder)
    return [e.name.removesuffix(PART_SUFFIX) for e in entries if e.name.endswith(suffixes) and not e.is_dir]


def order_rows(spec: TableSpec, tables: list[pa.Table]) -> pa.Table:
    """The tables' rows one after another, repeated ones dropped, sorted as declared; equal keys keep their order."""
    import pyarrow.compute as pc

    table = join_tables(tables, spec.empty)
    if not table.num_rows:
        return table
    if spec.name in REPEATED:
        table = _drop_repeated(table, REPEATED[spec.name])
    if spec.order_by and table.num_rows > 1 and not _is_sorted(table, spec.order_by):
        order = pc.sort_indices(table, sort_keys=[(key, "ascending") for key in spec.order_by])
        table = table.take(order).combine_chunks()
    return _drop_same_steps(table) if spec.name == "steps" else table


def _drop_same_steps(table: pa.Table) -> pa.Table:
    """Sorted steps, of those with one number the first."""
    step = table.column("step").to_numpy()
    is_first = np.concatenate(([True], step[1:] != step[:-1]))[: len(step)]
    return table if is_first.all() else table.filter(pa.array(is_first)).combine_chunks()


def join_tables(tables: Sequence[pa.Table], empty: pa.Table) -> pa.Table:
    """The rows of tables of one schema, one after another in one piece; `empty` where there are none. Copies no rows
    where only one table has any."""
    filled = [table for table in tables if table.num_rows]
    return pa.concat_tables(filled).unify_dictionaries().combine_chunks() if filled else empty


def _read_parts(
    location: Location, shard: str, spec: TableSpec, names: list[str], keep: KeepRows | None
) -> tuple[list[pa.Table], list[LostPart]]:
    folder = f"{shard}/{spec.name}"
    rows: dict[str, pa.Table] = {}
    merged: dict[str, frozenset[str]] = {}
    lost: dict[str, LostPart] = {}

    def read(name: str) -> None:
        is_tail = name.endswith(TAIL_SUFFIX)
        relative = f"{folder}/{name}{'' if is_tail else PART_SUFFIX}"
        data = read_file(location, relative)
        try:
            part, problem = decode_tail(spec, data) if is_tail else (decode_part(spec, data), None)
            if problem is not None:  # perhaps the writer is about to append
                time.sleep(_APPENDED_S)
                part, problem = decode_tail(spec, read_file(location, relative))
            if problem is not None:
                lost[name] = LostPart(shard, spec.name, location.show(relative), problem)
            if problem is None or part.num_rows:
                rows[name] = part if keep is None else keep(part)
        except TableError as error:
            lost[name] = LostPart(shard, spec.name, location.show(relative), str(error))
        else:
            if name.startswith(MERGED_PREFIX):
                merged[name] = merged_sources(data)

    for name in _merged_of(names):  # first, for one that cannot be read covers nothing
        read(name)
    chosen = select_parts([n for n in names if n not in rows and n not in lost and not n.endswith(TAIL_SUFFIX)], merged)
    whole = {*names, *frozenset[str]().union(*merged.values())}
    tails = [n for n in names if n.endswith(TAIL_SUFFIX) and n.removesuffix(TAIL_SUFFIX) not in whole]
    chosen += tails
    for name in chosen:
        if name not in merged:
            read(name)
    lasted_ps = 0.0
    for name in chosen if spec.name == "steps" else ():
        until_ps = lasted_ps + (rows[name].column("dur_ps").to_numpy().sum(dtype=np.float64) if name in rows else 0.0)
        if until_ps < 2 * MOST_PS:
            lasted_ps = until_ps
        else:
            reason = "its steps, with those of the parts before, last longer than 106 days"
            lost[name] = LostPart(shard, spec.name, location.show(f"{folder}/{name}{PART_SUFFIX}"), reason)
            del rows[name]
    if spec.name == "steps" and keep is None:
        _locate(lost, rows, chosen)
    return [rows[name] for name in chosen if name in rows], list(lost.values())


def _locate(lost: dict[str, LostPart], rows: dict[str, pa.Table], chosen: list[str]) -> None:
    """Say which steps each lost part leaves out, from its neighbours; parts are named in the order of time."""
    for index, name in enumerate(chosen):
        if name in lost:
            before = next((rows[n] for n in reversed(chosen[: index + 1]) if n in rows), None)
            after = next((rows[n] for n in chosen[index + 1 :] if n in rows), None)
            lost[name] = replace(lost[name], **asdict(hole_between(before, after)))


def _merged_of(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(MERGED_PREFIX)]


def _drop_repeated(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    import pyarrow.compute as pc

    row = pa.array(np.arange(table.num_rows, dtype=np.int64))
    indexed = table.select(keys).append_column("_row", row)
    first = indexed.group_by(list(keys), use_threads=False).aggregate([("_row", "min")]).column("_row_min")
    if len(first) == table.num_rows:
        return table
    return table.take(first.take(pc.sort_indices(first))).combine_chunks()


def _is_sorted(table: pa.Table, keys: tuple[str, ...]) -> bool:
    """Whether the rows stand in order already; says no where nulls, or several keys not all integers, would have to be
    compared."""
    import pyarrow.compute as pc

    columns = [table.column(key) for key in keys]
    if any(column.null_count for column in columns):
        return False
    if len(keys) == 1:
        return bool(pc.all(pc.less_equal(columns[0].slice(0, len(columns[0]) - 1), columns[0].slice(1))).as_py())
    if not all(pa.types.is_integer(column.type) for column in columns):
        return False
    tied = np.ones(table.num_rows - 1, np.bool_)  # with the row before, in the keys so far
    for column in columns:
        values = column.to_numpy()
        if (tied & (values[1:] < values[:-1])).any():
            return False
        tied &= values[1:] == values[:-1]
    return True
