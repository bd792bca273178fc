"""Fully captured runs of one step: why the device was idle, to the microsecond, and what rules say of it."""

import numpy as np
import pytest
from full_traces import (
    ONE_STEP_RUNS,
    OneStep,
    device_left_out,
    held_by_others,
    launched_one_by_one,
    nothing_launched_it,
    on_the_processor,
    started_slowly,
    waited_for_data,
    waited_for_results,
)
from planted_runs import MS

from phasepoint.findings.evidence.host_time import read_idle_account
from phasepoint.findings.evidence.window_spans import RECORD_DEVICE
from phasepoint.findings.finding import Unavailable
from phasepoint.findings.judge import judge_analysis
from phasepoint.findings.table import RULES, find_rule
from phasepoint.findings.view import FindingsView
from phasepoint.stack.work.idle_account import WHY
from phasepoint.summary.analysis import analyse_run

US = MS // 1000

JUDGE_ONE_STEP = (
    *("INPUT-STALL", "HOST-DISPATCH", "SYNC-EVERY-STEP", "TINY-KERNELS", "DEVICE-IDLE", "EXPOSED-COMMUNICATION"),
    *("DATA-MOVEMENT", "MEMORY-BOUND", "THIN-PROFILE"),
)
"""Rules that need no second step where nothing has to be estimated, and nothing but events."""


def view_of_run(run):
    return FindingsView(analyse_run(run))


def account_of(run):
    """The view, and what its account says: reason → µs."""
    view = view_of_run(run)
    account = read_idle_account(view)
    told = {why: ps // US for why, ps in zip(WHY, account.idle_ps.sum(axis=0).tolist(), strict=True) if ps}
    return view, account, told


@pytest.mark.parametrize("write", ONE_STEP_RUNS, ids=lambda write: write.__name__)
def test_busy_and_idle_add_up_to_the_step_and_busy_is_that_of_the_breakdown(write, tmp_path):
    view = view_of_run(write(tmp_path))
    account = read_idle_account(view)
    if write in (device_left_out, on_the_processor):
        assert account is None
        return
    assert int(account.busy_ps.sum() + account.idle_ps.sum()) == view.clock.inside_ps
    assert (account.idle_ps >= 0).all()
    work = sum(view.part(name).total_ps for name in ("compute", "communication", "data_movement"))
    assert int(account.busy_ps.sum()) == work


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (launched_one_by_one, {"dispatch": 8_940, "end": 60}),
        (started_slowly, {"start": 400_000, "held": 90_000, "own": 7_994, "dispatch": 6, "end": 2_000}),
        (waited_for_data, {"input": 3_960, "dispatch": 40}),
        (held_by_others, {"queue": 5_979, "dispatch": 21, "between": 49}),
        (nothing_launched_it, {"unknown": 2_900, "end": 100}),
    ],
)
def test_each_stretch_has_the_reason_that_was_planted(write, expected, tmp_path):
    _, _, told = account_of(write(tmp_path))
    assert told == expected


def test_what_follows_a_wait_is_told_apart_and_wins_no_more_than_the_wait_hid(tmp_path):
    _, account, told = account_of(waited_for_results(tmp_path))
    assert told["sync"] == 39 * 100
    assert account.waits.tolist() == [40]
    assert account.overlap_ps.tolist() == [40 * 100 * US]
    assert account.sync_ps.tolist() == [39 * 100 * US]


def test_another_thread_that_works_meanwhile_is_no_silence(tmp_path):
    step = OneStep()
    for i in range(2):
        step.launch(1_000 * i + 900, 1_000 * i + 905, 95, thread=2)
    step.host("backward", 0, 1_990, "python_function", thread=1)
    _, _, told = account_of(step.run(tmp_path, 2_000))
    assert "own" not in told
    assert told["dispatch"] == 2_000 - 190


@pytest.mark.parametrize(
    ("write", "code", "words", "claim_us"),
    [
        (launched_one_by_one, "HOST-DISPATCH", "busy for 10.0 % of the step", 8_940),
        (started_slowly, "DEVICE-IDLE", "400 ms pass before its first kernel", 499_994 + 6),
        (waited_for_results, "SYNC-EVERY-STEP", "every step waits", 3_900),
        (waited_for_data, "INPUT-STALL", "waits 3.96 ms for data", 3_960),
        (held_by_others, "DEVICE-IDLE", "launched begins 5.98 ms later", 5_979 + 21),
        (nothing_launched_it, "DEVICE-IDLE", "2.90 ms is not in the trace", 3_000),
    ],
)
def test_the_first_finding_says_how_little_the_device_worked_and_why(write, code, words, claim_us, tmp_path):
    view = view_of_run(write(tmp_path))
    (finding,) = find_rule(code).find(view)
    assert words in finding.title
    assert finding.claim.total_ps == claim_us * US
    assert finding.low_ps == finding.high_ps == finding.claim.total_ps  # nothing was estimated
    first = judge_analysis(view.analysis).findings[0]
    assert first.code == code
    assert first.high_ps <= view.clock.wall_ps


def test_a_device_that_is_not_in_the_trace_is_told_and_nothing_is_judged_by_the_host(tmp_path):
    view = view_of_run(device_left_out(tmp_path))
    (finding,) = find_rule("THIN-PROFILE").find(view)
    assert "30 calls of cudaLaunchKernel" in finding.title
    for code in ("DEVICE-IDLE", "DATA-MOVEMENT", "MEMORY-BOUND"):
        with pytest.raises(Unavailable, match="none of it is in the trace"):
            find_rule(code).find(view)
    verdict = judge_analysis(view.analysis).verdict
    assert verdict.text == (
        "NOT KNOWN: the job gave work to a device (30 calls of cudaLaunchKernel), and none of it is in the trace. "
        f"Next: {RECORD_DEVICE}."
    )
    assert not verdict.bounds


@pytest.mark.parametrize(
    "write", [one for one in ONE_STEP_RUNS if one is not device_left_out], ids=lambda w: w.__name__
)
@pytest.mark.parametrize("code", JUDGE_ONE_STEP)
def test_one_step_is_enough_where_nothing_is_estimated(write, code, tmp_path):
    if write is on_the_processor and code == "INPUT-STALL":
        pytest.skip("nothing in the trace tells of loading")
    assert isinstance(find_rule(code).find(view_of_run(write(tmp_path))), list)


def test_rules_that_compare_steps_still_say_that_one_is_too_few(tmp_path):
    view = view_of_run(launched_one_by_one(tmp_path))
    few = []
    for rule in RULES:
        try:
            rule.find(view)
        except Unavailable as reason:
            few += [rule.code] if "step was recorded" in str(reason) else []
    assert few == ["STRAGGLER", "SLOW-STEPS", "SLOW-MACHINE", "GPU-THROTTLED", "DRIFT", "MEMORY-GROWTH", "GC-PAUSE"]


def test_accounts_of_several_ranks_are_one(tmp_path):
    from contract_runs import kineto_ranks

    view, account, told = account_of(kineto_ranks(tmp_path))
    assert account.row.tolist() == list(range(8))
    assert np.array_equal(account.busy_ps + account.idle_ps.sum(axis=1), view.clock.dur_ps)
    assert told["own"] + told["dispatch"] + told["end"] == 8_000 - 4 * 600 - 4 * 601
