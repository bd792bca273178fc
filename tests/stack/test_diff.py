"""The comparison of two runs: exact where nothing disturbs, right in most trials where much does."""

from dataclasses import replace
from fractions import Fraction
from statistics import median

import numpy as np
import pytest
from diff_runs import US, Job, Machine, recorded, written
from hypothesis import given, settings
from hypothesis import strategies as st

from phasepoint.core.errors import NoDataError
from phasepoint.stack.diff.diff import compare_runs, compare_samples
from phasepoint.stack.diff.result import (
    CHANGED,
    EVERYTHING,
    NOT_JUDGED,
    ONLY_BASE,
    ONLY_RUN,
    OUTSIDE,
    UNATTRIBUTED,
    WITHIN_NOISE,
)

STILL = Machine(speed=0, place=0, drift=0, step=0, preempted=0)
PLANTED = "Net/Block_3"


def compare(base, run):
    return compare_samples(base, run)


def names(diff):
    return [row.name for row in diff.named]


# --- on a machine that nothing disturbs: every number known ---


def test_the_planted_layer_is_named_with_its_exact_time():
    base, run = recorded(0, machine=STILL), recorded(1, Job(slower={PLANTED: 1.05}), machine=STILL)
    diff = compare([base], [run])
    layer = next(row for row in diff.level("layer") if row.name == PLANTED)
    assert (layer.base_ps, layer.run_ps) == (620 * US, 651 * US)
    assert layer.own_ps == 31 * US
    assert layer.own_ratio == pytest.approx(0.05)
    assert names(diff) == [PLANTED]
    assert diff.step.change_ps == 31 * US
    assert [row.change_ps for row in diff.level("part")] == [0, 31 * US, 0]


def test_a_change_of_everything_is_told_from_a_change_of_one_layer():
    slow = Job(slower={f"Net/Block_{i}": 1.2 * (1.1 if i == 3 else 1.0) for i in range(8)} | {"Net/Head": 1.2})
    diff = compare([recorded(0, machine=STILL)], [recorded(1, slow, machine=STILL)])
    everything = next(row for row in diff.level("part") if row.name == EVERYTHING)
    assert everything.change_ratio == pytest.approx(0.2)
    assert everything.verdict == CHANGED
    assert names(diff) == [PLANTED]
    planted = next(row for row in diff.named)
    assert planted.change_ratio == pytest.approx(0.1)


def test_ops_of_one_side_are_told_as_such():
    job = Job(blocks=9)
    diff = compare([recorded(0, machine=STILL)], [recorded(1, job, machine=STILL)])
    new = [row for row in diff.level("op") if row.verdict == ONLY_RUN]
    assert {(row.layer, row.base_ps) for row in new} == {("Net/Block_8", 0)}
    back = compare([recorded(1, job, machine=STILL)], [recorded(0, machine=STILL)])
    gone = [row for row in back.level("layer") if row.verdict == ONLY_BASE]
    assert [(row.name, row.run_ps) for row in gone] == [("Net/Block_8", 0)]


# --- against a slow oracle of its own ---


