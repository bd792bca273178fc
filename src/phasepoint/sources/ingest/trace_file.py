"""One trace file, read: what it says of its job, its steps, and its tables, at once or slice by slice."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.errors import SourceError
from phasepoint.core.packing import is_packed
from phasepoint.core.tables import TABLES, table_from_columns
from phasepoint.sources.events.capture import NO_WORK, Capture, CaptureRequest, ReadFile
from phasepoint.sources.ingest.formats import FORMAT_OF, HEAD_BYTES, TraceFormat, unpack


def read_file(file: Path, format: str) -> ReadFile:
    """Read a trace file.

    Args:
        file: the file, packed with gzip or not.
        format: a name of `FORMAT_OF`.

    Raises:
        SourceError: it cannot be read, or holds nothing that is a stretch of work.
    """
    try:
        row = FORMAT_OF[format]
        return row.stream(file) if row.streamed else _WholeFile(file, row)
    except SourceError as error:
        message = str(error)
        raise error if message.startswith(str(file)) else SourceError(f"{file}: {message}") from error
    except OSError as error:
        raise SourceError(f"{file}: cannot be read: {error.strerror}") from error


class _WholeFile(ReadFile):
    """A file whose tables are made all at once."""

    def __init__(self, file: Path, format: TraceFormat) -> None:
        data = _content(file, format)
        self._capture, self.marked_steps = _read(format, data)
        if not self._capture.spans.num_rows:
            raise SourceError(NO_WORK)
        self.path = file
        self.size = len(data) if isinstance(data, bytes) else data.stat().st_size
        self.devices, self.epoch_unix_ns = self._capture.devices, self._capture.start_unix_ns or 0
        self.steps = self._capture.steps

    def tables(self) -> Iterator[Mapping[str, pa.Table]]:
        yield {name: table for name, table in self._capture.tables.items() if name != "conversions"}

    def conversion(self) -> pa.Table:
        return self._capture.conversion

    def close(self) -> None:
        pass


def _content(file: Path, format: TraceFormat) -> bytes | Path:
    """The file's bytes, unpacked; the file itself where its reader takes it as it lies."""
    with file.open("rb") as opened:
        if format.takes_files and not is_packed(opened.read(HEAD_BYTES)):
            return file
        opened.seek(0)
        packed = opened.read()
    return unpack(packed, str(file), most_ratio=format.most_ratio)


def _read(format: TraceFormat, data: bytes | Path) -> tuple[Capture, int]:
    """The file's tables, and how many steps it marks."""

    def read(steps: pa.Table) -> Capture:
        return format.read(data, CaptureRequest(steps=steps))

    capture = read(TABLES["steps"].empty)
    if capture.steps.num_rows or not capture.spans.num_rows:
        return capture, 0 if capture.is_whole else capture.steps.num_rows
    start_ps = pc.min(capture.spans["start_ps"]).as_py()
    end_ps = pc.max(pc.add(capture.spans["start_ps"], capture.spans["dur_ps"])).as_py()
    whole = table_from_columns("steps", {"step": [0], "start_ps": [start_ps], "dur_ps": [end_ps - start_ps]})
    return read(whole), 0
