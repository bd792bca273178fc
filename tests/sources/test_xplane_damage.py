"""Untrusted bytes: whatever they are, an error that says where, or tables that account for every event."""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_jax import record
from xplane_schema.build import PlaneBuilder, environment, new_space
from xplane_schema.messages import XSpace

from phasepoint.core.errors import SourceError
from phasepoint.core.tables import validate_table
from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.xplane import planes
from phasepoint.sources.xplane.reader import read_xplane


def check(data):
    """Read damaged bytes: tables that validate and close, or a SourceError."""
    try:
        capture = read_xplane(data, CaptureRequest(epoch_unix_ns=10**18))
    except SourceError as error:
        assert "byte" in str(error)  # noqa: PT017
        return None
    for name in ("spans", "ops", "breakdowns"):
        validate_table(name, getattr(capture, name))
    row = capture.conversion.to_pylist()[0]
    assert row["events"] == row["spans"] + row["ignored_events"] + row["dropped_events"]
    assert capture.spans.num_rows == row["spans"]
    return capture


@functools.cache
def small_trace():
    """A real trace cut down to a few hundred events, its programs left out."""
    space = XSpace.FromString(record(wait_each_step=True))
    for plane in space.planes:
        if plane.name == "/host:metadata":
            del plane.event_metadata[:]
        for line in plane.lines:
            del line.events[60:]
    return space.SerializeToString()


@pytest.mark.jax
@settings(max_examples=120)
@given(st.lists(st.tuples(st.integers(0, 1 << 24), st.integers(0, 255)), min_size=1, max_size=12))
def test_flipped_bytes(flips):
    damaged = bytearray(small_trace())
    for place, byte in flips:
        damaged[place % len(damaged)] = byte
    check(bytes(damaged))


@pytest.mark.jax
@settings(max_examples=60)
@given(st.integers(0, 1 << 24))
def test_truncation(length):
    length %= len(small_trace())
    capture = check(small_trace()[:length])
    whole = read_xplane(small_trace(), CaptureRequest()).conversion.to_pylist()[0]
    if capture is not None:
        assert capture.conversion.to_pylist()[0]["spans"] <= whole["spans"]


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_garbage(data):
    check(data)


def host_space(n_events):
    """The planes in the order in which profilers write them, the names behind the events as protobuf has it."""
    space = new_space()
    environment(space, 10**18)
    cpu = PlaneBuilder(space, "/host:CPU")
    for i in range(n_events):
        cpu.event("python", "f", i * 10, 5)
    return space


def test_a_cut_off_tail_keeps_the_whole_events_and_says_so():
    space = host_space(100)
    PlaneBuilder(space, "/host:CPU2")
    cpu2 = PlaneBuilder(space, "/host:second")
    for i in range(50):
        cpu2.event("python", "g", i * 10, 5)
    data = space.SerializeToString()
    capture = read_xplane(data[:-40], CaptureRequest())
    row = capture.conversion.to_pylist()[0]
    assert row["spans"] == 100
    assert "cut off at byte" in row["problem"]
    assert capture.spans.num_rows == 100


def test_events_that_cannot_be_placed_are_dropped_and_counted():
    space = host_space(3)
    cpu = PlaneBuilder(space, "/host:CPU")
    cpu.event("python", "backwards", 5, -3)
    cpu.event("python", "far", 2**62, 1)
    cpu.event("python", "counted", 0, 1).num_occurrences = 4
    cpu.line("python").events.add(metadata_id=999, offset_ps=1, duration_ps=1)
    row = read_xplane(space.SerializeToString(), CaptureRequest()).conversion.to_pylist()[0]
    assert (row["events"], row["spans"], row["dropped_events"]) == (7, 3, 4)


def test_an_event_at_the_end_of_64_bits_is_dropped():
    """Its distance from zero is no number of 64 bits."""
    space = host_space(3)
    PlaneBuilder(space, "/host:CPU").event("python", "before all", -(2**63), 1)
    capture = read_xplane(space.SerializeToString(), CaptureRequest())
    row = capture.conversion.to_pylist()[0]
    assert (row["events"], row["spans"], row["dropped_events"]) == (4, 3, 1)
    assert min(capture.spans["start_ps"].to_pylist()) >= 0


