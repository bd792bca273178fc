"""A file's format is told by its content, whatever it is called."""

import gzip
import json
import os
from pathlib import Path

import pytest

from phasepoint.core.errors import SourceError
from phasepoint.sources.ingest.formats import HEAD_BYTES, detect_format, unpack

DATA = os.environ.get("PHASEPOINT_DATA")

EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (json.dumps({"schemaVersion": 1, "traceEvents": []}), "kineto"),
        (json.dumps({"traceEvents": [EVENT]}), "kineto"),
        (json.dumps([EVENT]), "kineto"),
        (json.dumps({"traceEvents": [{"ph": "B", "name": "f", "ts": 1}]}), "chrome"),
        (json.dumps([{"ph": "B", "name": "f", "ts": 1}]), "chrome"),
        (json.dumps({"rocprofiler-sdk-tool": [{}]}), "rocprof"),
        (json.dumps({"data": [{"traceID": "1f", "spans": [{"traceID": "1f", "spanID": "2a"}]}]}), "jaeger"),
        (json.dumps({"resourceSpans": []}), "otel"),
        (json.dumps({"hello": "world"}), None),
        ("SQLite format 3\x00\x10\x00", "nsys"),
        ("step,loss\n1,2\n", None),
        ("", None),
    ],
)
def test_formats(head, expected):
    assert detect_format(head.encode()) == expected


def test_a_plane_of_an_xspace():
    assert detect_format(b"\x0a\x90\x03\x08\x01\x12\x09/host:CPU") == "xplane"


def test_gzip_is_unpacked_as_far_as_it_goes():
    text = json.dumps([EVENT] * 5000).encode()
    packed = gzip.compress(text)
    assert unpack(text, "t.json") is text
    assert unpack(packed, "t.json.gz") == text
    some = unpack(packed[: len(packed) // 2], "t.json.gz")
    assert some
    assert text.startswith(some)


def test_gzip_of_which_nothing_is_left():
    with pytest.raises(SourceError, match=r"t\.json\.gz: gzip data that cannot be unpacked"):
        unpack(b"\x1f\x8b\x08\x00", "t.json.gz")


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="PHASEPOINT_DATA is not set: real traces are elsewhere")
@pytest.mark.parametrize("folder", ["kineto", "xplane", "nsys", "rocprof", "jaeger"])
def test_real_traces(folder):
    files = sorted((Path(DATA) / "traces" / folder).iterdir())
    assert files
    for file in files:
        assert detect_format(unpack(file.read_bytes(), str(file))[:HEAD_BYTES]) == folder, file
