"""The summary of runs written through the store: values, closure, and runs that are odd, empty, live or broken off."""

import itertools

import msgspec
import numpy as np
import pytest
from run_tables import MS

from phasepoint.core.tables import table_from_columns, table_from_rows
from phasepoint.findings.judge import summarize_run
from phasepoint.phases.clock.accounting import _within
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.summary.analysis import analyse_run
from phasepoint.summary.details import compare_methods
from phasepoint.summary.roofline import measure_phases

S = 1000 * MS
EPOCH_NS = 1_700_000_000 * 10**9


class Clock:
    """A clock for the store that is moved by hand."""

    def __init__(self):
        self.now_ns = EPOCH_NS

    def __call__(self):
        return self.now_ns


def write_shard(path, *, host=0, steps=None, rows=None, close_after_s=None, epoch_s=0, status="ok"):
    """One shard with a steps table and rows of other tables, closed after so many seconds, or left open."""
    clock = Clock()
    clock.now_ns += int(epoch_s * 10**9)
    shard = open_shard(path, host, epoch_unix_ns=clock.now_ns, clock=clock)
    if steps is not None:
        shard.append("steps", table_from_columns("steps", steps))
    for name, some in (rows or {}).items():
        shard.append(name, table_from_rows(name, some))
    shard.flush()
    if close_after_s is not None:
        clock.now_ns += int(close_after_s * 10**9)
        shard.close(status)
    return shard


def steps_of(dur_ps, *, start_ps=0, input_ps=None, compile_ps=None):
    dur = np.asarray(dur_ps, np.int64)
    start = start_ps + np.concatenate(([0], np.cumsum(dur)[:-1])).astype(np.int64)
    columns = {"step": np.arange(len(dur)), "start_ps": start[: len(dur)], "dur_ps": dur}
    if input_ps is not None:
        columns["input_ps"] = input_ps
    if compile_ps is not None:
        columns["compile_ps"] = compile_ps
    return columns


def window(number, first, *, probability=0.01, n=5, **more):
    return {
        "window": number,
        "first_step": first,
        "last_step": first + n - 1,
        "start_ps": first * 10 * MS,
        "dur_ps": n * 10 * MS,
        "reason": "sample",
        "probability": probability,
        "start_cost_ps": MS,
        "slowdown_cost_ps": 2 * MS,
        "stop_cost_ps": 3 * MS,
        "write_cost_ps": 4 * MS,
        "capture_cost_ps": 10 * MS,
        "format": "xplane",
        "bytes": 100,
        **more,
    }


def conversion(number, **more):
    counts = dict.fromkeys(
        ("events", "spans", "ignored_events", "dropped_events", "misnested_events", "orphan_events"), 0
    )
    return {"window": number, **counts, "convert_cost_ps": MS, **more}


def breakdown(number, first, walls, *, n=5):
    return [
        {"window": number, "step": step, "device": "cpu:0", "category": category, "wall_ps": wall}
        for step in range(first, first + n)
        for category, wall in walls.items()
    ]


def test_ops_of_a_step_whose_row_was_lost_do_not_count(path):
    steps = {name: values[:-1] for name, values in steps_of([10 * MS] * 31).items()}
    ops = [
        {"window": 0, "step": step, "device": "cpu:0", "op": "dot", "level": "op", "category": "compute", "count": 1,
         "total_ps": 9 * MS, "self_ps": 9 * MS}
        for step in range(26, 31)
    ]  # fmt: skip
    rows = {
        "windows": [window(0, 26)],
        "conversions": [conversion(0)],
        "breakdowns": breakdown(0, 26, {"compute": 9 * MS, "idle": MS}),
        "ops": ops,
    }
    write_shard(path, steps=steps, rows=rows, close_after_s=1)
    summary = summarize_run(open_run(path))
    assert summary.steps == 30
    assert summary.categories.captured_steps == 4
    assert summary.top_ops[0].count == 4  # one window tells of its own steps alone
    assert len(compare_methods(analyse_run(open_run(path)), 0)) == 4
    assert sum(measure_phases(open_run(path))[1].column("calls").to_pylist()) == 4


