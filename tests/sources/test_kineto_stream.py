"""The scanner against a decoder of JSON, and many blocks and slices against one."""

import gzip
import json
import os
import struct
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phasepoint.sources.chrome import scan
from phasepoint.sources.chrome import slices as kineto_slices
from phasepoint.sources.chrome.blocks import FileBytes, PlainBytes, block_of
from phasepoint.sources.chrome.gather import decode_text, scan_block
from phasepoint.sources.chrome.json_bytes import NO_NUMBER
from phasepoint.sources.chrome.reader import KinetoReading, read_kineto
from phasepoint.sources.events.capture import CaptureRequest

DATA = os.environ.get("PHASEPOINT_DATA", "")
TABLES = ("spans", "ops", "breakdowns", "stages", "launches", "metrics", "collectives", "allocations")
TABLES += ("counters", "accounts")
SLOT_NAMES = {slot: name for name, slot in reversed(scan.SLOTS.items())}

texts = st.text(max_size=20) | st.sampled_from(
    [
        "aten::mm",
        'operator ""_s',
        "back\\slash",
        "tab\tnew\nline",
        "{[()]}",
        "ключ",
        "\U0001f525",
        "cuda_profiler_range",
    ]
)
numbers = st.integers(-(10**6), 10**18) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
values = st.recursive(
    texts | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
times = st.integers(0, 10**15) | st.decimals(0, 10**9, places=3).map(float)
events = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from(["X", "X", "X", "i", "C", "M", "s", "B", "b"]),
        "cat": texts,
        "name": texts,
        "pid": st.integers(0, 9) | texts,
        "tid": st.integers(0, 9) | texts,
        "ts": times,
        "dur": times,
        "id": st.integers(0, 99),
        "bp": texts,
        "args": st.dictionaries(st.sampled_from(sorted(scan.SLOTS)) | texts, values, max_size=6),
    },
)


def plain_text(value):
    """What the scanner hands on of a value: a string's content, or the JSON of anything else."""
    return value if isinstance(value, str) else json.dumps(value)