def test_fields_in_another_order_are_read_all_the_same():
    """Written by hand: an event whose duration comes before its metadata id, a stat whose value comes first."""
    space = host_space(2)
    plane = space.planes[1]
    stat = b"\x20\x2a\x08\x01"
    entry = plane.stat_metadata.add(key=1)
    entry.value.id, entry.value.name = 1, "step_num"
    parts = [b"\x18\x07", b"\x22" + bytes([len(stat)]) + stat, b"\x10\x63", b"\x08\x01"]
    body = b"".join(parts)
    rest = plane.SerializeToString()
    odd_line = b"\x12\x01t" + b"\x22" + bytes([len(body)]) + body
    rest += b"\x1a" + bytes([len(odd_line)]) + odd_line
    data = space.planes[0].SerializeToString()
    whole = b"".join(b"\x0a" + _varint(len(p)) + p for p in (data, rest))
    span = next(s for s in read_xplane(whole, CaptureRequest()).spans.to_pylist() if s["track"] == "t")
    assert (span["name"], span["start_ps"], span["dur_ps"], span["level"]) == ("f", 0x63, 7, "model")


def _varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


@pytest.mark.parametrize("data", [b"", b"\x00", b"not a trace", b"\x0a\x02\x08\x01"])
def test_what_is_no_trace_is_refused_with_a_remedy(data):
    with pytest.raises(SourceError, match=r"XPlane capture of \d+ bytes: no plane") as caught:
        read_xplane(data, CaptureRequest())
    assert caught.value.exit_code == 7
    assert "Record the window again" in str(caught.value) or "check its path" in str(caught.value)


def test_one_damaged_program_does_not_hide_the_others():
    space = host_space(1)
    meta = PlaneBuilder(space, "/host:metadata")
    meta.metadata("jit_bad(3)", **{"Hlo Proto": b"\xff\xff\xff"})
    capture = read_xplane(space.SerializeToString(), CaptureRequest())
    row = capture.conversion.to_pylist()[0]
    assert "program 3" in row["problem"]
    assert row["spans"] == 1


def test_messages_of_the_profiler_are_passed_on():
    space = host_space(1)
    space.errors.append("CUPTI: insufficient privileges")
    problem = read_xplane(space.SerializeToString(), CaptureRequest()).conversion.to_pylist()[0]["problem"]
    assert problem == "the profiler reports: CUPTI: insufficient privileges"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x0a\x00" * 120_000, r"120000 fields in the 240000 bytes from byte 0 on"),
        (b"\x0a\x80\xf1\x0e" + b"\x1a\x00" * 122_944, r"121920 fields in the 243840 bytes from byte 4 on"),
        (b"\x0a\x80\xc0\x9a\x0c" + (b"\x1a\xfe\x00" + b"\x12\x7c" + b"u" * 124) * 101_000, "100000 lines"),
        (b"\x0a\x04\x12\x02up" * 10_001, "more than 10000 planes"),
    ],
)
def test_more_messages_than_a_profiler_writes_are_refused_at_once(data, told):
    with pytest.raises(SourceError, match=told):
        read_xplane(data, CaptureRequest())


def test_events_too_short_for_a_name_and_a_time_are_refused(monkeypatch):
    monkeypatch.setattr(planes, "FREE_EVENTS", 100)
    space = new_space()
    builder = PlaneBuilder(space, "/host:CPU")
    builder.event("python", "f", 0, 5)
    for _ in range(400):
        builder.line("python").events.add()
    with pytest.raises(SourceError, match="its 401 events take less than 12 bytes each"):
        read_xplane(space.SerializeToString(), CaptureRequest())
    for i in range(400):
        builder.event("python", "f", 10**9 + i * 10**6, 10**5)
    later = space.SerializeToString()
    monkeypatch.setattr(planes, "LEAST_EVENT_BYTES", len(later) // 801)
    assert read_xplane(later, CaptureRequest()).spans.num_rows == 401
