"""Traces that other profilers wrote → a run: one shard per file, one window per shard.

A file that marks no steps is one step, from its first event to its last. What the file holds is counted in its row of
`conversions`: events = spans + ignored + dropped.
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
from phasepoint.sources.detect import HEAD_BYTES, detect_format, unpack
from phasepoint.sources.formats import READERS
from phasepoint.sources.trace_file import ReadFile, read_file
from phasepoint.store import ShardWriter, create_run, open_shard

Progress = Callable[[int, int], None]

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


def import_traces(
    files: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str], *, progress: Progress | None = None
) -> tuple[ImportedFile, ...]:
    """Read trace files into a new run, a shard each: of the rank that the file names, else in the files' order.

    Args:
        files: traces of any format of `READERS`, packed with gzip or not.
        out: where to create the run; nothing may be there.
        progress: called with files done and files in all.

    Raises:
        UsageError: no file, two of one rank, or something at `out` already.
        SourceError: a file cannot be read, or holds nothing that is known. Files before it stay imported.
    """
    place = Path(out)
    if not files:
        raise UsageError("no file to import")
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError(f"{out} is there already; import into a new run, or remove it")
    formats = [_format_of(Path(file)) for file in files]
    imported: list[ImportedFile] = []
    for done, (file, format) in enumerate(zip(files, formats, strict=True)):
        if progress is not None:
            progress(done, len(files))
        taken = {one.host: one.path for one in imported}
        imported.append(_import_file(Path(file), format, out, taken, command=[str(file) for file in files]))
    if progress is not None:
        progress(len(files), len(files))
    return tuple(imported)


def _format_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            head = opened.read(4 * HEAD_BYTES)
    except OSError as error:
        raise SourceError(f"{file}: cannot be read: {error.strerror}") from error
    if not head:
        raise SourceError(f"{file}: the file is empty")
    found = detect_format(unpack(head, str(file))[:HEAD_BYTES])
    if found is None:
        raise SourceError(
            f"{file}: no trace that is known: it begins with {head[:16]!r}; expected Kineto's JSON (torch.profiler), "
            "an XPlane (*.xplane.pb), an export of Nsight Systems (*.sqlite), an output of rocprofv3 (JSON), or spans "
            "of Jaeger or OpenTelemetry (JSON)"
        )
    if found not in READERS:
        raise SourceError(
            f"{file}: a trace of format {found!r}, which is not read; expected one of {', '.join(READERS)}"
        )
    return found


def _import_file(
    file: Path, format: str, out: str | os.PathLike[str], taken: dict[int, str], *, command: Sequence[str]
) -> ImportedFile:
    with read_file(file, format) as read:
        host = read.rank if read.rank is not None else max(taken, default=-1) + 1
        if host in taken:
            raise UsageError(f"{file} and {taken[host]} both are of rank {host}; import them into runs of their own")
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
        if writing is not None:
            writing.result()
