"""Nsight Systems' SQLite export (`nsys export --type sqlite`) → tables.

Kernels, copies, fills and graphs traced whole are the devices' work; NVTX ranges, CUDA's and other libraries' calls are
the host's. Tables and columns differ from version to version: what an export does not have is null here.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from phasepoint.core.errors import SourceError
from phasepoint.sources.capture import Capture
from phasepoint.sources.collective_names import collectives_of_kernels
from phasepoint.sources.event_rows import MISSING, PS_PER_NS, PlacedEvents, events_of_rows, spread
from phasepoint.sources.event_tables import NO_ID, Kind, TraceEvents, capture_of_events, text_column
from phasepoint.sources.launch_rows import integer_column, launch_columns
from phasepoint.sources.layer_paths import layer_paths
from phasepoint.sources.marked_steps import bounds_of_kinds, mark_steps
from phasepoint.sources.nsys_database import NsysDatabase, open_database
from phasepoint.sources.nsys_names import NsysNames, start_unix_ns
from phasepoint.sources.nsys_samples import read_allocations, read_metrics
from phasepoint.sources.nsys_tables import LAUNCH_COLUMNS, NsysTables
from phasepoint.sources.nvtx_names import direction_of


def read_nsys(
    source: bytes | Path,
    *,
    window: int,
    epoch_unix_ns: int | None = None,
    steps: pa.Table | None = None,
    keep_spans: bool = True,
) -> Capture:
    """Convert one export.

    Args:
        source: the file, which is read piece by piece, or its bytes.
        window: number of the window.
        epoch_unix_ns: the session's epoch in Unix ns, from which all times count; None to count from the first event.
        steps: rows of `steps` (step, start_ps, dur_ps), for exports whose ranges mark none.
        keep_spans: whether to build `spans` and the tables whose rows are of single spans.

    Returns:
        Tables as declared; `programs` and `instructions` are empty.

    Raises:
        SourceError: it is no SQLite file, its list of tables is damaged, or no table is one of Nsight Systems.
    """
    started_ns = time.thread_time_ns()
    with open_database(source) as database:
        _require_events(database)
        names = NsysNames(database)
        tables = NsysTables(database, names)
        tables.read_all()
        placed = tables.events.finish(start_unix_ns(database, tables.events.first_ns()), epoch_unix_ns)
        kinds, marks = mark_steps(tables.events.kinds)
        events = _trace_events(database, names, tables, placed, kinds)
        problems = [*placed.notes, *database.problems]
    capture = capture_of_events(
        events,
        bounds_of_kinds(placed, marks, steps),
        window=window,
        keep_spans=keep_spans,
        problem="; ".join(problems) or None,
        cost_ps=(time.thread_time_ns() - started_ns) * PS_PER_NS,
    )
    return replace(capture, start_unix_ns=placed.start_unix_ns, devices=names.devices)


def _require_events(database: NsysDatabase) -> None:
    if not any(
        table == "NVTX_EVENTS" or "globalTid" in names or "globalPid" in names
        for table, names in database.columns.items()
    ):
        found = ", ".join(sorted(database.columns)[:5]) or "none"
        raise SourceError(
            f"an SQLite file that is no export of Nsight Systems: its tables are {found}; expected "
            "CUPTI_ACTIVITY_KIND_KERNEL, NVTX_EVENTS, … Export the report: nsys export --type sqlite REPORT.nsys-rep"
        )


def _trace_events(
    database: NsysDatabase, names: NsysNames, tables: NsysTables, placed: PlacedEvents, kinds: list[Kind]
) -> TraceEvents:
    allocations, of_allocations = read_allocations(database, names, placed.origin_ns)
    counters, of_counters = read_metrics(database, names, placed.origin_ns)
    apart = [*tables.accounts(), *of_allocations, *of_counters]
    return events_of_rows(
        tables.events,
        placed,
        kinds,
        apart,
        columns=_more_columns(tables, placed, kinds),
        tables={
            "launches": _launches(tables, placed),
            "collectives": collectives_of_kernels(kinds, placed.kind),
            "allocations": allocations,
            "counters": counters,
        },
    )


def _more_columns(tables: NsysTables, placed: PlacedEvents, kinds: list[Kind]) -> dict[str, pa.Array]:
    columns = {
        "bytes": integer_column(spread(tables.events, placed, "bytes")),
        "shape": text_column(np.maximum(spread(tables.events, placed, "shape"), NO_ID), list(tables.shapes)),
        "direction": text_column(placed.kind, [direction_of(one.name) if one.level == "op" else None for one in kinds]),
    }
    layer = layer_paths(placed, kinds)
    return columns if layer is None else columns | {"layer": layer}


def _launches(tables: NsysTables, placed: PlacedEvents) -> Mapping[str, Any]:
    rows, columns = tables.events.detail(*LAUNCH_COLUMNS)
    of = dict(zip(LAUNCH_COLUMNS, columns, strict=True))
    static, dynamic = of["staticSharedMemory"], of["dynamicSharedMemory"]
    return launch_columns(
        placed.place[rows],
        grid=[of[name] for name in ("gridX", "gridY", "gridZ")],
        block=[of[name] for name in ("blockX", "blockY", "blockZ")],
        registers=of["registersPerThread"],
        shared_bytes=np.where((static == MISSING) | (dynamic == MISSING), MISSING, static + dynamic),
        graph=[of["graphId"], of["graphNodeId"]],
    )
