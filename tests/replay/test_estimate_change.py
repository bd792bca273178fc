"""`estimate_change` over made runs of known times: exact values, closure, what is kept, costs, bad input."""

import dataclasses
import math

import numpy as np
import pytest
from change_runs import EVAL, MS, N_STEPS, usual_job, write_run

from phasepoint.core.errors import NoDataError, ReplayError, UsageError
from phasepoint.replay.change.estimate import estimate_change
from phasepoint.store import open_run
from phasepoint.summary.analysis import analyse_run

TRAIN_STEPS = N_STEPS - len(EVAL) - 1
"""Training steps: all but the evaluation and the first, which compiles."""
COMPILE_PS = 900 * MS


def compiling_job(**options):
    dur = usual_job(**options)
    dur[0] += COMPILE_PS
    return dur


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A job of 500 steps at 20 ms, 40 of them evaluation at 5 ms, one that compiles for 0.9 s, one saved for 50 ms."""
    path = tmp_path_factory.mktemp("job") / "run"
    dur = compiling_job()
    dur[99] += 50 * MS
    options = {"windows": [(150, 154), (320, 324)], "compile_ps": {0: COMPILE_PS}, "saved_ps": {99: 50 * MS}}
    shares = {"compute": 0.75, "host": 0.25}
    scalars = [(step, "loss", 4 - step / 100) for step in range(N_STEPS)]
    run = write_run(path, dur, **options, shares=shares, ops={"dot": 0.5}, scalars=scalars, outside_ps=1000 * MS)
    return analyse_run(run)


def replay(folder, ms, *, first=100, n=60, lead_ms=0, name="replay", **options):
    dur = np.full(n, round(ms * MS))
    dur[:3] += lead_ms * MS
    usual = {"windows": [(first + n - 5, first + n - 1)], "record": {"target_first": first + n - 5}}
    return write_run(folder / name, dur, first_step=first, **(usual | options))


def phase_time(analysis, name):
    number = next(n for n, found in analysis.names.items() if found == name)
    return int(analysis.clock.dur_ps[analysis.labels == number].sum())


def test_the_phases_of_the_made_job_are_as_planned(job):
    assert sorted(job.names.values()) == ["compile", "eval", "train"]
    assert phase_time(job, "train") == TRAIN_STEPS * 20 * MS + 50 * MS


def test_the_replayed_phase_is_scaled_and_the_rest_kept_exactly(job, tmp_path):
    found = estimate_change(job, [replay(tmp_path, 15, lead_ms=400)])
    (one,) = found.exchanges
    assert (one.phases, one.steps, one.ratio, one.low, one.high) == (("train",), TRAIN_STEPS, 0.75, 0.75, 0.75)
    assert (one.step_before_ps, one.step_after_ps) == (20 * MS, 15 * MS)
    assert (one.before_ps, one.after.value_ps) == (TRAIN_STEPS * 20 * MS, TRAIN_STEPS * 15 * MS)
    before_ps = N_STEPS * 20 * MS - len(EVAL) * 15 * MS + COMPILE_PS + 1050 * MS
    assert found.before_ps == before_ps
    assert found.after.value_ps == before_ps - TRAIN_STEPS * 5 * MS
    assert (found.after.low_ps, found.after.high_ps) == (found.after.value_ps,) * 2
    assert found.saved.value_ps == TRAIN_STEPS * 5 * MS
    assert found.ratio == found.after.value_ps / before_ps
    assert found.steps_before_ps == before_ps - 1000 * MS
    assert found.steps_after.value_ps == found.after.value_ps - 1000 * MS
    kept = {row.name: row.time_ps for row in found.kept}
    # The phase of the first step keeps what it did beside compiling.
    assert kept == {
        **{"compiling": COMPILE_PS, "checkpoints": 50 * MS, "outside steps": 1000 * MS},
        **{"eval": len(EVAL) * 5 * MS, "compile": 20 * MS},
    }
    assert sum(kept.values()) + one.before_ps == before_ps


def test_captured_first_and_saving_steps_are_not_compared(job, tmp_path):
    """Replay of steps 85–199: 85–94 are its first, 99 saved, 149–155 stand beside a window, 194–199 beside its own."""
    made = replay(tmp_path, 15, first=85, n=115)
    (one,) = estimate_change(job, [made]).exchanges
    assert one.compared_steps == 115 - 10 - 1 - 7 - 6
    assert (one.first_step, one.last_step) == (95, 193)
    (based,) = estimate_change(job, [made], baselines=[replay(tmp_path, 20, first=85, n=115, name="base")]).exchanges
    assert based.compared_steps == 115 - 10 - 6  # the original's windows and checkpoint do not matter then


def test_steps_that_compile_at_the_start_of_a_replay_are_not_compared(job, tmp_path):
    slow = dict.fromkeys(range(100, 110), 5 * MS)
    dur = np.full(60, 15 * MS)
    dur[:10] += 5 * MS
    made = write_run(tmp_path / "r", dur, first_step=100, compile_ps=slow, record={})
    (one,) = estimate_change(job, [made]).exchanges
    assert (one.first_step, one.ratio) == (110, 0.75)
    assert not any("compiled" in note for note in one.notes)


def test_compiling_later_on_is_told(job, tmp_path):
    made = replay(tmp_path, 15, compile_ps={130: 2 * MS})
    (one,) = estimate_change(job, [made]).exchanges
    assert one.ratio == 0.75
    assert any("1 of the replay's steps compiled after its first ones (2.00 ms)" in note for note in one.notes)


def test_a_baseline_takes_the_slower_machine_out(job, tmp_path):
    """Today everything takes 10 % longer: the change alone is 0.75."""
    base = replay(tmp_path, 22, name="base")
    found = estimate_change(job, [replay(tmp_path, 16.5)], baselines=[base])
    (one,) = found.exchanges
    assert one.ratio == pytest.approx(0.75)
    assert one.machine_ratio == pytest.approx(1.1)
    assert (one.machine_low, one.machine_high) == (one.machine_ratio,) * 2
    assert found.after.value_ps == pytest.approx(found.before_ps - TRAIN_STEPS * 5 * MS, abs=2)
    assert not any("--baseline" in note for note in one.notes)
    alone = estimate_change(job, [replay(tmp_path, 16.5, name="again")]).exchanges[0]
    assert alone.ratio == pytest.approx(0.825)
    assert any("--baseline" in note for note in alone.notes)


def test_twice_the_batch_takes_half_the_steps(job, tmp_path):
    found = estimate_change(job, [replay(tmp_path, 36)], steps_ratio=0.5)
    (one,) = found.exchanges
    assert (one.step_after_ps, one.after.value_ps) == (36 * MS, TRAIN_STEPS * 18 * MS)
    assert any("0.5 times as many steps" in note for note in found.notes)


def test_repeats_are_averaged(job, tmp_path):
    (one,) = estimate_change(job, [replay(tmp_path, ms, name=str(ms)) for ms in (14, 16)]).exchanges
    assert one.ratio == 0.75
    assert [path[-2:] for path in one.changes] == ["14", "16"]


def test_the_phase_is_that_of_most_steps_where_the_record_is_missing(job, tmp_path):
    made = write_run(tmp_path / "r", np.full(20, 4 * MS), first_step=310)
    (one,) = estimate_change(job, [made]).exchanges
    assert (one.phases, one.ratio) == (("eval",), 0.8)
    assert any("not made by `replay run`" in note for note in one.notes)


def test_several_phases_are_exchanged_together(job, tmp_path):
    train = replay(tmp_path, 15)
    other = write_run(tmp_path / "e", np.full(20, 4 * MS), first_step=310, record={"phase": "eval"})
    found = estimate_change(job, [train, other])
    assert found.saved.value_ps == TRAIN_STEPS * 5 * MS + len(EVAL) * MS
    assert {name for one in found.exchanges for name in one.phases} == {"train", "eval"}
    with pytest.raises(UsageError, match="--like needs one exchanged phase"):
        estimate_change(job, [train, other], like=["eval"])


def test_half_widths_of_independent_exchanges_add_as_squares(job, tmp_path):
    rng = np.random.default_rng(0)
    train = write_run(tmp_path / "t", MS * rng.integers(14, 17, 60), first_step=100, record={})
    other = write_run(tmp_path / "e", MS * rng.integers(3, 6, 20), first_step=310, record={"phase": "eval"})
    found = estimate_change(job, [train, other])
    high = math.hypot(*(one.after.high_ps - one.after.value_ps for one in found.exchanges))
    assert found.after.high_ps - found.after.value_ps == pytest.approx(high, abs=2)
    assert found.after.low_ps < found.after.value_ps < found.after.high_ps
    assert found.saved.low_ps == found.before_ps - found.after.high_ps


def test_phases_that_are_alike_can_be_joined(job, tmp_path):
    found = estimate_change(job, [replay(tmp_path, 15)], like=["eval"])
    (one,) = found.exchanges
    assert one.phases == ("train", "eval")
    assert one.before_ps == TRAIN_STEPS * 20 * MS + len(EVAL) * 5 * MS
    assert one.after.value_ps == round(one.before_ps * 0.75)
    with pytest.raises(
        UsageError, match=r"no phase 'train-7'; its phases .* are compile \(0\), train \(1\), eval \(2\)"
    ):
        estimate_change(job, [replay(tmp_path, 15, name="x")], like=["train-7"])


def test_alike_phases_that_are_kept_are_told(job, tmp_path):
    names = {0: "compile", 1: "train-1", 2: "train-2"}
    phases = [
        dataclasses.replace(phase, name=names[phase.id], kind=names[phase.id].partition("-")[0])
        for phase in job.result.phases
    ]
    named = dataclasses.replace(job, names=names, result=dataclasses.replace(job.result, phases=tuple(phases)))
    found = estimate_change(named, [replay(tmp_path, 15, record={"phase": "train-1"})])
    assert any(note.startswith("train-2 (") and "--like train-2 joins" in note for note in found.notes)


def test_categories_and_ops_are_those_of_both_windows(job, tmp_path):
    made = replay(tmp_path, 15, shares={"compute": 2 / 3, "idle": 1 / 3}, ops={"dot": 0.3, "cast": 0.1})
    (one,) = estimate_change(job, [made], steps_ratio=0.5).exchanges
    parts = {part.category: (part.before_ps, part.after_ps) for part in one.categories}
    assert set(parts) == {"compute", "host", "idle"}
    before_ps, after_ps = one.before_ps, one.after.value_ps
    assert parts["compute"] == pytest.approx((0.75 * before_ps, 2 / 3 * after_ps), rel=1e-6)
    assert parts["host"] == (pytest.approx(0.25 * before_ps, rel=1e-6), 0)
    assert [sum(side) for side in zip(*parts.values(), strict=True)] == [before_ps, after_ps]
    ops = {op.op: (op.before_ps, op.after_ps) for op in one.ops}
    assert ops["dot"] == pytest.approx((0.5 * (before_ps + 50 * MS), 0.3 * after_ps), rel=1e-6)  # with the save
    assert ops["cast"] == (None, pytest.approx(0.1 * after_ps, rel=1e-3))


def test_a_loss_that_differs_is_told_without_a_verdict(job, tmp_path):
    logged = [(step, "loss", 4 - step / 100 + (0.5 if step == 120 else 0.1)) for step in range(100, 160)]
    (one,) = estimate_change(job, [replay(tmp_path, 15, scalars=[*logged, (120, "other", 1.0)])]).exchanges
    (loss,) = one.scalars
    assert (loss.name, loss.steps, loss.first_step, loss.last_step) == ("loss", 60, 100, 159)
    assert loss.before == pytest.approx(4 - 129.5 / 100)
    assert loss.after - loss.before == pytest.approx(0.1 + 0.4 / 60)
    assert (loss.largest_step, loss.largest_difference) == (120, pytest.approx(0.5))


def test_hours_and_money_of_accelerators(tmp_path):
    devices = ("gpu:0 NVIDIA H200", "gpu:1 NVIDIA H200")
    run = write_run(tmp_path / "job", usual_job(), devices=devices, hosts=2, outside_ps=100 * MS)
    made = replay(tmp_path, 15, devices=devices, hosts=2)
    found = estimate_change(analyse_run(run), [made], price_per_hour=3.9)
    assert found.before_ps == 9500 * MS
    assert (found.cost.unit, found.cost.devices) == ("accelerator-hours", 4)
    assert found.cost.before == pytest.approx(4 * 9.5 / 3600)
    assert found.cost.after == pytest.approx(4 * (9.5 - 460 * 0.005) / 3600)
    assert found.cost.money_saved == pytest.approx(3.9 * 4 * 2.3 / 3600)
    assert (found.cost.money_after_low, found.cost.money_after_high) == pytest.approx((found.cost.money_after,) * 2)


def test_hours_of_a_run_on_cpus_are_those_of_its_hosts(job, tmp_path):
    found = estimate_change(job, [])
    assert (found.cost.unit, found.cost.devices) == ("host-hours", 1)
    assert found.cost.before == found.cost.after == pytest.approx(found.before_ps / 3.6e15)
    assert (found.exchanges, found.saved.value_ps, found.ratio) == ((), 0, 1.0)
    few = found.from_windows
    assert (few.steps_total, few.steps_used <= 25) == (N_STEPS, True)
    assert few.estimate.value_ps == pytest.approx(found.steps_before_ps, rel=0.02)
    counted = estimate_change(job, [], devices=8)
    assert (counted.cost.unit, counted.cost.before) == ("device-hours", pytest.approx(8 * found.cost.before))
    many = write_run(tmp_path / "many", usual_job(), devices=tuple(f"cpu:{i} cpu" for i in range(8)), hosts=2)
    assert estimate_change(analyse_run(many), []).cost.devices == 2


def test_a_run_that_names_no_device_has_no_cost(tmp_path):
    run = analyse_run(write_run(tmp_path / "job", usual_job(), devices=()))
    assert estimate_change(run, []).cost is None
    with pytest.raises(UsageError, match="give their number with --devices"):
        estimate_change(run, [], price_per_hour=1.0)


def test_of_a_run_captured_throughout_captured_steps_are_compared(tmp_path):
    windows = [(step, step + 4) for step in range(0, N_STEPS, 5)]
    run = analyse_run(write_run(tmp_path / "job", usual_job(), windows=windows))
    (one,) = estimate_change(run, [replay(tmp_path, 15)]).exchanges
    assert (one.ratio, one.compared_steps) == (0.75, 60 - 10 - 6)
    assert any("most of the original's steps were captured" in note for note in one.notes)


def test_few_steps_are_said_and_one_has_no_interval(job, tmp_path):
    few = estimate_change(job, [replay(tmp_path, 15, n=26, name="few")]).exchanges[0]
    assert (few.compared_steps, few.low) == (10, 0.75)
    assert any("only 10 steps could be compared" in note for note in few.notes)
    found = estimate_change(job, [replay(tmp_path, 15, n=17, name="one")])
    assert found.exchanges[0].compared_steps == 1
    assert (found.after.low_ps, found.saved.high_ps, found.cost.after_low) == (None, None, None)
    assert any("1 step compared" in note for note in found.exchanges[0].notes)


def test_bad_input_is_refused(job, tmp_path):
    far = write_run(tmp_path / "far", np.full(9, MS), first_step=9000)
    with pytest.raises(NoDataError, match=r"it has steps 9000–9008, .* has 0–499: none in common, so it is no replay"):
        estimate_change(job, [far])
    with pytest.raises(NoDataError, match="no step of phase train can be compared"):
        estimate_change(job, [replay(tmp_path, 15, n=15)])
    with pytest.raises(
        ReplayError,
        match=r"this replay was ignored by its program: run.resume was not read; an estimate needs one that was",
    ):
        estimate_change(
            job, [replay(tmp_path, 15, name="i", record={"status": "ignored", "reason": "run.resume was not read"})]
        )
    other = write_run(tmp_path / "e", np.full(20, 4 * MS), first_step=310, record={"phase": "eval"})
    with pytest.raises(UsageError, match=r"a baseline of phase eval, of which there is no change \(changed: train\)"):
        estimate_change(job, [replay(tmp_path, 15, name="c")], baselines=[other])
    for price in (-1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="expected 0 or more, the price of one device for an hour"):
            estimate_change(job, [], price_per_hour=price)
    with pytest.raises(UsageError, match="0 devices: expected 1 or more"):
        estimate_change(job, [], devices=0)
    with pytest.raises(UsageError, match="ratio of steps 0: expected more than 0"):
        estimate_change(job, [], steps_ratio=0)
    empty = analyse_run(write_run(tmp_path / "empty", []))
    with pytest.raises(NoDataError, match="holds no steps to estimate from"):
        estimate_change(empty, [])
    with pytest.raises(NoDataError, match="holds no steps; expected a replay"):
        estimate_change(job, [open_run(tmp_path / "empty")])
