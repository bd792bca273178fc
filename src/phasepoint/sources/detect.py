"""Which format a trace file is in, told by its content: names and suffixes are not to be trusted."""

import gzip
import re
import zlib

from phasepoint.core.errors import SourceError

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
