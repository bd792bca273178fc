import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_run import EVIL, START_NS, WINDOW_STEPS, WINDOWS, run_tables, step_rows

from phasepoint.core.tables import table_from_rows
from phasepoint.core.units import PS_PER_MS
from phasepoint.findings import summarize_run
from phasepoint.report.export.chrome import chrome_trace, microseconds
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.summary.analysis import analyse_run
from phasepoint.summary.timeline import build_timeline


@given(st.integers(-(2**70), 2**70))
def test_microseconds_are_exact(time_ps):
    assert Decimal(microseconds(time_ps)) * 1_000_000 == time_ps


@pytest.fixture(scope="module", params=[False, True], ids=["chrome", "perfetto"])
def trace(request, opened):
    text = "".join(chrome_trace(analyse_run(opened[0]), *opened[1:], perfetto=request.param))
    return request.param, json.loads(text, parse_float=Decimal)


def _named(document):
    """Events by process and thread name."""
    events = document["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = {}
    for event in events:
        if event["ph"] == "X":
            key = processes[event["pid"]], threads[event["pid"], event["tid"]]
            found.setdefault(key, []).append(event)
    return found


def _ps(event):
    return event["ts"] * 1_000_000, event["dur"] * 1_000_000


def test_overview_tracks(trace):
    tracks = _named(trace[1])
    counts = {name: len(events) for (process, name), events in tracks.items() if process == "host 0: overview"}
    assert counts.pop("phases") >= 5
    steps = WINDOW_STEPS * len(WINDOWS)
    assert counts == {"captured steps": steps, "windows": len(WINDOWS), "checkpoints": 2, "gaps": 1, "hints": 1}


def test_steps_are_where_the_clock_saw_them(trace):
    events = _named(trace[1])["host 0: overview", "captured steps"]
    rows = {row["step"]: (row["start_ps"], row["dur_ps"]) for row in step_rows()}
    assert {e["args"]["step"]: _ps(e) for e in events} == {
        step: rows[step] for first in WINDOWS for step in range(first, first + WINDOW_STEPS)
    }


def test_phases_match_the_strip(trace, opened):
    events = _named(trace[1])["host 0: overview", "phases"]
    strip = [s for s in opened[1].strip if s.phase is not None]
    assert [(e["name"], *_ps(e)) for e in events] == [(s.name, s.start_ps, s.dur_ps) for s in strip]


def test_spans_stand_on_their_threads_with_exact_times(trace):
    tracks = _named(trace[1])
    worker = tracks["host 0: cpu:0", "worker 1"]
    assert [e["name"] for e in worker] == [EVIL, "copy.2"] * len(WINDOWS)
    first = step_rows()[WINDOWS[0]]
    assert _ps(worker[0]) == (first["start_ps"] + 4 * PS_PER_MS + 1, 20 * PS_PER_MS)
    assert worker[0]["args"]["self_us"] == 17_000
    assert "layer" not in worker[0]["args"]
    assert len(tracks["host 0: host", "main"]) == len(WINDOWS)


def test_a_launch_points_to_its_execution(trace):
    events = trace[1]["traceEvents"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(starts) == len(WINDOWS)
    assert starts.keys() == ends.keys()
    assert all(ends[i]["ts"] - starts[i]["ts"] == 3_000 for i in starts)
    assert all(ends[i]["bp"] == "e" for i in ends)


def test_counters_and_order_are_in_the_perfetto_variant_alone(trace):
    is_perfetto, document = trace
    counters = {e["name"] for e in document["traceEvents"] if e["ph"] == "C"}
    ordered = any(e["name"] == "process_sort_index" for e in document["traceEvents"])
    names = {"median step time (ms)", "input wait (% of step time)", "host memory (bytes)", "power, cpu:0 (W)"}
    assert counters == (names if is_perfetto else set())
    assert ordered == is_perfetto


def test_only_known_kinds_of_event_with_all_their_fields(trace):
    for event in trace[1]["traceEvents"]:
        assert event["ph"] in "XMCsf"
        assert {"ph", "pid", "tid", "name"} <= event.keys()
        assert event["ph"] == "M" or "ts" in event


def test_a_window_said_to_hold_more_steps_than_memory_does(tmp_path):
    tables = run_tables(step_rows())
    tables["windows"][-1]["last_step"] = 2**40
    create_run(tmp_path / "run", command=("python", "train.py"))
    writer = open_shard(tmp_path / "run", 0, epoch_unix_ns=START_NS, clock=lambda: START_NS + 12 * 10**9)
    for name, rows in tables.items():
        writer.append(name, table_from_rows(name, rows))
    writer.close()
    run = open_run(tmp_path / "run")
    summary = summarize_run(run)
    text = "".join(chrome_trace(analyse_run(run), summary, build_timeline(run, summary)))
    shown = _named(json.loads(text))["host 0: overview", "captured steps"]
    assert [e["args"]["step"] for e in shown] == [s for w in WINDOWS[:-1] for s in range(w, w + WINDOW_STEPS)] + list(
        range(WINDOWS[-1], 200)
    )
