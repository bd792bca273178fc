"""One trace file, read: what it says of its job, its steps, and its tables, at once or slice by slice."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.errors import SourceError
from phasepoint.core.tables import TABLES, table_from_columns
from phasepoint.sources.events.capture import Capture
from phasepoint.sources.events.tables import steps_table
from phasepoint.sources.ingest.formats import (
    FROM_FILES,
    HEAD_BYTES,
    STREAMED,
    CaptureRequest,
    is_packed,
    read_capture,
    unpack,
)


class ReadFile(ABC):
    """A file that has been read. Use as a context manager: it may hold a temporary file.

    Attributes:
        path: the file.
        format: a key of `READERS`.
        size: its bytes, unpacked.
        rank: rank of the process that it names, None where it names none.
        devices: devices that it names.
        epoch_unix_ns: from when its times count, Unix ns.
        marked_steps: steps that it marks; 0 where the whole file is taken as one.
        steps: rows of `steps` (step, start_ps, dur_ps).
    """

    path: Path
    format: str
    size: int
    rank: int | None
    devices: tuple[str, ...]
    epoch_unix_ns: int
    marked_steps: int
    steps: pa.Table

    @abstractmethod
    def tables(self) -> Iterator[Mapping[str, pa.Table]]:
        """Rows of all tables but `steps`, `windows` and `conversions`, in parts."""

    @abstractmethod
    def conversion(self) -> pa.Table:
        """The row of `conversions`, once all tables have been taken."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held."""

    def __enter__(self) -> "ReadFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_file(file: Path, format: str) -> ReadFile:
    """Read a trace file.

    Args:
        file: the file, packed with gzip or not.
        format: a key of `READERS`.

    Raises:
        SourceError: it cannot be read, or holds nothing that is a stretch of work.
    """
    try:
        return _StreamedFile(file, format) if format in STREAMED else _WholeFile(file, format)
    except SourceError as error:
        message = str(error)
        raise error if message.startswith(str(file)) else SourceError(f"{file}: {message}") from error
    except OSError as error:
        raise SourceError(f"{file}: cannot be read: {error.strerror}") from error


_NOTHING = "no event in it is a stretch of work; nothing was imported from it"


class _StreamedFile(ReadFile):
    """A file larger than memory, perhaps: its rows lie in a temporary file."""

    def __init__(self, file: Path, format: str) -> None:
        from phasepoint.sources.chrome.blocks import TraceFile
        from phasepoint.sources.chrome.reader import KinetoReading

        with TraceFile(file) as source:
            self._reading = KinetoReading(source)
            self.size, packing = source.size, source.problem
        trace = self._reading.trace
        if packing is not None:
            trace.add_problem(packing)
        if not trace.spans:
            self.close()
            raise SourceError(_NOTHING)
        self.path, self.format = file, format
        self.rank, self.devices = trace.head.rank, trace.head.devices
        self.epoch_unix_ns = self._reading.first_unix_ns
        marked = self._reading.set_window(0, epoch_unix_ns=self.epoch_unix_ns, whole=True)
        self.steps = steps_table(self._reading.bounds)
        self.marked_steps = self.steps.num_rows if marked else 0

    def tables(self) -> Iterator[Mapping[str, pa.Table]]:
        yield from self._reading.tables()
        yield self._reading.summary()

    def conversion(self) -> pa.Table:
        return self._reading.conversion()

    def close(self) -> None:
        self._reading.close()


class _WholeFile(ReadFile):
    """A file whose tables are made all at once."""

    def __init__(self, file: Path, format: str) -> None:
        data = _content(file, format)
        self._capture, self.marked_steps = _read(format, data)
        if not self._capture.spans.num_rows:
            raise SourceError(_NOTHING)
        self.path, self.format, self.rank = file, format, None
        self.size = len(data) if isinstance(data, bytes) else data.stat().st_size
        self.devices, self.epoch_unix_ns = self._capture.devices, self._capture.start_unix_ns or 0
        self.steps = self._capture.steps

    def tables(self) -> Iterator[Mapping[str, pa.Table]]:
        yield {name: table for name, table in self._capture.tables.items() if name != "conversions"}

    def conversion(self) -> pa.Table:
        return self._capture.conversion

    def close(self) -> None:
        pass


def _content(file: Path, format: str) -> bytes | Path:
    """The file's bytes, unpacked; the file itself where its reader takes it as it lies."""
    with file.open("rb") as opened:
        if format in FROM_FILES and not is_packed(opened.read(HEAD_BYTES)):
            return file
        opened.seek(0)
        packed = opened.read()
    return unpack(packed, str(file))


def _read(format: str, data: bytes | Path) -> tuple[Capture, int]:
    """The file's tables, and how many steps it marks."""

    def read(steps: pa.Table) -> Capture:
        request = CaptureRequest(0, None, steps, keep_spans=True, read_hlo=_read_programs)
        return read_capture(format, data, request)

    capture = read(TABLES["steps"].empty())
    if capture.steps.num_rows or not capture.spans.num_rows:
        return capture, capture.steps.num_rows
    start_ps = pc.min(capture.spans["start_ps"]).as_py()
    end_ps = pc.max(pc.add(capture.spans["start_ps"], capture.spans["dur_ps"])).as_py()
    whole = table_from_columns("steps", {"step": [0], "start_ps": [start_ps], "dur_ps": [end_ps - start_ps]})
    return read(whole), 0


def _read_programs(*args: object, **options: object) -> object:
    from phasepoint.sources.events.programs import read_programs  # and with it protobuf

    return read_programs(*args, **options)  # type: ignore[arg-type]
