"""Checkpoints that the job only marked: what account, rule and phases make of them, with and without a window there."""

import numpy as np
import pytest
from planted_runs import MS, check_finding, noisy_steps, steps_of, view_of, within
from planted_spans import busy_step, captured_run

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.judge import judge_analysis
from phasepoint.findings.rules.run.checkpoint_stall import find

N = 510
AT = np.arange(49, 500, 50)


def mark(step, at_ps, **more):
    row = {"step": int(step), "path": f"ckpt/{step}", "start_ps": int(at_ps), "dur_ps": 0, "framework": "user"}
    return row | more


def marked(each_ms, *, after_ms=0.0, before_ms=0.0, noise=0.05):
    """Saves of that length in every 50th step, marked when they are done; other work before and after them there."""
    dur_ps = noisy_steps(N, noise=noise)
    dur_ps[AT] += int((each_ms + after_ms + before_ms) * MS)
    steps = steps_of(dur_ps)
    ends = steps["start_ps"][AT] + dur_ps[AT] - int(after_ms * MS)
    return steps, {"checkpoints": [mark(i, at) for i, at in zip(AT, ends, strict=True)]}


def part(view, kind):
    return next((one for one in view.analysis.account.parts if one.kind == kind), None)


@pytest.mark.parametrize("each_ms", [100, 400, 2000])
def test_what_the_steps_last_longer_is_the_checkpoints(tmp_path, each_ms):
    view = view_of(tmp_path, marked(each_ms))
    planted_ps = len(AT) * each_ms * MS
    account = part(view, "checkpoint")
    assert within(account.total_ps, planted_ps, 0.05)
    assert account.low_ps <= planted_ps <= account.high_ps
    assert account.basis == "estimated"
    (found,) = find(view)
    check_finding(view, found)
    assert found.claim.total_ps == account.total_ps
    assert found.confidence == "medium"
    assert "in a thread" in found.remedy
    findings = judge_analysis(view.analysis)
    assert findings.findings[0].code == "CHECKPOINT-STALL"
    assert [one.code for one in findings.findings].count("DEVICE-IDLE") == 0


def test_what_comes_after_the_mark_is_none(tmp_path):
    view = view_of(tmp_path, marked(200, after_ms=600))
    assert within(part(view, "checkpoint").total_ps, len(AT) * 200 * MS, 0.1)
    assert "checkpoint" not in {phase.kind for phase in view.analysis.result.phases}  # 200 of 800 ms


def test_an_evaluation_that_the_job_named_is_none(tmp_path):
    steps, rows = marked(200, before_ms=600)
    steps["kind"] = ["eval" if i in AT else None for i in range(N)]
    rows["hints"] = [
        {"name": "eval", "start_ps": row["start_ps"] - 800 * MS, "dur_ps": 600 * MS, "first_step": row["step"],
         "last_step": row["step"]}
        for row in rows["checkpoints"]
    ]  # fmt: skip
    view = view_of(tmp_path, (steps, rows))
    assert within(part(view, "checkpoint").total_ps, len(AT) * 200 * MS, 0.1)
    by_code = {one.code: one for one in judge_analysis(view.analysis).findings}
    assert within(by_code["EVAL-SHARE"].alone_ps, len(AT) * 600 * MS, 0.1)
    assert "SLOW-STEPS" not in by_code
    assert [phase.kind for phase in view.analysis.result.phases] == ["train", "eval"]


def test_a_mark_that_costs_nothing_costs_nothing(tmp_path):
    view = view_of(tmp_path, marked(0))
    assert (part(view, "checkpoint") or find(view)) == []


def test_where_a_window_saw_the_step_it_is_what_follows_the_devices_work(tmp_path):
    """Step 5 of the run is captured: the device works for all but the save."""
    save_ps = 40 * MS

    def fill(timeline, where, dur_ps):
        busy_step(timeline, where, dur_ps - (save_ps if where[1] == 5 else 0))
        if where[1] == 5:  # the copy to the host belongs to the save
            timeline.add(where, "copy", dur_ps - MS, MS, level="kernel", device="gpu:0", category="data_movement")

    steps, rows = captured_run(fill, step_ms=100.0)
    end_ps = int(steps["start_ps"][5] + steps["dur_ps"][5])
    rows["checkpoints"] = [mark(5, end_ps)]
    (row,) = view_of(tmp_path, (steps, rows)).table("checkpoints").to_pylist()
    assert (row["dur_ps"], row["basis"], row["error_ps"]) == (save_ps, "measured", 0)
    assert row["start_ps"] == end_ps - save_ps


