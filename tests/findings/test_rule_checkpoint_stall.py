"""CHECKPOINT-STALL: synchronous saves of several lengths, asynchronous ones, and saves that wait for each other."""

import pytest
from planted_runs import MS, check_finding, noisy_steps, steps_of, view_of, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.run.checkpoint_stall import find

N = 510
"""Ten steps follow the last save: what is saved at the very end holds nothing up."""


def saved(each_ms, *, every=50, asynchronous=False, size=None, framework="torch", between=False):
    """Saves of these lengths, one every so many steps, inside a step or between two."""
    dur_ps, checkpoints = noisy_steps(N), []
    lengths = each_ms if isinstance(each_ms, list) else [each_ms] * (N // every)
    at = range(every - 1, every * len(lengths), every)
    if not between:
        for step, ms in zip(at, lengths, strict=True):
            dur_ps[step] += ms * MS
    steps = steps_of(dur_ps)
    for step, ms in zip(at, lengths, strict=True):
        start_ps = int(steps["start_ps"][step] + steps["dur_ps"][step]) - (0 if between else ms * MS)
        if between:
            steps["start_ps"][step + 1 :] += ms * MS
        row = {"step": step, "path": f"ckpt/{step}", "start_ps": start_ps, "dur_ps": ms * MS, "framework": framework}
        checkpoints.append(row | {"asynchronous": asynchronous, "bytes": size})
    return steps, {"checkpoints": checkpoints}


@pytest.mark.parametrize("each_ms", [80, 400, 2000])
@pytest.mark.parametrize("between", [False, True])
def test_synchronous_saves_are_claimed(tmp_path, each_ms, between):
    view = view_of(tmp_path, saved(each_ms, between=between))
    (found,) = find(view)
    check_finding(view, found)
    assert found.claim.total_ps == N // 50 * each_ms * MS
    assert (found.claim.outside_ps > 0) == between
    assert "10 synchronous checkpoints" in found.title
    assert "one every 50 steps" in found.title


@pytest.mark.parametrize(
    ("framework", "setting"),
    [
        ("torch", "async_save"),
        ("orbax", "ocp.AsyncCheckpointer"),
        ("lightning", "AsyncCheckpointIO"),
        ("transformers", "save_steps"),
        ("accelerate", "save_state"),
        ("keras", "save_freq"),
    ],
)
def test_the_remedy_is_a_setting_of_what_saved(tmp_path, framework, setting):
    (found,) = find(view_of(tmp_path, saved(400, framework=framework)))
    assert setting in found.remedy


def test_the_copy_that_an_asynchronous_save_needs_is_left(tmp_path):
    (found,) = find(view_of(tmp_path, saved(400, size=100_000_000)))
    assert found.claim.total_ps == 10 * (400 - 50) * MS


def test_with_asynchronous_saves_in_the_run_theirs_is_the_measure(tmp_path):
    steps, rows = saved([400, 400, 30, 30, 30])
    for row in rows["checkpoints"][2:]:
        row["asynchronous"] = True
    (found,) = find(view_of(tmp_path, (steps, rows)))
    assert within(found.claim.total_ps, 2 * 370 * MS, 0.01)


def test_asynchronous_saves_are_no_finding(tmp_path):
    assert find(view_of(tmp_path, saved(50, asynchronous=True, framework="orbax"))) == []


def test_asynchronous_saves_that_take_much_are_too_frequent(tmp_path):
    view = view_of(tmp_path, saved(150, asynchronous=True, framework="orbax"))
    (found,) = find(view)
    check_finding(view, found)
    assert found.claim.total_ps == 10 * 75 * MS
    assert found.remedy == "save half as often"
    assert found.low_ps == found.claim.total_ps


def test_a_save_that_takes_much_when_the_job_ends_is_told(tmp_path):
    steps, rows = saved([10])
    end_ps = int(steps["start_ps"][-1] + steps["dur_ps"][-1])
    steps["dur_ps"][-1] += 2000 * MS
    rows["checkpoints"] = [rows["checkpoints"][0] | {"step": N - 1, "start_ps": end_ps, "dur_ps": 2000 * MS}]
    with pytest.raises(Unavailable, match=r"2\.00 s, 11\.6 % of the run, most of it when the job ended"):
        find(view_of(tmp_path, (steps, rows)))


def test_asynchronous_saves_that_wait_for_the_one_before_are_claimed(tmp_path):
    view = view_of(tmp_path, saved([30] * 7 + [1500] * 3, asynchronous=True, framework="orbax"))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 3 * 1500 * MS, 0.1)
    assert found.confidence == "medium"
    assert found.remedy.startswith("save less often")


def waited(each_ms, *, until=N):
    """Asynchronous saves of 10 ms, each waited for at once, within its step; the last one in step `until`."""
    lengths = [10] * (until // 50)
    dur_ps = noisy_steps(N)
    dur_ps[[50 * k + 49 for k in range(len(lengths))]] += (10 + each_ms) * MS
    steps = steps_of(dur_ps)
    rows, waits = [], []
    for k in range(len(lengths)):
        step = 50 * k + 49
        end_ps = int(steps["start_ps"][step] + steps["dur_ps"][step])
        common = {"step": step, "framework": "orbax"}
        rows.append(
            common
            | {"path": f"ckpt/{step}", "start_ps": end_ps - (10 + each_ms) * MS, "dur_ps": 10 * MS}
            | {"asynchronous": True, "bytes": None}
        )
        waits.append(common | {"start_ps": end_ps - each_ms * MS, "dur_ps": each_ms * MS})
    return steps, {"checkpoints": rows, "checkpoint_waits": waits}


@pytest.mark.parametrize("each_ms", [100, 900])
def test_waiting_for_every_asynchronous_save_is_claimed(tmp_path, each_ms):
    view = view_of(tmp_path, waited(each_ms, until=N - 50))
    (found,) = find(view)
    check_finding(view, found)
    assert found.claim.total_ps == 9 * each_ms * MS
    assert "it waited for them 9 times" in found.title
    assert "wait_until_finished()" in found.remedy
    assert found.confidence == "high"


def test_the_wait_for_the_last_checkpoint_is_needed(tmp_path):
    steps, rows = waited(300, until=N - 50)
    end_ps = int(steps["start_ps"][-1] + steps["dur_ps"][-1])
    rows["checkpoint_waits"] = [{"step": N - 1, "framework": "orbax", "start_ps": end_ps, "dur_ps": 5000 * MS}]
    assert find(view_of(tmp_path, (steps, rows))) == []


def test_the_save_at_the_end_is_needed(tmp_path):
    steps, rows = saved(400)
    before = find(view_of(tmp_path / "before", (steps, rows)))[0].claim.total_ps
    end_ps = int(steps["start_ps"][-1] + steps["dur_ps"][-1])
    last = rows["checkpoints"][-1] | {"step": N - 1, "path": "ckpt/last", "start_ps": end_ps, "dur_ps": 5000 * MS}
    rows["checkpoints"] = [*rows["checkpoints"], last]
    assert find(view_of(tmp_path / "after", (steps, rows)))[0].claim.total_ps == before


def test_rare_short_saves_are_no_finding(tmp_path):
    assert find(view_of(tmp_path, saved(10))) == []


def test_without_checkpoints_it_cannot_judge(tmp_path):
    with pytest.raises(Unavailable, match="no checkpoint was seen"):
        find(view_of(tmp_path, (steps_of(noisy_steps(N)), {})))