def oracle_location(values):
    """Mean of the ranks from a tenth to a half of the steps in which the op ran, times their share."""
    present = sorted(int(v) for v in values if v > 0)
    if not present:
        return Fraction(0)
    first = len(present) // 10
    last = max(-(-len(present) // 2), first + 1)
    return Fraction(sum(present[first:last]), last - first) * len(present) / len(values)


def test_times_and_own_changes_agree_with_the_oracle():
    base, run = recorded(5), recorded(6, Job(slower={PLANTED: 1.3}))
    diff = compare([base], [run])
    times = {}
    for side, samples in enumerate((base, run)):
        for key, values in zip(samples.keys, samples.self_ps, strict=True):
            times.setdefault(key, [Fraction(0), Fraction(0)])[side] = oracle_location(values)
    kinds = {}
    for key, (before, after) in times.items():
        kinds.setdefault((key.direction, key.name, key.shape), []).append(float(after / before))
    found = {(row.layer, row.direction, row.name): row for row in diff.level("op")}
    for key, (before, after) in times.items():
        row = found[key.layer, key.direction, key.name]
        assert (row.base_ps, row.run_ps) == (round(before), round(after))
        like = kinds[key.direction, key.name, key.shape]
        if len(like) >= 3:
            logs = [np.log(ratio) for ratio in like]
            assert np.log(1 + row.own_ratio) == pytest.approx(
                float(np.log(float(after / before))) - median(logs), abs=1e-9
            )


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    factors=st.lists(st.floats(0.5, 2.0), min_size=8, max_size=8),
    windows=st.integers(1, 12),
)
def test_every_level_adds_up_to_the_steps_change(seed, factors, windows):
    job = Job(slower={f"Net/Block_{i}": factor for i, factor in enumerate(factors)})
    diff = compare([recorded(seed, windows=windows)], [recorded(seed + 1, job, windows=windows)])
    change_ps = diff.step.change_ps
    assert sum(row.change_ps for row in diff.level("part")) == change_ps
    ops = diff.level("op")
    assert sum(row.change_ps for row in ops) == change_ps
    assert sum(row.base_ps for row in ops) == diff.step.base_ps
    by_layer = {row.name: row for row in diff.level("layer")}
    assert sum(row.run_ps for row in ops if row.name != UNATTRIBUTED) == by_layer["Net"].run_ps


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_ops_does_not_matter(seed):
    base, run = recorded(seed), recorded(seed + 1, Job(slower={PLANTED: 1.1}))
    order = np.random.default_rng(seed).permutation(len(run.keys))
    shuffled = replace(
        run,
        keys=tuple(run.keys[i] for i in order),
        self_ps=run.self_ps[order],
        executions=run.executions[order],
    )
    assert compare([base], [run]) == compare([base], [shuffled])


# --- trials on a machine that disturbs ---

N = 40


def test_two_recordings_of_one_job_are_no_change():
    diffs = [compare([recorded(2 * i)], [recorded(2 * i + 1)]) for i in range(N)]
    assert sum(diff.verdict == WITHIN_NOISE for diff in diffs) >= 0.95 * N
    assert sum((diff.grown_ratio or 0) > 0.03 for diff in diffs) <= 0.05 * N


def test_a_layer_that_is_five_percent_slower_is_found_and_named():
    slow = Job(slower={PLANTED: 1.05})
    diffs = [compare([recorded(2 * i)], [recorded(2 * i + 1, slow)]) for i in range(N)]
    assert sum(names(diff) == [PLANTED] for diff in diffs) >= 0.95 * N
    inside = [diff.named[0].low_ratio <= 0.05 <= diff.named[0].high_ratio for diff in diffs if diff.named]
    assert sum(inside) >= 0.95 * len(inside)


def test_a_layer_that_makes_the_step_five_percent_slower_fails_the_gate():
    slow = Job(slower={PLANTED: 1 + 0.05 * (8 * 620 + 90 + 300) / 620})
    diffs = [compare([recorded(2 * i)], [recorded(2 * i + 1, slow)]) for i in range(N)]
    assert sum(names(diff) == [PLANTED] and diff.grown_ratio > 0.03 for diff in diffs) >= 0.95 * N


def test_a_slower_host_is_named_where_ops_are_the_same():
    slow = Job(host_us=800)
    diff = compare([recorded(0, machine=STILL)], [recorded(1, slow, machine=STILL)])
    assert names(diff) == [OUTSIDE]
    assert [row.change_ps for row in diff.level("part")] == [0, 500 * US, 0]
    assert diff.grown_ratio == pytest.approx(500 / diff.step.base_ps * US)


def test_a_faster_machine_hides_no_slower_layer():
    slow = Job(slower={PLANTED: 1.05})
    diffs = [compare([recorded(2 * i)], [recorded(2 * i + 1, slow, faster=1.3)]) for i in range(10)]
    assert all(diff.step.change_ps < 0 for diff in diffs)
    assert all(PLANTED in names(diff) for diff in diffs)


def test_repeats_show_a_change_of_everything_that_one_recording_cannot():
    steady = Machine(speed=0.01)
    base = [recorded(i, machine=steady) for i in range(4)]
    run = [recorded(10 + i, machine=steady, faster=1 / 1.12) for i in range(4)]
    assert compare(base[:1], run[:1]).verdict == WITHIN_NOISE
    many = compare(base, run)
    assert many.step.verdict == CHANGED
    assert many.grown_ratio == pytest.approx(0.12, abs=0.03)
    assert names(many) == []


# --- runs as they are read ---


def test_ops_that_the_compiler_numbers_anew_are_the_same_ops(tmp_path):
    samples = recorded(3, windows=8)
    base = written(tmp_path / "base", samples)
    run = written(tmp_path / "run", samples, numbered=700)
    diff = compare_runs([base], [run])
    assert diff.verdict == WITHIN_NOISE
    assert {row.change_ps for row in diff.rows} == {0}
    assert {row.direction for row in diff.level("op") if row.layer} == {"forward", "backward"}


def test_another_framework_and_device_are_noted(tmp_path):
    base = written(tmp_path / "base", recorded(0, windows=8))
    run = written(tmp_path / "run", recorded(1, windows=8), frameworks={"torch": "2.13"}, devices=("gpu:0",))
    notes = compare_runs([base], [run]).notes
    assert "frameworks differ: jax 0.10 in the base, torch 2.13 in the run" in notes
    assert "devices differ: cpu:0 in the base, gpu:0 in the run" in notes


def test_runs_without_a_common_hint_are_refused(tmp_path):
    base = written(tmp_path / "base", recorded(0, windows=2), kind="train")
    run = written(tmp_path / "run", recorded(1, windows=2), kind="eval")
    with pytest.raises(NoDataError, match=r"no kind of step in common .*base: train; .*run: eval"):
        compare_runs([base], [run])


def test_one_step_each_is_not_judged(tmp_path):
    base = written(tmp_path / "base", recorded(0, windows=1, window_steps=1))
    run = written(tmp_path / "run", recorded(1, windows=1, window_steps=1))
    diff = compare_runs([base], [run])
    assert (diff.verdict, diff.grown_ratio) == (NOT_JUDGED, None)
    assert any("noise cannot be told from 1 step of" in note for note in diff.notes)
    assert sum(row.change_ps for row in diff.level("op")) == diff.step.change_ps


def test_a_side_without_recordings_is_a_callers_mistake():
    with pytest.raises(ValueError, match="at least one recording"):
        compare_runs([], [])


def test_steps_of_the_main_program_alone_are_compared(tmp_path):
    base = written(tmp_path / "base", recorded(0, windows=10, machine=STILL), evaluated=2)
    run = written(tmp_path / "run", recorded(1, Job(slower={PLANTED: 1.2}), windows=10, machine=STILL), evaluated=6)
    diff = compare_runs([base], [run])
    assert "the steps run several programs; captured steps of jit_train alone are compared" in diff.notes
    assert names(diff) == [PLANTED]
    assert diff.step.change_ps == 124 * US


def test_steps_of_the_commonest_hint_are_compared(tmp_path):
    base = written(tmp_path / "base", recorded(0, windows=8, machine=STILL), kind="train")
    run = written(tmp_path / "run", recorded(1, windows=8, machine=STILL), kind="train")
    assert compare_runs([base], [run]).kind == "train"


def test_what_a_step_compiled_is_no_part_of_it(tmp_path):
    samples = recorded(0, windows=8, machine=STILL)
    base = written(tmp_path / "base", samples)
    run = written(tmp_path / "run", samples, compile_us=5_000_000)
    diff = compare_runs([base], [run])
    assert [row.change_ps for row in diff.level("step")] == [0, 0]
