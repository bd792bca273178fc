"""Replays that differ from their original in one known thing: exactly that is said."""

import math

import numpy as np
import pytest
from fidelity_runs import OPS, ORIGINAL, REPLAY, STEPS, record, written
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.core.errors import NoDataError
from phasepoint.replay.fidelity.fidelity import DIFFERS, FAITHFUL, NOT_COMPARABLE, UNCLEAR, compare_replay
from phasepoint.replay.fidelity.times import median_interval, stretch_noise
from phasepoint.store import open_run
from phasepoint.summary.analysis import analyse_run


@pytest.fixture
def compared(tmp_path):
    """Compare a replay that is changed in some things with an original that is changed in others."""

    def compare(changes=None, *, original=None, asked=None):
        base = analyse_run(written(tmp_path / "original", ORIGINAL, **(original or {})))
        return compare_replay(base, written(tmp_path / "replay", REPLAY, **(changes or {})), record(**(asked or {})))

    return compare


def codes(found):
    return [one.code for one in found.differences]


def test_the_same_job_again_is_faithful(compared):
    found = compared()
    assert (found.verdict, found.differences, found.unknown) == (FAITHFUL, (), ())
    assert found.ops.cosine == pytest.approx(1)
    assert found.ops.same_steps
    assert (found.ops.original_steps, found.ops.replay_steps) == (5, 5)
    assert found.ops.factor == 1
    assert (found.programs.same, found.programs.differs) == (1, False)
    (loss,) = found.scalars
    assert (loss.values, loss.equal, loss.first_step, loss.unmatched) == (15, 15, 10, 0)
    assert (found.first_step, found.last_step) == (10, 24)


def test_times_are_compared_number_by_number_without_captured_steps(compared):
    found = compared().times
    assert found.steps == 7  # 13 to 19; those before warm up, 20 to 24 were captured
    assert found.paired
    assert not found.captured
    assert found.ratio == pytest.approx(1, abs=0.02)
    assert found.low <= found.ratio <= found.high


def test_the_cosine_is_that_of_the_op_times(compared):
    found = compared({"ops": {"dot.1": 600, "fusion.2": 100, "new.9": 800}, "opcodes": ("dot", "fusion", "add")})
    base, run = np.array([600, 300, 100, 0]), np.array([600, 100, 0, 800])
    expected = base @ run / math.sqrt(base @ base) / math.sqrt(run @ run)
    assert found.ops.cosine == pytest.approx(expected, abs=1e-12)
    assert (found.ops.only_original, found.ops.only_replay) == (("jit_step: copy.3",), ("jit_step: new.9",))
    assert codes(found) == ["ops"]
    assert f"cosine {expected:.3f}" in found.differences[0].text


def test_ops_that_scatter_in_the_original_itself_are_not_known_to_differ(compared):
    windows = tuple(range(20, 110, 10))
    uneven = {"uneven": 2.0, "windows": windows}
    found = compared({"ops": {"dot.1": 200, "fusion.2": 300, "copy.3": 100}}, original=uneven)
    assert found.ops.cosine < 0.98
    assert found.ops.own_cosine < found.ops.cosine
    assert (found.verdict, [one.startswith("ops: cosine 0.") for one in found.unknown]) == (FAITHFUL, [True])


def test_ops_that_do_not_scatter_are_known_to_differ(compared):
    found = compared({"ops": {"dot.1": 200, "fusion.2": 300, "copy.3": 100}}, original={"windows": (20, 40, 60, 80)})
    assert found.ops.own_cosine == pytest.approx(1)
    assert codes(found) == ["ops"]


def test_one_step_is_held_against_what_single_steps_differ_by(compared):
    asked = {"target_first": 24, "target_last": 24}
    found = compared({"ops": {"dot.1": 200, "fusion.2": 300, "copy.3": 100}}, original={"windows": (24,)}, asked=asked)
    assert found.ops.original_steps == found.ops.replay_steps == 1
    assert found.ops.own_cosine == pytest.approx(1)  # five steps, one by one
    assert codes(found) == ["ops"]


def test_one_step_without_others_is_not_known_to_differ(compared):
    asked = {"target_first": 24, "target_last": 24}
    original = {"windows": (22,), "last": 24}
    found = compared({"ops": {"dot.1": 200, "fusion.2": 300, "copy.3": 100}}, original=original, asked=asked)
    assert found.ops.own_cosine is None
    assert (found.verdict, found.unknown[0]) == (
        UNCLEAR,
        "ops: cosine 0.867, but of 1 steps it cannot be told from chance",
    )


