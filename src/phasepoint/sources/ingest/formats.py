"""The formats of raw captures. A new source is one module and one row of `READERS`.

Which format a trace file is in, told by its content: names and suffixes are not to be trusted.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from phasepoint.core.errors import SourceError
from phasepoint.sources.events.capture import Capture

HEAD_BYTES = 1 << 16
"""So much of a file is looked at. Kineto writes pages of device properties before its first event, others metadata."""

_GZIP = b"\x1f\x8b"
_SQLITE = b"SQLite format 3\x00"
_KINETO = re.compile(
    rb'"(?:deviceProperties|schemaVersion|distributedInfo|torch_profiler_kwargs|baseTimeNanoseconds)"\s*:'
    rb'|"cat"\s*:\s*"(?:cpu_op|cuda_runtime|kernel|user_annotation|python_function)"'
)
_EVENTS = re.compile(rb'^\s*(?:\[\s*\{|\{.*?"traceEvents"\s*:)', re.DOTALL)
_NAMED = (
    ("rocprof", re.compile(rb'"rocprofiler-sdk-tool"\s*:')),
    ("otel", re.compile(rb'"resource_?[sS]pans"\s*:')),
    ("jaeger", re.compile(rb'"traceID"\s*:.{0,4096}?"(?:spanID|spans)"\s*:', re.DOTALL)),
)
_PLANE = re.compile(rb"^\x0a[\x80-\xff]{0,9}[\x00-\x7f]")
"""An XSpace begins with its first plane: field 1, a length."""


def detect_format(head: bytes) -> str | None:
    """`kineto`, `chrome`, `xplane`, `nsys`, `rocprof`, `jaeger` or `otel`; None where nothing fits.

    Args:
        head: the beginning of the file, unpacked; `HEAD_BYTES` are enough.
    """
    if head.startswith(_SQLITE):
        return "nsys"
    if head.lstrip()[:1] in (b"{", b"["):
        for name, pattern in _NAMED:
            if pattern.search(head):
                return name
        if _KINETO.search(head):
            return "kineto"
        return "chrome" if _EVENTS.search(head) else None
    return "xplane" if _PLANE.match(head) else None


def is_packed(head: bytes) -> bool:
    """Whether a file that begins so is packed with gzip."""
    return head.startswith(_GZIP)


def unpack(data: bytes, name: str) -> bytes:
    """The file's content without gzip, if it is packed; what a truncated one still gives.

    Raises:
        SourceError: it is packed, and nothing of it can be unpacked.
    """
    if not is_packed(data):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        left = _unpack_what_is_there(data)
        if not left:
            raise SourceError(f"{name}: gzip data that cannot be unpacked: {error}") from error
        return left


def _unpack_what_is_there(data: bytes) -> bytes:
    machine = zlib.decompressobj(wbits=31)
    pieces = []
    try:
        for begin in range(0, len(data), HEAD_BYTES):
            pieces.append(machine.decompress(data[begin : begin + HEAD_BYTES]))
    except zlib.error:
        pass
    return b"".join(pieces)


@dataclass(frozen=True)
class CaptureRequest:
    """What a reader is told about the window besides its bytes.

    Attributes:
        window: the window's number.
        epoch_unix_ns: the session's epoch, Unix ns; None where it is not known.
        steps: rows of `steps` (step, start_ps, dur_ps) that the step clock saw during the window.
        keep_spans: whether spans are wanted.
        read_hlo: reads HLO protos, remembering programs seen before.
        holds_steps: whether it holds any step in full, as far as the recorder knows.
    """

    window: int
    epoch_unix_ns: int | None
    steps: pa.Table
    keep_spans: bool
    read_hlo: Callable[..., Any]
    holds_steps: bool = True


def read_capture(capture_format: str, data: bytes | Path, request: CaptureRequest) -> Capture:
    """Decode a raw capture of a known format.

    Args:
        capture_format: a key of `READERS`.
        data: its bytes, unpacked; or, for a format of `FROM_FILES`, the file that holds them.
        request: what else the reader is told.

    Raises:
        SourceError: the format is unknown, or the bytes cannot be decoded.
    """
    if capture_format not in READERS:
        raise SourceError(
            f"window {request.window}: no reader for captures of format {capture_format!r}; there are readers for "
            f"{', '.join(READERS)}. The run was recorded by a newer Phasepoint: upgrade to read it"
        )
    return READERS[capture_format](data, request)


def _read_xplane(data: bytes, request: CaptureRequest) -> Capture:
    from phasepoint.sources.xplane.reader import read_xplane

    return read_xplane(
        data,
        window=request.window,
        epoch_unix_ns=request.epoch_unix_ns,
        steps=request.steps,
        keep_spans=request.keep_spans,
        read_hlo=request.read_hlo,
        holds_steps=request.holds_steps,
    )


def _read_kineto(data: bytes, request: CaptureRequest) -> Capture:
    from phasepoint.sources.chrome.reader import read_kineto

    return read_kineto(
        data,
        window=request.window,
        epoch_unix_ns=request.epoch_unix_ns,
        steps=request.steps,
        keep_spans=request.keep_spans,
        holds_steps=request.holds_steps,
    )


def _read_nsys(data: bytes | Path, request: CaptureRequest) -> Capture:
    from phasepoint.sources.nsys.reader import read_nsys

    return read_nsys(data, **_common(request))


def _read_rocprof(data: bytes, request: CaptureRequest) -> Capture:
    from phasepoint.sources.rocprof.reader import read_rocprof

    return read_rocprof(data, **_common(request))


def _read_jaeger(data: bytes, request: CaptureRequest) -> Capture:
    from phasepoint.sources.tracing.jaeger import read_jaeger

    return read_jaeger(data, **_common(request))


def _read_otel(data: bytes, request: CaptureRequest) -> Capture:
    from phasepoint.sources.tracing.otel import read_otel

    return read_otel(data, **_common(request))


def _common(request: CaptureRequest) -> dict[str, Any]:
    names = ("window", "epoch_unix_ns", "steps", "keep_spans")
    return {name: getattr(request, name) for name in names}


READERS: Mapping[str, Callable[[Any, CaptureRequest], Capture]] = {
    "xplane": _read_xplane,
    "kineto": _read_kineto,
    "chrome": _read_kineto,
    "nsys": _read_nsys,
    "rocprof": _read_rocprof,
    "jaeger": _read_jaeger,
    "otel": _read_otel,
}

STREAMED = frozenset({"kineto", "chrome"})
"""Formats of which files are read in bounded memory, slice by slice."""

FROM_FILES = frozenset({"nsys"})
"""Formats whose readers take a file as it lies, piece by piece, instead of all its bytes."""