def test_a_mark_between_loops_owns_the_time_since_the_last_step_at_most(tmp_path):
    steps = steps_of(noisy_steps(N))
    steps["start_ps"][300:] += 5000 * MS
    end_ps = int(steps["start_ps"][299] + steps["dur_ps"][299])
    view = view_of(tmp_path, (steps, {"checkpoints": [mark(299, end_ps + 4000 * MS)]}))
    account = part(view, "checkpoint")
    assert (account.total_ps, account.low_ps, account.basis) == (4000 * MS, 0, "estimated")
    (found,) = find(view)
    assert (found.claim.outside_ps, found.low_ps) == (4000 * MS, 0)


def test_two_marks_in_a_step_share_it(tmp_path):
    steps, rows = marked(400)
    rows["checkpoints"] += [mark(row["step"], row["start_ps"] - 100 * MS, path="other") for row in rows["checkpoints"]]
    view = view_of(tmp_path, (steps, rows))
    assert within(part(view, "checkpoint").total_ps, len(AT) * 400 * MS, 0.05)
    held = {row["path"]: row["dur_ps"] for row in view.table("checkpoints").to_pylist() if row["step"] == 99}
    assert held["ckpt/99"] == 100 * MS
    assert within(held["other"], 300 * MS, 0.1)


def test_a_mark_of_what_a_hook_measured_is_left_out(tmp_path):
    steps, rows = marked(400)
    hooked = [
        row | {"framework": "torch", "start_ps": row["start_ps"] - 400 * MS, "dur_ps": 400 * MS}
        for row in rows["checkpoints"]
    ]
    view = view_of(tmp_path, (steps, {"checkpoints": [*hooked, *rows["checkpoints"]]}))
    assert view.table("checkpoints").num_rows == len(AT)
    account = part(view, "checkpoint")
    assert (account.total_ps, account.basis) == (len(AT) * 400 * MS, "measured")


def test_a_block_is_measured(tmp_path):
    steps, rows = marked(400)
    blocks = [row | {"start_ps": row["start_ps"] - 400 * MS, "dur_ps": 400 * MS} for row in rows["checkpoints"]]
    view = view_of(tmp_path, (steps, {"checkpoints": blocks}))
    account = part(view, "checkpoint")
    assert (account.total_ps, account.basis) == (len(AT) * 400 * MS, "measured")
    assert find(view)[0].confidence == "high"
    assert "checkpoint" in {phase.kind for phase in view.analysis.result.phases}


def test_where_every_step_is_marked_nothing_says_how_long(tmp_path):
    steps = steps_of(noisy_steps(N))
    ends = steps["start_ps"] + steps["dur_ps"]
    view = view_of(tmp_path, (steps, {"checkpoints": [mark(i, at) for i, at in enumerate(ends)]}))
    assert part(view, "checkpoint") is None
    with pytest.raises(Unavailable, match=r"with run\.checkpoint"):
        find(view)


def test_steps_of_other_sorts_are_no_measure(tmp_path):
    """Ten short steps of evaluation around each save."""
    steps, rows = marked(300)
    dur_ps, kind = np.array(steps["dur_ps"]), np.full(N, None, object)
    for i in AT[:-1]:
        kind[i + 1 : i + 40] = "eval"
        dur_ps[i + 1 : i + 40] //= 3
    steps = steps_of(dur_ps, kind=kind.tolist())
    rows["checkpoints"] = [mark(i, steps["start_ps"][i] + dur_ps[i]) for i in AT]
    view = view_of(tmp_path, (steps, rows))
    assert within(part(view, "checkpoint").total_ps, len(AT) * 300 * MS, 0.05)