@given(st.lists(events, max_size=8), st.booleans(), st.sampled_from([None, 1, "\t"]))
@settings(max_examples=300)
def test_the_scanner_agrees_with_a_decoder(trace, ascii_only, indent):
    data = json.dumps(trace, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    decoded = json.loads(data)
    start = data.index(b"[") + 1
    found = scan_block(block_of(data, is_last=True), start, 0)
    assert (found.state, found.stop) == (scan.END, len(data))
    rows = np.concatenate([piece.events for piece in found.pieces] or [np.empty((0, scan.N_COLUMNS), np.int64)])
    assert len(rows) == len(decoded)
    (piece,) = found.pieces or [None]
    for row, event in zip(rows.tolist(), decoded, strict=True):
        for key, column in (("cat", scan.CAT), ("name", scan.NAME), ("pid", scan.PID), ("tid", scan.TID)):
            if key not in event:
                assert row[column] == scan.NONE
            elif isinstance(event[key], str):
                expected = event[key].encode("utf-8", "replace").decode()
                assert decode_text(piece.texts[row[column]]) == expected
            else:
                assert json.loads(piece.texts[row[column]]) == event[key]
        assert row[scan.PHASE] == (ord(event["ph"]) if "ph" in event else scan.NONE)
        for key, column, known in (("ts", scan.START, scan.KNOWS_START), ("dur", scan.DUR, scan.KNOWS_DUR)):
            near = key in event and abs(Decimal(repr(event[key]))) * 1_000_000 < 2**62  # ps; JSON has the repr
            assert bool(row[scan.STATE] & known) == near
            if near:
                assert row[column] == round(event[key] * 1_000_000) or abs(row[column] / event[key] / 1e6 - 1) < 1e-15
        check_arguments(row, piece, event, rows.tolist().index(row))


def check_arguments(row, piece, event, _):
    args = event.get("args", {})
    number = args.get("correlation")
    as_number = whole(number)
    assert row[scan.CORRELATION] == (NO_NUMBER if as_number is None else as_number)


def whole(value):
    """An integer as a number or as text, as far as it has a place in 63 bits."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18 or json.dumps(text) != f'"{text}"':
        return None
    return int(text)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**17), 10**17).map(float))
@settings(max_examples=500)
def test_values_of_counters_are_the_floats_that_stand_there(value):
    data = json.dumps([{"ph": "C", "name": "c", "ts": 0, "args": {"v": value}}]).encode()
    (piece,) = scan_block(block_of(data, is_last=True), 1, 0).pieces
    (_, key), (slot, bits) = piece.extras.tolist()
    assert piece.texts[key] == b"v"
    if slot & 255 == scan.ARG_FLOAT:
        assert struct.unpack("d", struct.pack("q", bits))[0] == value
    else:
        assert float(piece.texts[bits]) == value


def made_trace(draw_events):
    """A trace of two threads and a stream, from `(thread, start, dur, name, correlation)`."""
    made = []
    for i, (thread, start, dur, name, linked) in enumerate(draw_events):
        base = {"ph": "X", "pid": 1, "tid": thread, "ts": start, "dur": dur, "name": f"{name}"}
        if thread == 2:
            correlation = i if linked else 10_000 + i
            where = {"device": 0, "stream": 7, "correlation": correlation}
            made.append(base | {"cat": "kernel", "args": {**where, "grid": [i % 3, 1, 1], "registers per thread": i}})
            if linked:
                call = base | {"cat": "cuda_runtime", "tid": 0, "ts": max(start - 2, 0), "dur": 1, "name": "launch"}
                made.append(call | {"args": {"correlation": i}})
        elif name == 4:
            sizes = {"Bytes": dur, "Device Type": 1, "Device Id": 0, "Total Allocated": i}
            made.append(base | {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "args": sizes})
        elif name == 5:
            made.append({"ph": "C", "name": "power", "pid": 1, "tid": 0, "ts": start, "args": {"W": dur / 7}})
        else:
            shapes = {"Input Dims": [[i % 4, 8], []], "Input type": ["float", "Scalar"]}
            made.append(base | {"cat": "cpu_op", "args": shapes})
    mark = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 9, "dur": 40}
    return made + [mark | {"name": f"ProfilerStep#{k}", "ts": 40 * k} for k in range(6)]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 200), st.integers(0, 60), st.integers(0, 5), st.booleans()),
        min_size=1,
        max_size=60,
    ),
    st.integers(4, 30),
    st.integers(100, 2000),
    st.sampled_from([1, kineto_slices.LOOK_BACK_ROWS]),
)
@settings(max_examples=100)
def test_blocks_and_slices_change_nothing(drawn, slice_rows, block_bytes, look_back_rows):
    data = json.dumps({"traceEvents": made_trace(drawn)}, indent=1).encode()
    whole_capture = read_kineto(data, CaptureRequest(window=3))
    with (
        KinetoReading(PlainBytes(data), slice_rows=slice_rows, block_bytes=block_bytes) as reading,
        patch.object(kineto_slices, "LOOK_BACK_ROWS", look_back_rows),
    ):
        reading.set_window(CaptureRequest(window=3))
        pieces = reading.capture()
    for name in TABLES:
        assert rows_of(pieces, name) == rows_of(whole_capture, name), name
    assert without_cost(pieces) == without_cost(whole_capture)


def rows_of(capture, name):
    table = getattr(capture, name)
    if name == "ops":  # a step that is closed early may have a second row for what comes late
        keys = [column for column in table.column_names if column not in ("count", "total_ps", "self_ps")]
        table = table.group_by(keys).aggregate([(column, "sum") for column in ("count", "total_ps", "self_ps")])
    rows = table.to_pylist()
    return rows if name == "spans" else sorted(map(str, rows))


def without_cost(capture):
    (row,) = capture.conversion.to_pylist()
    return {key: value for key, value in row.items() if key != "convert_cost_ps"}


@pytest.mark.parametrize("pieces", [1, 3])
def test_packed_files_are_unpacked_as_far_as_they_go(tmp_path, pieces):
    data = json.dumps({"traceEvents": made_trace([(0, 10 * i, 5, 0, False) for i in range(5000)])}).encode()
    cuts = [len(data) * k // pieces for k in range(pieces + 1)]
    packed = b"".join(gzip.compress(data[low:high]) for low, high in pairwise(cuts))
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed)
    with FileBytes(path) as source, KinetoReading(source) as reading:
        assert (reading.trace.found, source.size, source.problem) == (5006, len(data), None)
    path.write_bytes(packed[: len(packed) // 2])
    with FileBytes(path) as source, KinetoReading(source) as reading:
        assert 0 < reading.trace.found < 5006
        assert source.problem == "the gzip data is cut off"
        assert reading.trace.problem.startswith("damaged JSON")


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="PHASEPOINT_DATA is not set: real traces are elsewhere")
@pytest.mark.parametrize("path", sorted(Path(DATA or ".").glob("traces/kineto/*.gz")), ids=lambda path: path.name)
def test_every_event_of_a_real_trace_is_counted_once(path):
    data = gzip.decompress(path.read_bytes())
    everything = json.loads(data)["traceEvents"]
    with FileBytes(path) as source, KinetoReading(source, slice_rows=1500, block_bytes=1 << 18) as reading:
        reading.set_window(CaptureRequest())
        found = reading.capture()
    (row,) = found.conversion.to_pylist()
    accounts = found.accounts.to_pylist()
    assert row["events"] == sum(account["events"] for account in accounts) == len(everything)
    assert row["spans"] == sum(account["events"] for account in accounts if account["fate"] == "kept")
    assert row["spans"] == found.spans.num_rows
    assert row["events"] == row["spans"] + row["ignored_events"] + row["dropped_events"]
    by_label = {}
    for event in everything:
        if event["ph"] == "X":
            by_label[event["cat"]] = by_label.get(event["cat"], 0) + 1
    for label, count in by_label.items():
        assert sum(account["events"] for account in accounts if account["what"] == label) == count
    whole_capture = read_kineto(data, CaptureRequest())
    for name in TABLES:
        assert rows_of(found, name) == rows_of(whole_capture, name), name