def test_steps_that_the_original_did_not_capture_are_held_against_the_phase(compared):
    found = compared(original={"windows": (60,)})
    assert not found.ops.same_steps
    assert (found.ops.original_steps, found.ops.cosine) == (5, pytest.approx(1))
    assert found.verdict == FAITHFUL


def test_other_steps_with_other_ops_are_not_known_to_differ(compared):
    found = compared({"ops": {"mul.8": 500}, "opcodes": ("multiply",)}, original={"windows": (60,)})
    assert (found.ops.cosine, found.ops.same_steps) == (0, False)
    assert "ops" not in codes(found)
    assert any(one.startswith("ops: cosine 0.000, but of 5 steps") for one in found.unknown)


def test_other_data(compared):
    found = compared({"loss": {s: 2 / (s + 1) for s in range(STEPS)}})
    assert codes(found) == ["data"]
    assert (
        found.differences[0].text == "loss differs by 50.0 % in the first common step, 10: other data or another state"
    )


def test_a_loss_that_comes_apart_later(compared):
    found = compared({"loss": {s: 1 / (s + 1) * (1 if s < 13 else 1.5) for s in range(STEPS)}})
    assert codes(found) == ["drift"]
    assert "same in step 10 and comes apart from step 13 on" in found.differences[0].text
    assert found.scalars[0].largest_ratio == pytest.approx(1 / 3)


def test_rounding_is_no_difference(compared):
    found = compared({"loss": {s: 1 / (s + 1) * (1 + 1e-7) for s in range(STEPS)}})
    assert found.verdict == FAITHFUL
    assert (found.scalars[0].equal, found.scalars[0].values) == (0, 15)
    assert found.scalars[0].largest_ratio == pytest.approx(1e-7, rel=1e-3)


def test_values_that_are_no_numbers_are_equal_to_each_other_alone(compared):
    nan = dict.fromkeys(range(STEPS), math.nan)
    assert compared({"loss": nan}, original={"loss": nan}).scalars[0].equal == 15


def test_no_number_where_there_was_one(compared):
    found = compared({"loss": dict.fromkeys(range(STEPS), math.nan)})
    assert codes(found) == ["data"]
    assert found.scalars[0].first_ratio is None


def test_another_program(compared):
    found = compared({"fingerprint": "b" * 32})
    assert codes(found) == ["program"]
    assert "only the replay runs jit_step; only the original runs jit_step" in found.differences[0].text


def test_other_shapes(compared):
    found = compared({"fingerprint": "b" * 32, "shape": "f32[4,16]"})
    assert codes(found) == ["program", "shapes"]
    assert found.programs.other_shapes == ("jit_step",)


def test_ops_that_the_compiler_named_otherwise_are_matched_by_their_place(compared):
    found = compared({"ops": {"dot.7": 600, "fusion.1": 300, "copy.2": 100}})
    assert (found.ops.cosine, found.ops.renamed) == (pytest.approx(1), 3)
    assert found.verdict == FAITHFUL


def test_names_that_are_exchanged_are_matched_all_at_once(compared):
    found = compared({"ops": {"fusion.2": 600, "dot.1": 300, "other.3": 100}})
    assert (found.ops.cosine, found.ops.renamed) == (pytest.approx(1), 3)


def test_another_device_and_version(compared):
    found = compared({"devices": ("gpu:0 H200",), "frameworks": {"jax": "0.10.3"}})
    assert codes(found) == ["device", "versions"]
    assert [one.text for one in found.differences] == [
        "other devices: gpu:0 H200, not cpu:0 cpu",
        "other versions: jax 0.10.2 → 0.10.3",
    ]


def test_a_slower_machine(compared):
    found = compared({"step_us": 2400, "ops": {op: round(1.2 * time) for op, time in OPS.items()}})
    assert codes(found) == ["machine"]
    assert found.ops.factor == pytest.approx(1.2)
    assert found.ops.alike_ratio == 1
    assert found.times.ratio == pytest.approx(1.2, abs=0.02)


def test_a_slower_step_whose_ops_are_not_slower(compared):
    found = compared({"step_us": 2400})
    assert codes(found) == ["step-time"]


def test_a_phase_too_short_to_show_its_noise_is_judged_by_the_interval(compared):
    found = compared(
        {"step_us": 4000, "first": 0},
        original={"last": 24, "windows": (20,)},
        asked={"checkpoint": None, "first_step": 0},
    )
    assert found.times.noise_ratio is None
    assert codes(found) == ["step-time"]


def test_a_ratio_within_the_originals_own_noise_is_not_known(compared):
    found = compared({"step_us": 2200, "jitter": 0.001}, original={"jitter": 0.6})
    assert found.verdict == FAITHFUL
    assert [one.startswith("step times: 1.") for one in found.unknown] == [True]


