"""A file's format is told by its content, whatever it is called."""

import gzip
import json
import os
import zlib
from pathlib import Path

import pytest

from phasepoint.core.errors import SourceError
from phasepoint.core.packing import PackedTooFar
from phasepoint.sources.chrome.blocks import FileBytes
from phasepoint.sources.ingest.formats import HEAD_BYTES, detect_format, unpack
from phasepoint.sources.ingest.trace_file import read_file
from phasepoint.sources.ingest.trace_folders import look_at

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


def test_a_bomb_is_known_by_its_beginning_and_refused_by_its_whole_size(tmp_path):
    machine = zlib.compressobj(9, wbits=31)
    text = json.dumps([EVENT]).encode()[:-1] + b","
    packed = machine.compress(text) + b"".join(machine.compress(bytes(1 << 20)) for _ in range(400)) + machine.flush()
    (tmp_path / "t.json.gz").write_bytes(packed)
    assert look_at(tmp_path / "t.json.gz").format == "kineto"
    with pytest.raises(PackedTooFar, match=rf"t\.json\.gz: {len(packed) >> 10} KiB unpack to more than"):
        read_file(tmp_path / "t.json.gz", "kineto")


def test_members_that_end_with_the_bytes_read_at_once(tmp_path):
    text = json.dumps([EVENT] * 3).encode()
    fill = gzip.compress(text[:-1] + b" " * 5)
    for size in range((1 << 14) - 2, (1 << 14) + 3):
        extra = size - len(fill) - 2
        first = fill[:3] + b"\x04" + fill[4:10] + extra.to_bytes(2, "little") + bytes(extra) + fill[10:]
        assert len(first) == size
        (tmp_path / "t.json.gz").write_bytes(first + gzip.compress(b"]"))
        assert unpack((tmp_path / "t.json.gz").read_bytes(), "t").endswith(b"}     ]")
        with FileBytes(tmp_path / "t.json.gz") as source:
            room = bytearray(1 << 16)
            while source.readinto(memoryview(room)):
                pass
            assert source.size == len(text) + 5


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="PHASEPOINT_DATA is not set: real traces are elsewhere")
@pytest.mark.parametrize("folder", ["kineto", "xplane", "nsys", "rocprof", "jaeger"])
def test_real_traces(folder):
    files = sorted((Path(DATA) / "traces" / folder).iterdir())
    assert files
    for file in files:
        assert detect_format(unpack(file.read_bytes(), str(file))[:HEAD_BYTES]) == folder, file
