"""The formats of traces. A new format is one module and one row of `FORMATS`; nothing else knows of it.

A format is told by a file's content: names and suffixes are not to be trusted.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phasepoint.core.errors import SourceError
from phasepoint.core.packing import MOST_RATIO, is_packed, unpack_gzip

if TYPE_CHECKING:
    from phasepoint.sources.events.capture import Capture, CaptureRequest, ReadFile

HEAD_BYTES = 1 << 16
"""So much of a file is looked at. Kineto writes pages of device properties before its first event, others metadata."""


@dataclass(frozen=True)
class TraceFormat:
    """One format.

    Attributes:
        name: what tables call it.
        words: what it is, for messages and help.
        suffixes: how names of its files end.
        detect: whether a file is one, given its first `HEAD_BYTES`, unpacked. The first row that says yes reads it.
        reader: `module:function` below `phasepoint.sources` that makes a `Capture` of bytes and a request.
        framework: whose profiler writes it; None where that cannot be said.
        streamed: `module:class` below `phasepoint.sources`, a `ReadFile` that takes a file in bounded memory; None
            where the reader takes it all at once.
        takes_files: whether the reader takes a file as it lies, piece by piece, in the place of its bytes.
        most_ratio: how many times its size a packed file of it may unpack to.
        rank: finds the process's rank in a file's first or last bytes; None where only the file's name may tell it.
    """

    name: str
    words: str
    suffixes: tuple[str, ...]
    detect: Callable[[bytes], bool]
    reader: str
    framework: str | None = None
    streamed: str | None = None
    takes_files: bool = False
    most_ratio: int = MOST_RATIO
    rank: re.Pattern[bytes] | None = None

    def read(self, data: bytes | Path, request: "CaptureRequest") -> "Capture":
        """Decode a capture; see `read_capture`."""
        capture: Capture = _load(self.reader)(data, request)
        return capture

    def stream(self, file: Path) -> "ReadFile":
        """Read a file in bounded memory, of a format that is `streamed`."""
        reading: ReadFile = _load(str(self.streamed))(file)
        return reading


def _load(place: str) -> Any:
    """A reader by its module and name: imported when it is used, for most runs need none."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"phasepoint.sources.{module}"), name)


def _json_with(pattern: bytes) -> Callable[[bytes], bool]:
    """Whether a file is JSON in whose first bytes the pattern is found."""
    search = re.compile(pattern, re.DOTALL).search
    return lambda head: head.lstrip()[:1] in (b"{", b"[") and search(head) is not None


_PLANE = re.compile(rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f]")
"""An XSpace begins with its first plane: field 1, a length."""

XPLANE_RATIO = 10
"""Twice as much as traces of JAX shrink: 4 to 5 times. Of the little that an event takes, a reader makes 200 bytes."""

_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*\{.{0,65536}?"rank"\s*:\s*"?(\d{1,9})\b', re.DOTALL)

FORMATS: tuple[TraceFormat, ...] = (
    TraceFormat(
        "xplane",
        words="XPlane of jax.profiler or TensorFlow",
        suffixes=(".pb",),
        detect=lambda head: _PLANE.match(head) is not None and head.lstrip()[:1] not in (b"{", b"["),
        reader="xplane.reader:read_xplane",
        framework="jax",
        most_ratio=XPLANE_RATIO,
    ),
    TraceFormat(
        "kineto",
        words="Kineto's JSON of torch.profiler",
        suffixes=(".json",),
        detect=_json_with(
            rb'"(?:deviceProperties|schemaVersion|distributedInfo|torch_profiler_kwargs|baseTimeNanoseconds)"\s*:'
            rb'|"cat"\s*:\s*"(?:cpu_op|cuda_runtime|kernel|user_annotation|python_function)"'
        ),
        reader="chrome.reader:read_kineto",
        framework="torch",
        streamed="chrome.reader:KinetoFile",
        rank=_DISTRIBUTED,
    ),
    TraceFormat(
        "nsys",
        words="an export of Nsight Systems",
        suffixes=(".sqlite",),
        detect=lambda head: head.startswith(b"SQLite format 3\x00"),
        reader="nsys.reader:read_nsys",
        takes_files=True,
    ),
    TraceFormat(
        "rocprof",
        words="an output of rocprofv3",
        suffixes=(".json",),
        detect=_json_with(rb'"rocprofiler-sdk-tool"\s*:'),
        reader="rocprof.reader:read_rocprof",
    ),
    TraceFormat(
        "jaeger",
        words="spans of Jaeger",
        suffixes=(".json",),
        detect=_json_with(rb'"traceID"\s*:.{0,4096}?"(?:spanID|spans)"\s*:'),
        reader="tracing.jaeger:read_jaeger",
    ),
    TraceFormat(
        "otel",
        words="spans of OpenTelemetry",
        suffixes=(".json",),
        detect=_json_with(rb'"resource_?[sS]pans"\s*:'),
        reader="tracing.otel:read_otel",
    ),
    TraceFormat(
        "chrome",
        words="Chrome's JSON",
        suffixes=(".json",),
        detect=_json_with(rb'^\s*(?:\[\s*\{|\{.*?"traceEvents"\s*:)'),
        reader="chrome.reader:read_kineto",
        streamed="chrome.reader:KinetoFile",
        rank=_DISTRIBUTED,
    ),
)
"""The first that recognises a file reads it: Chrome's, which fits almost any JSON of events, is behind the others."""

FORMAT_OF: Mapping[str, TraceFormat] = {row.name: row for row in FORMATS}
"""The rows by name."""


def detect_format(head: bytes) -> str | None:
    """The name of the format of a file; None where nothing fits.

    Args:
        head: the beginning of the file, unpacked; `HEAD_BYTES` are enough.
    """
    return next((row.name for row in FORMATS if row.detect(head)), None)


def describe_formats() -> str:
    """What can be read, for messages and help: each format's words and how its files are called."""
    return ", ".join(f"{row.words} ({', '.join(f'*{suffix}' for suffix in row.suffixes)})" for row in FORMATS)


def read_capture(capture_format: str, data: bytes | Path, request: "CaptureRequest") -> "Capture":
    """Decode a raw capture of a known format.

    Args:
        capture_format: a name of `FORMAT_OF`.
        data: its bytes, unpacked; or, for a format that `takes_files`, the file that holds them.
        request: what else the reader is told.

    Raises:
        SourceError: the format is unknown, or the bytes cannot be decoded.
    """
    if capture_format not in FORMAT_OF:
        raise SourceError(
            f"window {request.window}: no reader for captures of format {capture_format!r}; there are readers for "
            f"{', '.join(FORMAT_OF)}. The run was recorded by a newer Phasepoint: upgrade to read it"
        )
    return FORMAT_OF[capture_format].read(data, request)


def unpack(data: bytes, name: str, *, stop_at: int | None = None, most_ratio: int = MOST_RATIO) -> bytes:
    """The file's content without gzip, if it is packed; what a truncated one still gives.

    Args:
        data: the file, or its beginning.
        name: what messages call it.
        stop_at: unpack no more than so many bytes, however many there are; None for all.
        most_ratio: how many times its size it may unpack to.

    Raises:
        SourceError: it is packed, and nothing of it can be unpacked, or more than a trace can hold.
    """
    if not is_packed(data):
        return data
    content, problem = unpack_gzip(data, name, stop_at=stop_at, most_ratio=most_ratio)
    if problem is not None and not content:
        raise SourceError(f"{name}: gzip data that cannot be unpacked: {problem}")
    return content