def test_the_anatomy_of_the_run_its_phase_and_its_hosts_closes(path):
    walls = {"compute": 7 * MS, "host": 2 * MS, "idle": MS}
    shares = (("compute", "forward", 3), ("compute", "backward", 4), ("host", "optimizer", 2), ("idle", None, 1))
    for host in (0, 1):
        stages = [
            {"window": 0, "step": step, "device": "cpu:0", "category": category, "stage": stage, "wall_ps": ms * MS}
            for step in range(10, 15)
            for category, stage, ms in shares
        ]
        rows = {"windows": [window(0, 10)], "conversions": [conversion(0)], "breakdowns": breakdown(0, 10, walls)}
        write_shard(path, host=host, steps=steps_of([10 * MS] * 30), rows=rows | {"stages": stages}, close_after_s=1)
    summary = summarize_run(open_run(path))
    found = {part.name: part.total_ps for part in summary.anatomy.parts if part.total_ps}
    assert found == {"forward": 180 * MS, "backward": 240 * MS, "host": 120 * MS, "idle": 60 * MS}
    assert {part.name: part.within_ps for part in summary.anatomy.parts if part.within_ps} == {"optimizer": 120 * MS}
    assert [host.anatomy.total_ps for host in summary.hosts] == [300 * MS, 300 * MS]
    assert summary.phases[0].anatomy.total_ps == summary.inside_ps == 600 * MS


@pytest.fixture
def path(tmp_path):
    return create_run(tmp_path / "run", command=["python", "train.py"], frameworks={"jax": "0.10.2"})


