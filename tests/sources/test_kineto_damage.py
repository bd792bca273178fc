"""What is no JSON: names with quotes in them, control characters, garbage, files that are cut off."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phasepoint.core.errors import SourceError
from phasepoint.sources.chrome.blocks import PlainBytes
from phasepoint.sources.chrome.reader import KinetoReading, read_kineto
from phasepoint.sources.events.capture import CaptureRequest

EVENT = '{"ph": "X", "cat": "cpu_op", "name": "%s", "pid": 1, "tid": 1, "ts": %d, "dur": 2, "args": {"a": [1, "b"]}}'


def trace(*names):
    return '{"traceEvents": [' + ", ".join(EVENT % (name, 10 * i) for i, name in enumerate(names)) + '], "x": 1}'


def names(found):
    return found.spans["name"].to_pylist()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('operator "" foo', 'operator "" foo'),
        ('lambda [capture="x"]', 'lambda [capture="x"]'),
        ("tab\there", "tab\there"),
        ("two\nlines", "two\nlines"),
        (r"C:\data\new", r"C:\data\new"),
        (r"\x41", r"\x41"),
        (r"\ud800 alone", "? alone"),
    ],
)
def test_names_that_are_not_escaped(written, read):
    found = read_kineto(trace("first", written, "last").encode(), CaptureRequest())
    assert names(found) == ["first", read, "last"]
    (row,) = found.conversion.to_pylist()
    assert (row["events"], row["dropped_events"]) == (3, 0)


def test_what_no_reader_can_make_sense_of_costs_itself_alone():
    data = trace("first", "bad", "last").replace('"name": "bad"', '"name": bad').encode()
    found = read_kineto(data, CaptureRequest())
    assert names(found) == ["first", "last"]
    (row,) = found.conversion.to_pylist()
    assert (row["events"], row["dropped_events"]) == (3, 1)
    assert row["problem"].startswith("damaged JSON (from byte ")
    lost = [r for r in found.accounts.to_pylist() if r["what"] == "unreadable"]
    assert [(r["fate"], r["events"]) for r in lost] == [("skipped", 1)]


def test_bytes_that_are_no_text():
    found = read_kineto(trace("first", "bad", "last").encode().replace(b"bad", b"b\xffd"), CaptureRequest())
    assert names(found) == ["first", "b\ufffdd", "last"]


def test_infinity_among_the_arguments():
    data = trace("first", "last").replace('"a": [1, "b"]', '"a": Infinity, "b": -Infinity, "c": NaN').encode()
    (row,) = read_kineto(data, CaptureRequest()).conversion.to_pylist()
    assert (row["spans"], row["dropped_events"]) == (2, 0)


@given(st.binary(max_size=40), st.integers(0, 10**6), st.integers(60, 600), st.booleans())
@settings(max_examples=200)
def test_damage_in_small_blocks_never_crashes(garbage, place, block_bytes, cut):
    data = trace(*(f"op {i}" for i in range(20))).encode()
    place %= len(data)
    data = data[:place] + garbage + (b"" if cut else data[place + len(garbage) :])
    try:
        with KinetoReading(PlainBytes(data), slice_rows=5, block_bytes=block_bytes) as reading:
            reading.set_window(CaptureRequest())
            found = reading.capture()
    except SourceError:
        return
    (row,) = found.conversion.to_pylist()
    assert row["events"] == row["spans"] + row["ignored_events"] + row["dropped_events"]
    assert row["events"] == sum(found.accounts["events"].to_pylist())
    assert row["spans"] == found.spans.num_rows


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=4), lambda x: st.lists(x) | st.dictionaries(st.text(max_size=4), x)
    )
)
@settings(max_examples=200)
def test_any_json_is_a_trace_or_is_refused(value):
    for data in (json.dumps(value), json.dumps({"traceEvents": value}), json.dumps([value])):
        with suppress(SourceError):
            read_kineto(data.encode(), CaptureRequest())


def test_nesting_without_an_end_is_bounded():
    data = ('{"traceEvents": [{"ph": "X", "args": {"a": ' + "[" * 200_000).encode()
    (row,) = read_kineto(data, CaptureRequest()).conversion.to_pylist()
    assert (row["events"], row["dropped_events"]) == (1, 1)


def test_a_time_that_is_far_from_all_others_costs_itself():
    data = trace("first", "far", "last").replace('"ts": 10', '"ts": 4611686018427387904').encode()
    found = read_kineto(data, CaptureRequest())
    assert names(found) == ["first", "last"]
    assert found.conversion["dropped_events"].to_pylist() == [1]


@pytest.mark.parametrize("base_ns", [0, 10**18, 10**30, -5, "x"])
def test_a_clock_that_cannot_be_the_session_s(base_ns):
    data = json.dumps({"baseTimeNanoseconds": base_ns, **json.loads(trace("first", "last"))}).encode()
    found = read_kineto(data, CaptureRequest(epoch_unix_ns=1_790_857_026 * 10**9))
    assert found.spans["start_ps"].to_pylist() == [0, 10_000_000]
    assert "days from the session's epoch; its times count from its own start" in found.conversion["problem"][0].as_py()


def test_executions_without_a_time_are_left_out_and_told():
    """As PyTorch 2.11 writes what a GPU did where another session has ended before the export."""
    late_us = 4_891_246_107_924
    kernels = [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0.0, "dur": 0.0}] * 5
    ops = [{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": late_us + i, "dur": 1} for i in (0, 2)]
    data = json.dumps({"baseTimeNanoseconds": 1_790_857_026 * 10**9, "traceEvents": kernels + ops}).encode()
    found = read_kineto(data, CaptureRequest(epoch_unix_ns=1_795_748_272 * 10**9))
    assert names(found) == ["op", "op"]
    (row,) = found.conversion.to_pylist()
    assert (row["events"], row["dropped_events"]) == (7, 5)
    assert row["problem"].startswith("5 of 7 events have no time and are left out; PyTorch writes 0")
    assert found.spans["start_ps"].to_pylist()[0] < 10**12  # placed by its own clock, not by the events at 0
