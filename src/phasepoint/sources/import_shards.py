"""Traces that other profilers wrote → a run: one shard per file, each written by whichever worker takes it.

A worker reads one file at a time and writes its shard aside, so that memory is bounded by what one file takes, and a
worker that is killed leaves nothing behind: its file is read again by another.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from phasepoint.core.errors import SourceError, UsageError
from phasepoint.core.workers import default_workers, map_tasks
from phasepoint.sources.importing import ImportedFile, import_file
from phasepoint.sources.trace_folders import SkippedFile, assign_hosts, find_traces
from phasepoint.store import create_run
from phasepoint.store.staging import (
    discard_shards,
    discard_staging,
    is_vacant,
    new_staging,
    publish_shard,
    published_sessions,
)

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
class ShardTask:
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
        places: traces of any format of `READERS`, packed with gzip or not, and folders of them.
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
        ShardTask(str(trace.path), trace.format, host, place, command)
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


def import_shard(task: ShardTask) -> ImportedFile | SkippedFile:
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
