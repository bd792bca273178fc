"""One trace that another profiler wrote → one shard of a run, which holds it as one window.

A file that marks no steps is one step, from its first event to its last. What the file holds is counted in its row of
`conversions`: events = spans + ignored + dropped.

Traces that other profilers wrote → a run: one shard per file, each written by whichever worker takes it.

A worker reads one file at a time and writes its shard aside, so that memory is bounded by what one file takes, and a
worker that is killed leaves nothing behind: its file is read again by another.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from phasepoint.core.errors import SourceError, UsageError
from phasepoint.core.tables import table_from_columns
from phasepoint.core.workers import default_workers, map_tasks
from phasepoint.sources.events.capture import ReadFile
from phasepoint.sources.ingest.formats import FORMAT_OF
from phasepoint.sources.ingest.trace_file import read_file
from phasepoint.sources.ingest.trace_folders import SkippedFile, assign_hosts, find_traces
from phasepoint.store import ShardWriter, create_run, open_shard
from phasepoint.store.writer import (
    discard_shards,
    discard_staging,
    is_vacant,
    new_staging,
    publish_shard,
    published_sessions,
)

_COSTS = ("start_cost_ps", "stop_cost_ps", "capture_cost_ps")


@dataclass(frozen=True)
class ImportedFile:
    """What came of one file.

    Attributes:
        path: the file.
        format: a name of `FORMAT_OF`.
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
        format: a name of `FORMAT_OF`.
        out: the run.
        host: number of the shard; nobody else may write it.
        command: what the run's manifest shall say that made it.

    Raises:
        SourceError: the file cannot be read, or holds nothing that is known.
        StoreError: the shard cannot be written.
    """
    with read_file(file, format) as read:
        row = _write(read, format, out, host, command)
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


def _write(
    read: ReadFile, format: str, out: str | os.PathLike[str], host: int, command: Sequence[str]
) -> dict[str, Any]:
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
        "format": [format],
        "bytes": [read.size],
        **{name: [0] for name in _COSTS},
    }
    framework = FORMAT_OF[format].framework
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


Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImportedTraces:
    """What came of an import.

    Attributes:
        files: the files that became shards, in the order in which they were given.
        unread: traces that nothing could be read from.
        others: files of folders that are no traces.
    """

    files: tuple[ImportedFile, ...]
    unread: tuple[SkippedFile, ...]
    others: tuple[SkippedFile, ...]


@dataclass(frozen=True)
class FileTask:
    """One file and the shard that it becomes."""

    file: str
    format: str
    host: int
    out: str
    command: tuple[str, ...]


def import_traces(
    places: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    workers: int | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> ImportedTraces:
    """Read trace files into a new run, a shard each: of the rank that the file or its name says, else in their order.

    Args:
        places: traces of any format of `FORMATS`, packed with gzip or not, and folders of them.
        out: where to create the run, a path or a URL; nothing may be there.
        workers: processes on this machine; None for one a core as far as there is work for them.
        ray_address: a Ray cluster instead, all of whose machines see the files and `out` under the same names.
        progress: called with files done and files in all.

    Raises:
        UsageError: no file, two of one rank, or something at `out` already.
        SourceError: a file that was named is no trace, or not one file could be read.
        WorkerError: as `map_tasks`. Nothing of the run is left then.
    """
    place = os.fspath(out)
    if not is_vacant(place):
        raise UsageError(f"{out} is there already; import into a new run, or remove it")
    traces, others = find_traces(places)
    command = tuple(os.fspath(one) for one in places)
    tasks = [
        FileTask(str(trace.path), trace.format, host, place, command)
        for trace, host in zip(traces, assign_hosts(traces), strict=True)
    ]
    if workers is None:
        workers = default_workers(len(tasks), sum(trace.size_bytes for trace in traces))
    was_there = Path(place).exists()
    try:
        results = map_tasks(import_shard, tasks, workers=workers, ray_address=ray_address, progress=progress)
        files = tuple(one for one in results if isinstance(one, ImportedFile))
        unread = tuple(one for one in results if isinstance(one, SkippedFile))
        if not files:
            raise SourceError("\n".join(one.reason for one in unread))
        _complete(place, command)
    except BaseException:
        discard_shards(place)
        if not was_there and Path(place).is_dir():
            Path(place).rmdir()
        raise
    return ImportedTraces(files, unread, others)


def import_shard(task: FileTask) -> ImportedFile | SkippedFile:
    """Import one file; what is wrong with its content is told, and stops no other file.

    Raises:
        StoreError: the shard cannot be written.
    """
    staging = new_staging(task.out, task.host)
    try:
        done = import_file(Path(task.file), task.format, staging, task.host, command=task.command)
        publish_shard(task.out, staging, task.host)
        return done
    except SourceError as error:
        return SkippedFile(task.file, str(error))
    finally:
        discard_staging(task.out, staging)


def _complete(out: str, command: Sequence[str]) -> None:
    """Write the run's manifest: from here on it is one."""
    discard_staging(out)
    first, *_ = published_sessions(out)
    create_run(out, command=command, frameworks={first.framework: ""} if first.framework else {}, devices=first.devices)