def stalled_run(path):
    """1 s before the loop; 300 steps of 10 ms; 2 s of compiling in the first; input stalls in steps 100–149."""
    n = 300
    input_ps, compile_ps = np.full(n, 1 * MS // 10), np.zeros(n, np.int64)
    dur = np.full(n, 10 * MS) + input_ps
    input_ps[100:150] += 10 * MS
    dur[100:150] += 10 * MS
    compile_ps[0] = 2 * S
    dur[0] += 2 * S
    firsts = [20, 60, 110, 200, 250]
    rows = {
        "windows": [window(i, first) for i, first in enumerate(firsts)],
        "conversions": [conversion(i, events=10, dropped_events=1) for i in range(5)],
        "breakdowns": [
            row
            for i, first in enumerate(firsts)
            for row in breakdown(i, first, {"compute": 7 * MS, "host": 1 * MS, "idle": int(dur[first]) - 8 * MS})
        ],
        "ops": [
            {
                "window": i,
                "step": step,
                "device": "cpu:0",
                "program": 1,
                "op": "conv.1",
                "level": "op",
                "category": "compute",
                "layer": "Conv_0",
                "count": 1,
                "total_ps": 7 * MS,
                "self_ps": 7 * MS,
            }
            for i, first in enumerate(firsts)
            for step in range(first, first + 5)
        ],
        "programs": [{"program": 1, "name": "jit_train_step", "first_window": 0, "instructions": 50}],
        "checkpoints": [
            {"step": 180, "path": "ck/180", "start_ps": 0, "dur_ps": 3 * MS, "framework": "orbax", "bytes": 2048}
        ],
        "gaps": [
            {"why": "outside-steps", "start_ps": 0, "dur_ps": S, "unknown": "what the job did"},
            {"why": "lost-window", "first_step": 40, "last_step": 44, "unknown": "their ops"},
            {"why": "lost-window", "first_step": 70, "last_step": 74, "unknown": "their ops"},
        ],
    }
    start = 1 * S
    rows["checkpoints"][0]["start_ps"] = int(start + dur[:180].sum())
    write_shard(
        path,
        steps=steps_of(dur, start_ps=start, input_ps=input_ps, compile_ps=compile_ps),
        rows=rows,
        close_after_s=7,
    )
    return dur, input_ps


def test_a_run_with_a_stall(path):
    dur, input_ps = stalled_run(path)
    summary = summarize_run(open_run(path))
    account = {part.name: part.total_ps for part in summary.account.parts}
    assert summary.wall_ps == 7 * S == sum(account.values())
    assert summary.inside_ps == int(dur.sum())
    assert account["compiling"] == 2 * S
    assert account["input wait"] == int(input_ps.sum()) == summary.input_wait_ps
    assert account["checkpoint"] == 3 * MS
    assert account["outside steps"] == 7 * S - int(dur.sum())
    assert summary.state == "closed"
    assert summary.steps == 300
    categories = {part.name: part.total_ps for part in summary.categories.parts}
    assert sum(categories.values()) == summary.inside_ps
    assert categories["input"] == int(input_ps.sum())
    assert categories["compiling"] == 2 * S
    assert categories["compute"] == pytest.approx(300 * 7 * MS, rel=0.01)
    assert sum(phase.total_ps for phase in summary.phases) == summary.inside_ps


def test_what_the_time_went_into_names_the_largest_parts_first(path):
    stalled_run(path)
    told = summarize_run(open_run(path)).time_went
    assert told.startswith("36 % of 7.00 s went into train steps (conv.1 in Conv_0 100 % of their op time); ")
    assert "29 % compiling" in told
    assert "waiting for input, most of it in steps 100–149" in told
    assert "21 % outside steps" in told


def test_events_are_told_where_they_were(path):
    stalled_run(path)
    events = {event.kind: event for event in summarize_run(open_run(path)).events}
    assert (events["compile"].first_step, events["compile"].cost_ps) == (0, 2 * S)
    assert events["compile"].text == "step 0: compiled jit_train_step, 2.00 s"
    assert (events["input-stall"].first_step, events["input-stall"].last_step) == (100, 149)
    assert "505 ms of 1.00 s" in events["input-stall"].text
    assert events["checkpoint"].text == "step 180: checkpoint ck/180 (orbax, 2.00 KiB) held the job for 3.00 ms"


def test_what_was_not_seen_and_what_it_cost(path):
    stalled_run(path)
    summary = summarize_run(open_run(path))
    seen = summary.not_seen
    assert [(gap.why, gap.count, gap.total_ps, gap.steps) for gap in seen.gaps] == [
        ("outside-steps", 1, S, None),
        ("lost-window", 2, None, 10),
    ]
    assert (seen.steps, seen.captured_steps, seen.windows, seen.pending_windows) == (300, 25, 5, 0)
    assert (seen.events, seen.dropped_events) == (50, 5)
    assert summary.cost.total_ps == 5 * 10 * MS
    assert summary.cost.share == pytest.approx(0.05 / 7)
    assert summary.cost.budget is None


def test_the_strip_tiles_the_time(path):
    stalled_run(path)
    strip = summarize_run(open_run(path)).strip
    assert [segment.name for segment in strip][:2] == ["outside steps", strip[1].name]
    assert strip[0].dur_ps == S
    assert sum(segment.dur_ps for segment in strip) == 7 * S
    for before, after in itertools.pairwise(strip):
        assert before.start_ps + before.dur_ps == after.start_ps
    assert next(s.first_step for s in strip if s.phase is not None) == 0
    assert [s.last_step for s in strip if s.phase is not None][-1] == 299


def test_a_representative_knows_where_to_restart(path):
    stalled_run(path)
    phases = summarize_run(open_run(path)).phases
    for phase in phases:
        assert phase.representative_step is not None
        late = phase.representative_step >= 180
        assert (phase.restart_from, phase.restart_step) == (("ck/180", 180) if late else (None, None))


def test_summary_is_json(path):
    stalled_run(path)
    summary = summarize_run(open_run(path))
    plain = msgspec.to_builtins(summary)
    assert plain["version"] == 1
    assert msgspec.json.decode(msgspec.json.encode(plain)) == msgspec.json.decode(msgspec.json.encode(summary))
    assert summary == summarize_run(open_run(path))


def test_more_than_two_thousand_stretches_are_drawn_together(path):
    dur = np.where(np.arange(9000) // 2 % 2 == 0, 10 * MS, 40 * MS)
    write_shard(path, steps=steps_of(dur), close_after_s=400)
    summary = summarize_run(open_run(path))
    assert len(summary.strip) <= 2001
    assert sum(segment.dur_ps for segment in summary.strip) == summary.wall_ps
    assert all(segment.dur_ps > 0 for segment in summary.strip)


def test_no_windows_leaves_the_clock(path):
    write_shard(path, steps=steps_of(np.full(50, 10 * MS)), close_after_s=0.5)
    summary = summarize_run(open_run(path))
    assert summary.verdict.startswith(
        "NOT KNOWN: the times of the steps alone show no cause, and no step was captured, so what its time goes into "
        "is not known. Next: record a longer job, with capture windows"
    )
    assert summary.time_went == "100 % of 500 ms went into train steps"
    assert any(note.startswith("nothing was captured") for note in summary.notes)
    assert {p.name: p.total_ps for p in summary.categories.parts if p.total_ps} == {"unattributed": 500 * MS}
    assert summary.input_wait_ps is None
    assert summary.top_ops == ()


def test_no_steps_says_what_to_do(path):
    write_shard(path, close_after_s=3)
    summary = summarize_run(open_run(path))
    assert summary.verdict.startswith(
        "NOT KNOWN: no training step was recorded in 3.00 s. Next: record the loop itself: `with phasepoint.record("
    )
    assert summary.notes[0].startswith(
        "no training step was recorded in 3.00 s. Record the loop itself: `with phasepoint"
    )
    assert (summary.not_enough.code, summary.not_enough.text) == ("no-steps", summary.time_went)
    assert summary.phases == ()
    assert [segment.name for segment in summary.strip] == ["outside steps"]


def test_a_run_that_nobody_wrote_to(path):
    summary = summarize_run(open_run(path))
    assert summary.verdict == "Nothing was recorded: no steps and no time."
    assert summary.notes[0] == "no process has written anything yet"
    assert summary.hosts == ()
    assert summary.reference_host is None


def test_one_step(path):
    write_shard(path, steps=steps_of([5 * MS]), close_after_s=0.01)
    summary = summarize_run(open_run(path))
    assert summary.steps == 1
    assert summary.phases[0].median_ps == 5 * MS
    assert summary.account.total_ps == 10 * MS


def test_a_live_run_says_so(path):
    shard = write_shard(path, steps=steps_of(np.full(20, 10 * MS)))
    summary = summarize_run(open_run(path))
    assert summary.state == "live"
    assert "still being recorded (1 process): the numbers cover what was written so far" in summary.notes
    assert summary.wall_ps == 200 * MS
    shard.close()


def test_windows_not_converted_are_counted(path):
    rows = {"windows": [window(0, 5), window(1, 10)], "conversions": [conversion(0)]}
    write_shard(path, steps=steps_of(np.full(20, 10 * MS)), rows=rows, close_after_s=0.2)
    summary = summarize_run(open_run(path))
    assert summary.not_seen.pending_windows == 1
    assert summary.notes[0].startswith("1 window waits to be converted and takes no part in any estimate: open the run")
    assert not any("nothing was captured" in note for note in summary.notes)


def test_hosts_are_added_and_the_straggler_is_named(path):
    for host, wait in ((0, 5), (1, 5), (2, 1), (3, 5)):
        rows = {
            "windows": [window(0, 5), window(1, 30)],
            "conversions": [conversion(0), conversion(1)],
            "breakdowns": [
                {"window": number, "step": step, "device": "cpu:0", "category": category, "wall_ps": ms * MS}
                for number, first in ((0, 5), (1, 30))
                for step in range(first, first + 5)
                for category, ms in (("communication", wait), ("compute", 10 - wait))
            ],
        }
        write_shard(path, host=host, steps=steps_of(np.full(60, 10 * MS)), rows=rows, close_after_s=1)
    summary = summarize_run(open_run(path))
    assert summary.wall_ps == 4 * S
    assert summary.elapsed_ps == S
    assert summary.verdict.startswith("STRAGGLER: host 2 is late: 4.00 ms a step, most of it compute; it costs 960 ms")
    assert summary.time_went.startswith("60 % of 4 × 1.00 s went into train steps")
    assert [(host.host, host.straggler) for host in summary.hosts] == [(0, False), (1, False), (2, True), (3, False)]
    assert summary.hosts[2].slower == pytest.approx(0.8)
    assert summary.phases[0].steps == 240


def test_a_host_without_steps_is_no_straggler(path):
    for host, n in ((0, 30), (1, 30), (2, 0)):
        write_shard(path, host=host, steps=steps_of(np.full(n, 10 * MS)), close_after_s=1)
    hosts = summarize_run(open_run(path)).hosts
    assert [(host.steps, host.slower, host.straggler) for host in hosts] == [
        (30, 0.0, False), (30, 0.0, False), (0, None, False),
    ]  # fmt: skip


def test_a_clock_that_was_set_does_not_lengthen_the_run(path):
    clock = Clock()
    shard = open_shard(path, 0, epoch_unix_ns=clock.now_ns, clock=clock)
    shard.append("steps", table_from_columns("steps", steps_of(np.full(20, 10 * MS))))
    clock.now_ns += 3600 * 10**9
    shard.close("ok", tally={"wall_ps": 2 * S})
    summary = summarize_run(open_run(path))
    assert (summary.wall_ps, summary.inside_ps) == (2 * S, 200 * MS)


@pytest.mark.parametrize("told", [-1, 2**63])
def test_a_length_that_cannot_be_is_not_taken(path, told):
    clock = Clock()
    shard = open_shard(path, 0, epoch_unix_ns=clock.now_ns, clock=clock)
    shard.append("steps", table_from_columns("steps", steps_of(np.full(20, 10 * MS))))
    shard.close("ok", tally={"wall_ps": told})
    assert summarize_run(open_run(path)).wall_ps == 200 * MS


def test_a_restart_is_one_history(path):
    write_shard(path, steps=steps_of(np.full(30, 10 * MS)), close_after_s=1, status="failed")
    write_shard(path, steps=steps_of(np.full(40, 10 * MS)), close_after_s=2, epoch_s=5)
    summary = summarize_run(open_run(path))
    assert (summary.steps, summary.wall_ps, summary.hosts[0].attempts) == (70, 3 * S, 2)
    restart = next(event for event in summary.events if event.kind == "restart")
    assert (restart.start_ps, restart.dur_ps, restart.attempt) == (5 * S, 4 * S, 1)
    assert sum(segment.dur_ps for segment in summary.strip) == 7 * S


def test_recompilation_with_a_new_program_is_a_change_of_shape(path):
    n = 100
    compile_ps = np.zeros(n, np.int64)
    compile_ps[[0, 60]] = [S, S // 2]
    programs = [
        {"program": 1, "name": "jit_train_step", "first_window": 0, "instructions": 50},
        {"program": 2, "name": "jit_train_step", "first_window": 1, "instructions": 51},
        {"program": 3, "name": "jit_add", "first_window": 1, "instructions": 2},
    ]
    rows = {"windows": [window(0, 20), window(1, 70)], "programs": programs}
    write_shard(path, steps=steps_of(10 * MS + compile_ps, compile_ps=compile_ps), rows=rows, close_after_s=3)
    events = [(e.kind, e.first_step, e.text) for e in summarize_run(open_run(path)).events if "compil" in e.text]
    assert events == [
        ("compile", 0, "step 0: compiled jit_train_step, 1.00 s"),
        ("shape-change", 60, "step 60: compiled jit_train_step again, for new shapes or options, 500 ms"),
    ]


def test_the_recorders_own_account_is_taken_where_it_left_one(path):
    names = {"entry": 5, "clock": 6, "flush": 7, "start": 1, "slowdown": 2, "stop": 3, "write": 4, "convert": 8}
    counters = [
        {"name": f"recorder.cost.{name}", "unit": "ps", "device": "host", "time_ps": 9, "value": float(cost * MS)}
        for name, cost in names.items()
    ]
    write_shard(
        path, steps=steps_of([10 * MS] * 5), rows={"windows": [window(0, 0)], "counters": counters}, close_after_s=1
    )
    cost = summarize_run(open_run(path)).cost
    assert (cost.entry_ps, cost.clock_ps, cost.flush_ps, cost.convert_ps) == (5 * MS, 6 * MS, 7 * MS, 8 * MS)
    assert cost.total_ps == 36 * MS
    assert cost.share == pytest.approx(0.036)


def test_the_newest_row_of_the_account_counts(path):
    """It is written with the flushes, the rows that changed alone."""
    told = [("entry", 1, 5), ("clock", 1, 1), ("clock", 2, 3), ("clock", 3, 6), ("flush", 3, 9)]
    counters = [
        {"name": f"recorder.cost.{name}", "unit": "ps", "device": "host", "time_ps": at, "value": float(cost * MS)}
        for name, at, cost in told
    ]
    write_shard(path, steps=steps_of([10 * MS] * 5), rows={"counters": counters})
    cost = summarize_run(open_run(path)).cost
    assert (cost.entry_ps, cost.clock_ps, cost.flush_ps, cost.total_ps) == (5 * MS, 6 * MS, 9 * MS, 20 * MS)
    assert (cost.killed_sessions, cost.complete) == (0, True)


@pytest.mark.parametrize(
    ("share", "budget", "complete", "within"),
    [
        (0.005, 0.01, True, True),
        (0.02, 0.01, True, False),
        (0.005, 0.01, False, None),
        (0.02, 0.01, False, False),
        (0.005, None, True, None),
        (None, 0.01, True, None),
    ],
)
def test_what_is_known_in_part_is_not_called_within_the_budget(share, budget, complete, within):
    assert _within(share, budget, complete) is within


def test_a_session_under_way_without_an_account_is_counted(path):
    write_shard(path, steps=steps_of([10 * MS] * 5), rows={"windows": [window(0, 0)]})
    cost = summarize_run(open_run(path)).cost
    assert (cost.total_ps, cost.complete) == (10 * MS, False)


def test_an_unknown_method_is_refused(path):
    write_shard(path, steps=steps_of([10 * MS] * 5), close_after_s=1)
    with pytest.raises(ValueError, match="no method named 'magic'"):
        summarize_run(open_run(path), method="magic")
