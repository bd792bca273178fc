"""Chrome's trace format beyond what Kineto writes: begins and ends, asynchronous spans, counters, names as text."""

import json

import pytest

from phasepoint.sources.chrome.reader import read_kineto
from phasepoint.sources.events.capture import CaptureRequest

US = 1_000_000


def capture(events, **options):
    return read_kineto(json.dumps(events).encode(), CaptureRequest(**options))


def spans(found):
    return {r["name"]: (r["start_ps"] // US, r["dur_ps"] // US, r["track"]) for r in found.spans.to_pylist()}


def accounts(found):
    return {(r["fate"], r["what"], r["reason"]): r["events"] for r in found.accounts.to_pylist()}


def test_begins_and_ends_nest_on_their_thread():
    found = capture(
        [
            {"ph": "B", "name": "outer", "cat": "a", "pid": "p", "tid": "main", "ts": 0},
            {"ph": "B", "name": "inner", "cat": "a", "pid": "p", "tid": "main", "ts": 2.5},
            {"ph": "B", "name": "other", "pid": "p", "tid": "worker", "ts": 3},
            {"ph": "E", "pid": "p", "tid": "main", "ts": 5},
            {"ph": "E", "pid": "p", "tid": "worker", "ts": 4},
            {"ph": "E", "pid": "p", "tid": "main", "ts": 9},
            {"ph": "E", "pid": "p", "tid": "main", "ts": 10},
            {"ph": "B", "name": "unfinished", "pid": "p", "tid": "main", "ts": 11},
        ]
    )
    by_name = {r["name"]: r for r in found.spans.to_pylist()}
    assert {name: (r["start_ps"], r["dur_ps"]) for name, r in by_name.items()} == {
        "outer": (0, 9 * US),
        "inner": (2_500_000, 2_500_000),
        "other": (3 * US, 1 * US),
    }
    assert by_name["inner"]["parent"] == by_name["outer"]["span"]
    assert by_name["outer"]["self_ps"] == 6_500_000
    assert by_name["inner"]["track"] == "process p thread main"
    assert accounts(found) == {
        ("kept", "a", ""): 2,
        ("kept", "no category", ""): 1,
        ("merged", "end", "the end of the span that began with it"): 3,
        ("skipped", "end", "an end without its beginning"): 1,
        ("skipped", "no category", "begun and never ended"): 1,
    }
    (row,) = found.conversion.to_pylist()
    assert (row["events"], row["spans"], row["ignored_events"], row["dropped_events"]) == (8, 3, 3, 2)


def test_asynchronous_spans_have_a_track_for_each_id():
    found = capture(
        [
            {"ph": "b", "cat": "net", "name": "get", "id": "0x1", "pid": 1, "tid": 1, "ts": 0},
            {"ph": "b", "cat": "net", "name": "get", "id": "0x2", "pid": 1, "tid": 1, "ts": 1},
            {"ph": "n", "cat": "net", "name": "half", "id": "0x1", "pid": 1, "tid": 1, "ts": 2},
            {"ph": "e", "cat": "net", "name": "get", "id": "0x1", "pid": 1, "tid": 2, "ts": 4},
            {"ph": "e", "cat": "net", "name": "get", "id": "0x2", "pid": 1, "tid": 2, "ts": 9},
        ]
    )
    assert sorted((r["track"], r["start_ps"] // US, r["dur_ps"] // US) for r in found.spans.to_pylist()) == [
        ("async net 0x1", 0, 4),
        ("async net 0x2", 1, 8),
    ]
    assert found.conversion["misnested_events"].to_pylist() == [0]


@pytest.mark.parametrize(
    ("value", "read"),
    [(text, []) for text in ("3e", "3e+", "-3E-", "3e--1", "3e99999999999999999999", "3e401")] + [("3e-401", [0.0])],
)
def test_an_exponent_that_is_none_is_no_number(value, read):
    """Found by damaging traces: it was taken for the least of all integers, and read beyond the table of powers."""
    event = '{"ph": "C", "name": "memory", "pid": 1, "tid": 1, "ts": 1, "args": {"used": %s, "free": 2e1}}'
    data = f'{{"traceEvents": [{event % value}, {event % "5"}]}}'.encode()
    found = read_kineto(data, CaptureRequest())
    rows = [(row["name"], row["value"]) for row in found.counters.to_pylist()]
    assert [value for name, value in rows if name == "memory used"] == [*read, 5.0]
    assert [value for name, value in rows if name == "memory free"] == [20.0, 20.0]


def test_counters_keep_each_of_their_numbers():
    found = capture(
        {
            "displayTimeUnit": "ns",
            "traceEvents": [
                {"ph": "C", "name": "memory", "pid": 1, "ts": 3, "args": {"used": 5, "free": 0.25, "note": "x"}},
                {"ph": "C", "name": "power", "pid": 1, "ts": 4, "args": {"value": 1e300}},
                {"ph": "X", "name": "work", "pid": 1, "tid": 1, "ts": 1, "dur": 9},
                {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "the worker"}},
            ],
        }
    )
    rows = [(r["name"], r["time_ps"], r["value"]) for r in found.counters.to_pylist()]
    assert rows == [("memory used", 2 * US, 5.0), ("memory free", 2 * US, 0.25), ("power", 3 * US, 1e300)]
    assert spans(found) == {"work": (0, 9, "the worker")}


def test_a_list_may_end_without_its_bracket():
    data = b'[{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1},\n'
    (row,) = read_kineto(data, CaptureRequest()).conversion.to_pylist()
    assert (row["events"], row["spans"], row["problem"]) == (1, 1, None)
