"""The tables as arrays: the step clock of every step, and op vectors of the captured ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.core.errors import NoDataError
from phasepoint.phases.clock.steps import StepSeries

_DEVICE_LEVELS = ("op", "kernel")
_BLOCK_STEPS = 1 << 16
"""Captured steps whose entries are handled at a time: of ten ops each, some 5 MB a column."""


@dataclass(frozen=True, eq=False)
class DistinctSteps(StepSeries):
    """The steps in the run's order, each once: over several hosts its times are the longest, which set the pace.

    Attributes:
        kind: code into `kinds`, -1 where no hint was given.
        kinds: names of the hints.
        row: which of them each row of the steps table belongs to, `[n_rows]`.
        crowded_ps: waiting for cores that other programs had, part of dur_ps; 0 where that is not known.
        saved_ps: held by checkpoints, part of dur_ps.
        spared_ps: that it would have lasted longer, had no window's edge waited for the device in its place.
        batch_elements: numbers in the step's batch, 0 where that is not known.
        graph_nodes: operations that the step noted for a backward pass, -1 where that is not known.
    """

    kind: Int64s
    kinds: tuple[str, ...]
    row: Int64s
    crowded_ps: Int64s
    saved_ps: Int64s
    spared_ps: Int64s
    batch_elements: Int64s
    graph_nodes: Int64s


@dataclass(frozen=True, eq=False)
class OpVectors:
    """Op counts and self times of the captured steps, compressed by step.

    Attributes:
        index: position of each captured step in the run's order, `[n_captured]`, rising.
        start: where each captured step's entries begin, `[n_captured + 1]`.
        op: code into `names`, `[n_entries]`.
        count: executions, `[n_entries]`.
        self_ps: self time, `[n_entries]`.
        names: op names, by code.
        categories: category by code, null where the table does not say.
        key: what stands for "the same op" when steps are compared: the op and, within one attempt, its program.
        vector_entry: whether the entry takes part in comparing steps (device work, where levels are known).
        knows_programs: whether `key` tells programs apart.
    """

    index: Int64s
    start: Int64s
    op: Int64s
    count: Int64s
    self_ps: Int64s
    names: tuple[str, ...]
    categories: tuple[str | None, ...]
    key: Int64s
    vector_entry: Bools
    knows_programs: bool

    @property
    def n_captured(self) -> int:
        """Steps with ops."""
        return len(self.index)

    @property
    def owner(self) -> Int64s:
        """Captured step (position in `index`) of each entry, `[n_entries]`."""
        return np.repeat(np.arange(self.n_captured), np.diff(self.start))

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Captured steps and their entries, some at a time: a run captured throughout has millions of entries."""
        for low in range(0, self.n_captured, _BLOCK_STEPS):
            high = min(low + _BLOCK_STEPS, self.n_captured)
            yield slice(low, high), slice(int(self.start[low]), int(self.start[high]))


_OPTIONAL = ("input_ps", "compile_ps", "crowded_ps", "saved_ps", "spared_ps", "batch_elements")


def read_steps(steps: pa.Table) -> DistinctSteps:
    """The steps table in the run's order.

    Args:
        steps: columns `step`, `dur_ps`; optionally `input_ps`, `compile_ps`, `crowded_ps`, `saved_ps`, `spared_ps`,
            `batch_elements`, `graph_nodes`, `kind`, `host`, `attempt`.

    Raises:
        NoDataError: the table holds no steps.
        ValueError: a column is missing, holds null or a negative duration, or a step occurs twice on one host.
    """
    step, dur_ps = (_numbers(steps, name, "steps") for name in ("step", "dur_ps"))
    if len(step) == 0:
        raise NoDataError(
            "table 'steps' holds no steps, so there are no phases to find; "
            "record at least one step, or check that the run was flushed"
        )
    _refuse_negative(dur_ps, step, "dur_ps")
    attempt = _optional_numbers(steps, "attempt")
    host = _optional_numbers(steps, "host")
    attempt = np.zeros(len(step), np.int64) if attempt is None else attempt
    keys = (step, attempt) if host is None else (host, step, attempt)
    order = _run_order(keys)
    first = np.ones(len(step), bool)
    first[1:] = (np.diff(step[order]) != 0) | (np.diff(attempt[order]) != 0)
    distinct = bool(first.all())
    if host is None or not distinct:
        _refuse_duplicates(step, host, order, keys)
    row = np.empty(len(step), np.int64)
    row[order] = np.cumsum(first) - 1
    where = slice(None) if distinct else np.flatnonzero(first)
    kind, kinds = _kinds(steps)
    waits = {name: _optional_numbers(steps, name) for name in _OPTIONAL}
    none = np.zeros(int(first.sum()), np.int64)
    longest = {name: none if ps is None else _longest(ps, order, where) for name, ps in waits.items()}
    nodes = _optional_numbers(steps, "graph_nodes", unknown=-1)
    return DistinctSteps(
        host=none,
        attempt=attempt[order][where],
        step=step[order][where],
        start_ps=none,
        dur_ps=_longest(dur_ps, order, where),
        **longest,
        graph_nodes=none - 1 if nodes is None else _longest(nodes, order, where),
        input_known=waits["input_ps"] is not None,
        compile_known=waits["compile_ps"] is not None,
        kind=kind[order][where],
        kinds=kinds,
        row=row,
    )


