"""Nsight Systems' SQLite export (`nsys export --type sqlite`) → tables.

Kernels, copies, fills and graphs traced whole are the devices' work; NVTX ranges, CUDA's and other libraries' calls are
the host's. Tables and columns differ from version to version: what an export does not have is null here.

Allocations and metrics of GPUs in an export of Nsight Systems → rows of `allocations` and `counters`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.errors import SourceError
from phasepoint.core.units import PS_PER_NS
from phasepoint.sources.events.capture import Capture, CaptureRequest
from phasepoint.sources.events.layers import layer_paths
from phasepoint.sources.events.names import bounds_of_kinds, collectives_of_kernels, direction_of, mark_steps
from phasepoint.sources.events.rows import (
    LIMIT_NS,
    MISSING,
    PlacedEvents,
    events_of_rows,
    integer_column,
    launches_of,
    spread,
)
from phasepoint.sources.events.tables import NO_ID, Account, Kind, TraceEvents, capture_of_events, text_column
from phasepoint.sources.nsys.database import NsysDatabase, NsysNames, name_rows, open_database, start_unix_ns
from phasepoint.sources.nsys.tables import MEMORY, METRICS, NsysTables

Rows = tuple[Mapping[str, Any], list[Account]]

_RELEASE = 1
"""Source: `ENUM_CUDA_DEV_MEM_EVENT_OPER` of an export of Nsight Systems 2026.2."""

_HOST_KINDS = (0, 1)
"""Pageable and pinned memory is the host's. Source: `ENUM_CUDA_MEM_KIND` of the same export."""

_GPU_BITS = 0xFF  # of a metric's typeId: the GPU, as in "typeId & 0xFF" of the documentation's queries


def read_allocations(database: NsysDatabase, names: NsysNames, origin_ns: int) -> Rows:
    """Columns of `allocations`, and what became of the rows."""
    if not database.has(MEMORY, "start", "bytes"):
        return {}, _unread(database, MEMORY)
    columns = ("start", "bytes", "memoryOperationType", "memKind", "deviceId", "globalPid", "virtualAddress")
    block = _whole(database, MEMORY, columns)
    device: list[str] = []
    numbering = _numbering(device)

    def place(mem_kind: int, process: int, ordinal: int) -> int:
        return numbering("host" if mem_kind in _HOST_KINDS else names.device(process, ordinal))

    known = _near(block["start"], origin_ns) & (block["bytes"] != MISSING)
    block = {name: column[known] for name, column in block.items()}
    taken = np.where(block["memoryOperationType"] == _RELEASE, -1, 1)
    devices = name_rows(place, block["memKind"], block["globalPid"], block["deviceId"])
    address = block["virtualAddress"]
    rows = {
        "time_ps": (block["start"] - origin_ns) * PS_PER_NS,
        "device": text_column(devices, device),
        "bytes": block["bytes"] * taken,
        "address": pa.array(address, pa.int64(), mask=address == MISSING),
    }
    return rows, _merged(MEMORY, "a row of allocations", known)


def read_metrics(database: NsysDatabase, names: NsysNames, origin_ns: int) -> Rows:
    """Columns of `counters` from the GPUs' sampled metrics, and what became of the rows."""
    if not database.has(METRICS, "timestamp", "metricId", "value"):
        return {}, _unread(database, METRICS)
    block = _whole(database, METRICS, ("timestamp", "typeId", "metricId", "value"))
    described = {
        (type_id, metric): name
        for type_id, metric, name in database.rows("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName"))
    } if "TARGET_INFO_GPU_METRICS" in database.columns else {}  # fmt: skip
    texts: list[str] = []
    devices: list[str] = []
    known = _near(block["timestamp"], origin_ns) & (block["value"] != MISSING)
    block = {name: column[known] for name, column in block.items()}
    name_of, device_of = _numbering(texts), _numbering(devices)
    metric = name_rows(
        lambda type_id, one: name_of(str(described.get((type_id, one)) or f"metric {one}")),
        block["typeId"],
        block["metricId"],
    )
    device = name_rows(lambda type_id: device_of(f"gpu:{type_id & _GPU_BITS}"), block["typeId"])
    rows = {
        "name": text_column(metric, texts),
        "unit": text_column(np.zeros(len(metric), np.int64), [""]),
        "device": text_column(device, devices),
        "time_ps": (block["timestamp"] - origin_ns) * PS_PER_NS,
        "value": block["value"].astype(np.float64),
    }
    return rows, _merged(METRICS, "a row of counters", known)


def _near(time_ns: Int64s, origin_ns: int) -> NDArray[np.bool_]:
    """Which times are known and can be placed; the difference of any two need not fit 64 bits."""
    near: NDArray[np.bool_] = np.abs(time_ns.astype(np.float64) - origin_ns) < LIMIT_NS
    near[time_ns == MISSING] = False
    return near


def _whole(database: NsysDatabase, table: str, columns: tuple[str, ...]) -> dict[str, Int64s]:
    blocks = list(database.blocks(table, columns))
    empty = np.empty(0, np.int64)
    return {name: np.concatenate([block[name] for block in blocks]) if blocks else empty for name in columns}


def _numbering(texts: list[str]) -> Callable[[str], int]:
    """Numbers texts as they come; `texts` is filled with them."""
    known: dict[str, int] = {}

    def number(text: str) -> int:
        if text not in known:
            known[text] = len(texts)
            texts.append(text)
        return known[text]

    return number


def _unread(database: NsysDatabase, table: str) -> list[Account]:
    rows = database.count(table) if table in database.columns else 0
    return [Account("skipped", table, "columns are missing", rows)] if rows else []


def _merged(table: str, where: str, known: NDArray[np.bool_]) -> list[Account]:
    kept, lost = int(known.sum()), int((~known).sum())
    found = [Account("merged", table, where, kept)] if kept else []
    return [*found, Account("skipped", table, "without a value, or a time that can be placed", lost)] if lost else found


def read_nsys(source: bytes | Path, request: CaptureRequest) -> Capture:
    """Convert one export.

    Args:
        source: the file, which is read piece by piece, or its bytes.
        request: what else is known of the window.

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
        placed = tables.events.finish(start_unix_ns(database, tables.events.first_ns()), request.epoch_unix_ns)
        kinds, marks = mark_steps(tables.events.kinds)
        events = _trace_events(database, names, tables, placed, kinds)
        problems = [*placed.notes, *database.problems]
    capture = capture_of_events(
        events,
        bounds_of_kinds(placed, marks, request.steps),
        request,
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
            "launches": launches_of(tables.events, placed),
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
