"""Launch parameters as integers → columns of `launches`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Int64s
from phasepoint.sources.dense import number_keys
from phasepoint.sources.event_rows import MISSING
from phasepoint.sources.event_tables import text_column


def launch_columns(
    span: Int64s,
    *,
    grid: Sequence[Int64s],
    block: Sequence[Int64s],
    registers: Int64s,
    shared_bytes: Int64s,
    graph: Sequence[Int64s],
) -> Mapping[str, Any]:
    """Columns of `launches`, without the rows of which nothing is known.

    Args:
        span: `[n]` the executions' events, below 0 where an event was dropped.
        grid: blocks, `[n]` in each of three directions; `MISSING` where not known, as in all that follow.
        block: threads of a block, `[n]` in each of three directions.
        registers: `[n]` registers of a thread.
        shared_bytes: `[n]` shared memory of a block.
        graph: `[n]` graph, and `[n]` node in it, of a graph's replay.
    """
    columns = (*grid, *block, registers, shared_bytes, *graph)
    known = np.any([column != MISSING for column in columns], axis=0) if len(span) else np.empty(0, np.bool_)
    rows = np.flatnonzero(known & (span >= 0))
    rows = rows[np.argsort(span[rows], kind="stable")]
    return {
        "span": span[rows],
        "grid": _joined([column[rows] for column in grid], ","),
        "block": _joined([column[rows] for column in block], ","),
        "registers": integer_column(registers[rows]),
        "shared_bytes": integer_column(shared_bytes[rows]),
        "graph": _joined([column[rows] for column in graph], ":", all_known=False),
    }


def integer_column(values: Int64s) -> pa.Array:
    """Integers that are null where `MISSING`."""
    return pa.array(values, pa.int64(), mask=values == MISSING)


def _joined(columns: Sequence[Int64s], separator: str, *, all_known: bool = True) -> pa.Array:
    """Numbers as texts: `32,1,1`; null where one is missing, or with `all_known` False where all are."""
    numbers, first = number_keys(*columns)
    texts = []
    for row in zip(*(column[first].tolist() for column in columns), strict=True):
        known = [str(value) for value in row if value != MISSING]
        texts.append(separator.join(known) if known and (len(known) == len(row) or not all_known) else None)
    return text_column(numbers, texts)