def test_too_few_steps_are_held_against_all_of_the_phase(compared):
    whole = compared({"first": 18, "last": 22, "windows": (), "ops": None, "step_us": 3000})
    found = whole.times
    assert whole.verdict == DIFFERS  # half as long again, where stretches of two differ by hundredths
    assert (found.steps, found.paired, found.apart) == (2, False, False)  # 18 and 19; the original captured 20 to 22
    assert found.ratio == pytest.approx(1.5, abs=0.03)


def test_steps_that_one_side_captured_tell_nothing_of_time(compared):
    found = compared({"step_us": 3000, "first": 20}, original={"windows": ()}, asked={"first_step": 8})
    assert (found.times.apart, found.times.captured, found.times.steps) == (True, True, 5)
    assert found.times.ratio == pytest.approx(1.5, abs=0.03)
    assert "step-time" not in codes(found)
    assert "but these steps were captured on one side alone" in "".join(found.unknown)


def test_steps_that_one_side_compiled_are_left_out(compared):
    assert compared({"compiled": (15,)}).times.steps == 6


def test_a_replay_from_the_start_has_no_steps_that_warm_up(compared):
    found = compared({"first": 0}, asked={"checkpoint": None, "first_step": 0})
    assert found.times.steps == 20


def test_what_is_missing_is_said(compared):
    found = compared({"windows": (), "ops": None, "loss": None}, original={"loss": None})
    assert found.ops.reason == "the replay captured no step of the target"
    assert found.unknown == (
        "ops: the replay captured no step of the target",
        "programs: the replay's target ran no compiled program that the capture names",
        "loss: neither run logged a scalar (run.log(loss=loss))",
    )


def test_a_loss_that_only_the_original_has(compared):
    found = compared({"loss": {}})
    assert "loss: no common step has it on both sides" in found.unknown
    assert found.scalars[0].unmatched == 15


def test_a_replay_that_never_came_to_its_target_is_not_comparable(compared):
    found = compared({"last": 15, "windows": ()}, asked={"status": "ended-early", "reason": "the job ended"})
    assert found.verdict == NOT_COMPARABLE
    assert "the replay did not come to its end (ended-early: the job ended)" in found.notes


def test_programs_without_fingerprints_are_not_compared(compared):
    found = compared({"fingerprint": None}, original={"fingerprint": None})
    assert found.verdict == FAITHFUL
    assert found.programs.reason == "the replay's target ran no compiled program that the capture names"


def test_a_checkpoint_that_the_original_did_not_write(compared):
    found = compared(asked={"checkpoint": "elsewhere/10"})
    assert codes(found) == ["checkpoint"]


def test_a_checkpoint_of_another_step(compared):
    found = compared(asked={"first_step": 12})
    assert found.differences[0].text == "ckpt/10 was written in step 2, and the replay began with step 12"


def test_another_run_is_refused(compared):
    with pytest.raises(NoDataError, match="has no step 500–504, which the replay was made for"):
        compared(asked={"target_first": 500, "target_last": 504, "last_step": 504})


def test_comparing_repeats(tmp_path):
    base, replay = (written(tmp_path / name, job) for name, job in (("original", ORIGINAL), ("replay", REPLAY)))
    first = compare_replay(analyse_run(base), replay, record())
    assert compare_replay(analyse_run(open_run(base.path)), open_run(replay.path), record()) == first


@given(st.lists(st.integers(1, 10**9), min_size=6, max_size=40))
def test_the_interval_of_a_median_is_that_of_its_ranks(values):
    ordered, n = sorted(values), len(values)
    chance = [math.comb(n, k) / 2**n for k in range(n + 1)]
    rank = max(k for k in range(n // 2) if sum(chance[: k + 1]) <= 0.025)
    low, high = median_interval(np.array(values, np.float64))
    assert (low, high) == (ordered[rank], ordered[n - 1 - rank])


def test_too_few_values_have_no_interval():
    assert median_interval(np.arange(5.0)) is None


def test_noise_of_stretches_against_a_slow_count():
    dur_ps = np.random.default_rng(3).integers(900, 1100, 200)
    middle = np.median(dur_ps)
    found = [abs(np.median(dur_ps[i : i + 7]) / middle - 1) for i in range(194)]
    assert stretch_noise(dur_ps, 7) == pytest.approx(np.quantile(found, 0.95))
    assert stretch_noise(dur_ps[:20], 7) is None


def test_every_difference_makes_the_verdict(compared):
    assert compared({"devices": ("gpu:0 H200",)}).verdict == DIFFERS
