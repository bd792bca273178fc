"""One trace that another profiler wrote → one shard of a run, which holds it as one window.

A file that marks no steps is one step, from its first event to its last. What the file holds is counted in its row of
`conversions`: events = spans + ignored + dropped.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from phasepoint.core.tables import table_from_columns
from phasepoint.sources.trace_file import ReadFile, read_file
from phasepoint.store import ShardWriter, create_run, open_shard

_COSTS = ("start_cost_ps", "stop_cost_ps", "capture_cost_ps")
_FRAMEWORK = {"kineto": "torch", "xplane": "jax"}


@dataclass(frozen=True)
class ImportedFile:
    """What came of one file.

    Attributes:
        path: the file.
        format: a key of `READERS`.
        host: the shard that it became.
        steps: steps that it marks; 0 where the whole file is taken as one.
        events, spans, ignored, dropped, orphans: see the table `conversions`.
        problem: what was wrong with it, None where nothing was.
    """

    path: str
    format: str
    host: int
    steps: int
    events: int
    spans: int
    ignored: int
    dropped: int
    orphans: int
    problem: str | None


def import_file(
    file: Path, format: str, out: str | os.PathLike[str], host: int, *, command: Sequence[str] = ()
) -> ImportedFile:
    """Read one trace file into one shard of a run, which is created unless it is there.

    Args:
        file: the trace, packed with gzip or not.
        format: a key of `READERS`.
        out: the run.
        host: number of the shard; nobody else may write it.
        command: what the run's manifest shall say that made it.

    Raises:
        SourceError: the file cannot be read, or holds nothing that is known.
        StoreError: the shard cannot be written.
    """
    with read_file(file, format) as read:
        row = _write(read, out, host, command)
        return ImportedFile(
            path=str(file),
            format=format,
            host=host,
            steps=read.marked_steps,
            events=row["events"],
            spans=row["spans"],
            ignored=row["ignored_events"],
            dropped=row["dropped_events"],
            orphans=row["orphan_events"],
            problem=row["problem"],
        )


def _write(read: ReadFile, out: str | os.PathLike[str], host: int, command: Sequence[str]) -> dict[str, Any]:
    """Write a file's shard, its rows as they come, and return the row of `conversions`."""
    steps = read.steps.select(["step", "start_ps", "dur_ps"])
    start_ps = steps["start_ps"][0].as_py()
    end_ps = steps["start_ps"][-1].as_py() + steps["dur_ps"][-1].as_py()
    window = {
        "window": [0],
        "first_step": steps["step"][:1],
        "last_step": steps["step"][-1:],
        "start_ps": [start_ps],
        "dur_ps": [end_ps - start_ps],
        "reason": ["imported"],
        "format": [read.format],
        "bytes": [read.size],
        **{name: [0] for name in _COSTS},
    }
    framework = _FRAMEWORK.get(read.format)
    closed_ns = read.epoch_unix_ns + end_ps // 1000 + 1
    create_run(out, command=command, frameworks={framework: ""} if framework else {}, devices=read.devices)
    times = iter((read.epoch_unix_ns,))
    writer = open_shard(
        out,
        host,
        epoch_unix_ns=read.epoch_unix_ns,
        framework=framework,
        devices=read.devices,
        notes={"imported": str(read.path)},
        clock=lambda: next(times, closed_ns),
    )
    _write_parts(writer, read.tables())
    conversion = read.conversion()
    writer.append("steps", table_from_columns("steps", steps.to_pydict()))
    writer.append("windows", table_from_columns("windows", window))
    writer.append("conversions", conversion)
    writer.close()
    row: dict[str, Any] = conversion.to_pylist()[0]
    return row


def _write_parts(writer: ShardWriter, slices: Iterator[Mapping[str, pa.Table]]) -> None:
    """Write each slice's parts while the next slice is made; never more than one waits."""
    with ThreadPoolExecutor(1) as pool:
        writing: Future[int] | None = None
        for tables in slices:
            if writing is not None:
                writing.result()
            for name, table in tables.items():
                writer.append(name, table)
            writing = pool.submit(writer.flush)
            pa.default_memory_pool().release_unused()
        if writing is not None:
            writing.result()