def read_ops(ops: pa.Table | None, series: DistinctSteps) -> OpVectors | None:
    """The ops table as vectors of the captured steps; null where it holds none for these steps.

    Rows of no step (work outside every captured step) take no part. Where several hosts captured one step,
    the lowest host's rows are taken, so that a vector is always one host's.

    Args:
        ops: columns `step`, `op`, `count`, `self_ps`; optionally `category`, `layer`, `level`, `host`, `attempt`.
        series: the run's steps.

    Raises:
        ValueError: a column is missing or holds null, a count or time is negative, or a step is not in `series`.
    """
    if ops is None:
        return None
    for name in ("step", "op", "count", "self_ps"):
        _column(ops, name, "ops")
    if ops.column("step").null_count:
        ops = ops.filter(pc.is_valid(ops.column("step")))
    if ops.num_rows == 0:
        return None
    step, count, self_ps = (_numbers(ops, name, "ops") for name in ("step", "count", "self_ps"))
    _refuse_negative(count, step, "count")
    _refuse_negative(self_ps, step, "self_ps")
    position = _positions(step, _optional_numbers(ops, "attempt"), series)
    keep = _order_by_step(position, _optional_numbers(ops, "host"))
    position = position[keep]
    begin = np.flatnonzero(np.diff(position, prepend=-1))
    op, names = _op_codes(ops)
    # Program numbers mean nothing in another attempt, so there the op alone counts.
    program = None if (series.attempt != series.attempt[0]).any() else _optional_numbers(ops, "program")
    return OpVectors(
        index=position[begin],
        start=np.append(begin, len(position)).astype(np.int64),
        op=op[keep],
        count=count[keep],
        self_ps=self_ps[keep],
        names=names,
        categories=_categories(ops, op, len(names)),
        key=op[keep] if program is None else _keys(program, op)[keep],
        vector_entry=_device_rows(ops)[keep],
        knows_programs=program is not None,
    )


def _column(table: pa.Table, name: str, what: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise ValueError(f"table {what!r} lacks column {name!r}; it has {', '.join(table.column_names) or 'none'}")
    return table.column(name)


def _numbers(table: pa.Table, name: str, what: str) -> Int64s:
    column = _column(table, name, what)
    if column.null_count:
        raise ValueError(f"table {what!r}, column {name!r}: {column.null_count} nulls; every value must be known")
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_null(column.type)):
        raise ValueError(f"table {what!r}, column {name!r}: expected integers, found {column.type}")
    try:
        return np.asarray(column.cast(pa.int64()).to_numpy(), dtype=np.int64)
    except pa.ArrowInvalid as error:
        raise ValueError(f"table {what!r}, column {name!r}: expected integers: {error}") from error


def _optional_numbers(table: pa.Table, name: str, *, unknown: int = 0) -> Int64s | None:
    if name not in table.column_names or table.column(name).null_count == table.num_rows:
        return None
    filled = table.set_column(
        table.column_names.index(name), name, pc.fill_null(table.column(name).cast(pa.int64()), unknown)
    )
    return _numbers(filled, name, "steps")


def _refuse_negative(values: Int64s, step: Int64s, name: str) -> None:
    bad = np.flatnonzero(values < 0)
    if len(bad):
        raise ValueError(
            f"column {name!r}: {len(bad)} negative values, the first in row {bad[0]} (step {step[bad[0]]}); "
            "expected 0 or more"
        )


def _run_order(keys: Sequence[Int64s]) -> Int64s | slice:
    """Rows by attempt, step and host; all of them, without a copy, where they stand in this order already."""
    varying = [key for key in keys if (key != key[0]).any()]
    if not varying or (len(varying) == 1 and bool((varying[0][1:] >= varying[0][:-1]).all())):
        return slice(None)
    return np.lexsort(tuple(varying)).astype(np.int64)


