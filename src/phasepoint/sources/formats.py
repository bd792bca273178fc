"""The formats of raw captures. A new source is one module and one row of `READERS`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from phasepoint.core.errors import SourceError
from phasepoint.sources.capture import Capture


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
    from phasepoint.sources.xplane import read_xplane

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
    from phasepoint.sources.kineto import read_kineto

    return read_kineto(
        data,
        window=request.window,
        epoch_unix_ns=request.epoch_unix_ns,
        steps=request.steps,
        keep_spans=request.keep_spans,
        holds_steps=request.holds_steps,
    )


def _read_nsys(data: bytes | Path, request: CaptureRequest) -> Capture:
    from phasepoint.sources.nsys import read_nsys

    return read_nsys(data, **_common(request))


def _read_rocprof(data: bytes, request: CaptureRequest) -> Capture:
    from phasepoint.sources.rocprof import read_rocprof

    return read_rocprof(data, **_common(request))


def _read_jaeger(data: bytes, request: CaptureRequest) -> Capture:
    from phasepoint.sources.jaeger import read_jaeger

    return read_jaeger(data, **_common(request))


def _read_otel(data: bytes, request: CaptureRequest) -> Capture:
    from phasepoint.sources.otel import read_otel

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
