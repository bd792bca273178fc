"""Traces that other profilers wrote → a run: one shard per file, one window per shard.

A file that marks no steps is one step, from its first event to its last. What the file holds is counted in its row of
`conversions`: events = spans + ignored + dropped.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.errors import SourceError, UsageError
from phasepoint.core.tables import TABLES, table_from_columns
from phasepoint.sources.capture import Capture
from phasepoint.sources.detect import HEAD_BYTES, detect_format, is_packed, unpack
from phasepoint.sources.formats import FROM_FILES, READERS, CaptureRequest, read_capture
from phasepoint.sources.hlo import read_programs
from phasepoint.sources.kineto_head import KinetoHead, read_head
from phasepoint.store import create_run, open_shard

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


@dataclass(frozen=True, eq=False)
class _ReadFile:
    """One file in memory: what it is, how large unpacked, what it says of its job, and how many steps it marks."""

    path: Path
    format: str
    size: int
    head: KinetoHead
    capture: Capture
    marked: int


def _import_file(
    file: Path, format: str, out: str | os.PathLike[str], taken: dict[int, str], *, command: Sequence[str]
) -> ImportedFile:
    read = _read_file(file, format)
    host = read.head.rank if read.head.rank is not None else max(taken, default=-1) + 1
    if host in taken:
        raise UsageError(f"{file} and {taken[host]} both are of rank {host}; import them into runs of their own")
    _write(read, out, host, command)
    row = read.capture.conversion.to_pylist()[0]
    return ImportedFile(
        path=str(file),
        format=format,
        host=host,
        steps=read.marked,
        events=row["events"],
        spans=row["spans"],
        ignored=row["ignored_events"],
        dropped=row["dropped_events"],
        orphans=row["orphan_events"],
        problem=row["problem"],
    )


def _read_file(file: Path, format: str) -> _ReadFile:
    data = _content(file, format)
    head = read_head(data) if format == "kineto" and isinstance(data, bytes) else KinetoHead()
    try:
        capture, marked = _read(format, data)
    except SourceError as error:
        raise SourceError(f"{file}: {error}") from error
    if not capture.spans.num_rows:
        raise SourceError(f"{file}: no event in it is a stretch of work; nothing was imported from it")
    size = len(data) if isinstance(data, bytes) else data.stat().st_size
    if format not in ("kineto", "xplane"):
        head = KinetoHead(None, capture.devices, capture.start_unix_ns or 0)
    return _ReadFile(file, format, size, head, capture, marked)


def _content(file: Path, format: str) -> bytes | Path:
    """The file's bytes, unpacked; the file itself where its reader takes it as it lies."""
    try:
        with file.open("rb") as opened:
            if format in FROM_FILES and not is_packed(opened.read(HEAD_BYTES)):
                return file
            opened.seek(0)
            packed = opened.read()
    except OSError as error:
        raise SourceError(f"{file}: cannot be read: {error.strerror}") from error
    return unpack(packed, str(file))


def _read(format: str, data: bytes | Path) -> tuple[Capture, int]:
    """The file's tables, and how many steps it marks."""

    def read(steps: pa.Table) -> Capture:
        request = CaptureRequest(0, None, steps, keep_spans=True, read_hlo=read_programs)
        return read_capture(format, data, request)

    capture = read(TABLES["steps"].empty())
    if capture.steps.num_rows or not capture.spans.num_rows:
        return capture, capture.steps.num_rows
    start_ps = pc.min(capture.spans["start_ps"]).as_py()
    end_ps = pc.max(pc.add(capture.spans["start_ps"], capture.spans["dur_ps"])).as_py()
    whole = table_from_columns("steps", {"step": [0], "start_ps": [start_ps], "dur_ps": [end_ps - start_ps]})
    return read(whole), 0


def _write(read: _ReadFile, out: str | os.PathLike[str], host: int, command: Sequence[str]) -> None:
    steps = read.capture.steps.select(["step", "start_ps", "dur_ps"]).to_pydict()
    start_ps, end_ps = steps["start_ps"][0], steps["start_ps"][-1] + steps["dur_ps"][-1]
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
    framework, devices, opened_ns = _FRAMEWORK.get(read.format), read.head.devices, read.head.base_unix_ns
    closed_ns = opened_ns + end_ps // 1000 + 1
    create_run(out, command=command, frameworks={framework: ""} if framework else {}, devices=devices)
    times = iter((opened_ns,))
    writer = open_shard(
        out,
        host,
        epoch_unix_ns=opened_ns,
        framework=framework,
        devices=devices,
        notes={"imported": str(read.path)},
        clock=lambda: next(times, closed_ns),
    )
    for name, table in read.capture.tables.items():
        writer.append(name, table)
    writer.append("steps", table_from_columns("steps", steps))
    writer.append("windows", table_from_columns("windows", window))
    writer.close()