def _refuse_duplicates(step: Int64s, host: Int64s | None, order: Int64s | slice, keys: Sequence[Int64s]) -> None:
    same = np.ones(len(step) - 1, bool)
    for key in keys:
        same &= np.diff(key[order]) == 0
    if same.any():
        at = np.arange(len(step))[order][1:][same][0]
        where = "" if host is None else f" on host {host[at]}"
        raise ValueError(
            f"table 'steps': {int(same.sum())} duplicate steps, the first is step {step[at]}{where} in row {at}; "
            "every step must occur once per host and attempt"
        )


def _longest(values: Int64s, order: Int64s | slice, where: Int64s | slice) -> Int64s:
    """The largest value of each step, whose rows begin at `where`, or are one each where that is a slice."""
    ordered = values[order]
    return ordered if isinstance(where, slice) else np.asarray(np.maximum.reduceat(ordered, where), np.int64)


def _kinds(steps: pa.Table) -> tuple[Int64s, tuple[str, ...]]:
    """Code of every step's hint, -1 without, and the names of the hints."""
    if "kind" not in steps.column_names or steps.column("kind").null_count == steps.num_rows:
        return np.full(steps.num_rows, -1, np.int64), ()
    codes, names = encode_column(steps.column("kind"))
    return codes, tuple(map(str, names))


def _positions(step: Int64s, attempt: Int64s | None, series: DistinctSteps) -> Int64s:
    if attempt is None or not series.attempt.any():
        known, position = series.step, np.searchsorted(series.step, step)
        if series.attempt.any():
            raise ValueError("table 'steps' has several attempts but table 'ops' has no column 'attempt'")
        found = known[np.minimum(position, series.n_steps - 1)] == step
    else:
        span = max(int(series.step.max()), int(step.max())) + 1
        known, wanted = series.attempt * span + series.step, attempt * span + step
        position = np.searchsorted(known, wanted)
        found = known[np.minimum(position, series.n_steps - 1)] == wanted
    if not found.all():
        at = int(np.flatnonzero(~found)[0])
        raise ValueError(
            f"table 'ops': {int((~found).sum())} rows of steps that table 'steps' does not hold, "
            f"the first is step {step[at]} in row {at}"
        )
    return position.astype(np.int64)


def _order_by_step(position: Int64s, host: Int64s | None) -> Int64s | slice:
    """The rows to take, in the run's order; all of them, without a copy, where they stand in it already."""
    if host is None or (host == host[0]).all():
        rising = bool((position[1:] >= position[:-1]).all())
        return slice(None) if rising else np.argsort(position, kind="stable").astype(np.int64)
    order = np.lexsort((host, position))
    begins = np.flatnonzero(np.diff(position[order], prepend=-1))
    lowest = np.repeat(host[order][begins], np.diff(np.append(begins, len(order))))
    return np.asarray(order[host[order] == lowest], np.int64)


def _op_codes(ops: pa.Table) -> tuple[Int64s, tuple[str, ...]]:
    """Code per row, and the names."""
    column = _column(ops, "op", "ops")
    if column.null_count:
        raise ValueError(f"table 'ops', column 'op': {column.null_count} nulls; every op must have a name")
    codes, names = encode_column(column)
    return codes, tuple(map(str, names))


def _keys(program: Int64s, op: Int64s) -> Int64s:
    """Code of op and program."""
    programs = pa.array(program).dictionary_encode()  # hashed: sorting millions of rows takes much more memory
    both = programs.indices.to_numpy() * (np.int64(op.max()) + 1) + op
    used = np.zeros(len(programs.dictionary) * (int(op.max()) + 1), np.int64)
    used[both] = 1
    return np.asarray((np.cumsum(used) - 1)[both], np.int64)


def _categories(ops: pa.Table, codes: Int64s, n_ops: int) -> tuple[str | None, ...]:
    if "category" not in ops.column_names:
        return (None,) * n_ops
    category, names = encode_column(ops.column("category"))
    of_op = np.full(n_ops, -1, np.int64)
    of_op[codes[::-1]] = category[::-1]
    return tuple(names[code] if code >= 0 else None for code in of_op.tolist())


def _device_rows(ops: pa.Table) -> Bools:
    """Rows of ops and kernels; every row where the table has no levels or none of these."""
    everything = np.ones(ops.num_rows, bool)
    if "level" not in ops.column_names:
        return everything
    level = pc.is_in(ops.column("level").cast(pa.string()), value_set=pa.array(_DEVICE_LEVELS))
    device = level.to_numpy().astype(bool)
    return device if device.any() else everything
