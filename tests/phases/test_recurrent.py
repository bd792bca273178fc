"""What the default method must see, one blind spot of the linear scan at a time."""

import numpy as np
import pyarrow as pa
import pytest

from phasepoint.phases import detect_phases

STEP_PS = 10**11
FULL = {"dot": (4, 55), "grad": (4, 45)}
PART = {"dot": (4, 55)}
OTHER = {"attention": (6, 70), "dot": (2, 30)}


def noisy(mean, noise=0.05, seed=0, outliers=0.0):
    rng = np.random.default_rng(seed)
    dur = np.asarray(mean, float) * np.exp(noise * rng.standard_normal(len(mean)))
    odd = rng.random(len(mean)) < outliers
    odd[0] = False
    dur[odd] *= np.exp(rng.uniform(np.log(3), np.log(20), odd.sum()))
    return (dur * STEP_PS).astype(np.int64)


def run(dur_ps, **columns):
    return pa.table({"step": np.arange(len(dur_ps)), "dur_ps": dur_ps, **columns})


def ops(kinds, captured):
    """`kinds`: an op set per step."""
    rows = []
    for step in captured:
        for op, (count, share) in kinds[step].items():
            rows.append({"step": int(step), "op": op, "count": count, "self_ps": share * 10**9})
    return pa.Table.from_pylist(rows)


def names(result):
    return [phase.name for phase in result.phases]


def by_segment(result):
    return [(s.first_step, s.last_step, result.phases[s.phase].name) for s in result.segments]


def test_steady_run_with_outliers_is_one_phase():
    dur_ps = noisy(np.ones(2000), 0.05, outliers=0.01)
    result = detect_phases(run(dur_ps))
    assert names(result) == ["train"]
    far = dur_ps > 2.2 * STEP_PS
    assert far.sum() > 10
    assert result.slow[far].all()
    assert not result.slow[dur_ps < 1.5 * STEP_PS].any()


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.1, 0.2])
def test_same_ops_running_slower(noise):
    mean = np.where((np.arange(1000) >= 400) & (np.arange(1000) < 600), 1.4, 1.0)
    result = detect_phases(run(noisy(mean, noise)))
    assert [phase.kind for phase in result.phases] == ["train", "slow"]
    assert result.phases[1].name == "slow 1.4 ×"
    (_, slow, back) = result.segments
    assert abs(slow.first_step - 400) <= 8
    assert abs(back.first_step - 600) <= 8
    assert back.phase == result.segments[0].phase


def test_subset_of_the_ops_on_a_schedule():
    kinds = np.arange(600) % 50 >= 45
    mean = np.where(kinds, 0.4, 1.0)
    sets = [PART if k else FULL for k in kinds]
    result = detect_phases(run(noisy(mean)), ops(sets, range(20, 600, 31)))
    assert np.array_equal(result.labels, kinds.astype(int))
    assert names(result) == ["train", "eval"]
    assert result.phases[1].period == 50
    assert result.phases[1].n_segments == 12


def test_subset_of_the_ops_at_equal_time_when_all_steps_are_captured():
    kinds = np.arange(300) % 30 == 29
    sets = [PART if k else FULL for k in kinds]
    result = detect_phases(run(noisy(np.ones(300))), ops(sets, range(300)))
    assert np.array_equal(result.labels, kinds.astype(int))
    assert names(result) == ["train", "eval"]


def test_single_steps_on_a_schedule_among_outliers():
    kinds = np.arange(3000) % 100 == 99
    dur_ps = noisy(np.where(kinds, 8.0, 1.0), 0.1, outliers=0.01)
    result = detect_phases(run(dur_ps))
    assert np.array_equal(result.labels, kinds.astype(int))
    assert names(result) == ["train", "slow 7.9 ×"]
    assert result.phases[1].period == 100
    for part, name in ((0.6, "checkpoint"), (0.3, "slow 7.9 ×")):  # of what they last longer
        saved_ps = np.where(kinds, part * 7 / 8 * dur_ps, 0).astype(np.int64)
        assert names(detect_phases(run(dur_ps).append_column("saved_ps", pa.array(saved_ps)))) == ["train", name]


@pytest.mark.parametrize("cycle", [2, 3, 6])
def test_alternation_step_by_step(cycle):
    kinds = np.arange(600) % cycle == cycle - 1
    result = detect_phases(run(noisy(np.where(kinds, 1.7, 1.0), 0.2)))
    assert np.array_equal(result.labels, kinds.astype(int))
    assert result.phases[1].period == cycle


def test_alternation_that_only_ops_show():
    kinds = np.arange(3000) % 6 == 5
    sets = [OTHER if k else FULL for k in kinds]
    captured = (np.arange(13, 2990, 97)[:, None] + np.arange(5)).ravel()
    result = detect_phases(run(noisy(np.ones(3000))), ops(sets, captured))
    assert np.array_equal(result.labels, kinds.astype(int))


def test_other_ops_at_equal_time_are_cut_between_windows():
    sets = [FULL] * 1000 + [OTHER] * 1000
    captured = (np.arange(0, 2000, 50)[:, None] + np.arange(5)).ravel()
    result = detect_phases(run(noisy(np.ones(2000))), ops(sets, captured))
    assert len(result.segments) == 2
    assert 955 <= result.segments[1].first_step <= 1000


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_slow_drift_is_one_phase_between_its_levels(noise):
    mean = np.concatenate([np.ones(800), np.linspace(1, 1.8, 900), np.full(800, 1.8)])
    result = detect_phases(run(noisy(mean, noise)))
    assert names(result) == ["train-1", "drift", "train-2"] or names(result) == ["train", "drift", "train-2"]
    assert abs(result.segments[1].first_step - 800) <= 150
    assert abs(result.segments[2].first_step - 1700) <= 150


def test_drift_from_end_to_end_is_one_phase():
    result = detect_phases(run(noisy(np.linspace(1, 1.6, 3000), 0.05)))
    assert names(result) == ["drift"]


def test_a_phase_that_comes_back_keeps_its_label():
    mean = np.repeat([1.0, 1.5, 1.0, 1.5, 1.0], [200, 90, 300, 120, 190])
    result = detect_phases(run(noisy(mean, 0.1)))
    assert [s.phase for s in result.segments] == [0, 1, 0, 1, 0]


def test_compile_and_recompile_are_one_phase():
    mean = np.repeat([1.0, 1.5], [200, 200])
    mean[[0, 200]] = 50.0
    result = detect_phases(run(noisy(mean, 0.05)))
    assert names(result)[0] == "compile"
    assert np.flatnonzero(result.labels == 0).tolist() == [0, 200]
    assert len(result.phases) == 3


def test_compile_time_is_believed_where_it_is_known():
    mean = np.ones(100)
    mean[40] = 1.9
    dur_ps = noisy(mean, 0.01)
    compile_ps = np.where(np.arange(100) == 40, dur_ps * 6 // 10, 0)
    result = detect_phases(run(dur_ps, compile_ps=compile_ps))
    assert names(result) == ["train", "compile"]
    assert np.flatnonzero(result.labels == 1).tolist() == [40]


def test_input_stall_is_named():
    waiting = (np.arange(500) >= 300) & (np.arange(500) < 360)
    dur_ps = noisy(np.where(waiting, 3.0, 1.0), 0.05)
    input_ps = np.where(waiting, dur_ps * 2 // 3, dur_ps // 50)
    result = detect_phases(run(dur_ps, input_ps=input_ps))
    assert by_segment(result) == [(0, 299, "train"), (300, 359, "input stall"), (360, 499, "train")]
    assert "waiting for data" in result.phases[1].why


def test_hints_keep_steps_apart_and_name_them():
    kind = np.where(np.arange(200) % 20 >= 18, "eval", None)
    result = detect_phases(run(noisy(np.ones(200)), kind=pa.array(kind.tolist(), pa.string())))
    assert names(result) == ["train", "eval"]
    assert np.array_equal(result.labels == 1, np.arange(200) % 20 >= 18)


def test_hinted_steps_may_have_levels_of_their_own():
    mean = np.repeat([1.0, 2.0], 100)
    result = detect_phases(run(noisy(mean, 0.02), kind=pa.array(["train"] * 200).dictionary_encode()))
    assert names(result) == ["train-1", "train-2"]
    assert by_segment(result) == [(0, 99, "train-1"), (100, 199, "train-2")]


def test_representative_is_a_captured_step_of_middling_length():
    dur_ps = noisy(np.ones(200), 0.1)
    captured = [5, 50, 120]
    (phase,) = detect_phases(run(dur_ps), ops([FULL] * 200, captured)).phases
    nearest = min(captured, key=lambda s: abs(int(dur_ps[s]) - phase.median_ps))
    assert phase.representative == nearest
    assert phase.n_captured == 3


def test_top_ops_are_exact_sums_with_their_category():
    table = pa.table(
        {
            "step": [0, 0, 1, 1],
            "op": ["dot", "copy", "dot", "copy"],
            "count": [2, 1, 2, 1],
            "self_ps": [2**53 + 1, 5, 2**53 + 1, 6],
            "category": ["compute", "data_movement", "compute", "data_movement"],
        }
    )
    (phase,) = detect_phases(run(np.full(2, STEP_PS)), table).phases
    assert [(t.op, t.category, t.self_ps, t.count) for t in phase.top_ops] == [
        ("dot", "compute", 2**54 + 2, 4),
        ("copy", "data_movement", 11, 2),
    ]


def test_stall_is_seen_where_steps_last_no_longer():
    waiting = (np.arange(400) >= 150) & (np.arange(400) < 250)
    dur_ps = noisy(np.ones(400), 0.05)
    input_ps = np.where(waiting, dur_ps * 6 // 10, dur_ps // 50)
    result = detect_phases(run(dur_ps, input_ps=input_ps))
    assert by_segment(result) == [(0, 149, "train"), (150, 249, "input stall"), (250, 399, "train")]


def test_same_op_names_in_another_program_are_other_ops():
    captured = (np.arange(0, 1000, 25)[:, None] + np.arange(5)).ravel()
    table = ops([FULL] * 1000, captured)
    program = np.where(table.column("step").to_numpy() < 500, 7, 9)
    result = detect_phases(run(noisy(np.ones(1000))), table.append_column("program", pa.array(program)))
    assert len(result.segments) == 2
    assert abs(result.segments[1].first_step - 500) <= 20
    assert len(detect_phases(run(noisy(np.ones(1000))), table).phases) == 1


def test_change_of_ops_is_put_where_the_step_compiled():
    sets = [FULL] * 620 + [OTHER] * 380
    captured = (np.arange(0, 1000, 50)[:, None] + np.arange(5)).ravel()
    dur_ps = noisy(np.ones(1000))
    dur_ps[620] *= 8
    compile_ps = np.where(np.arange(1000) == 620, dur_ps * 7 // 8, 0)
    result = detect_phases(run(dur_ps, compile_ps=compile_ps), ops(sets, captured))
    assert [(s.first_step, s.last_step) for s in result.segments] == [(0, 619), (620, 620), (621, 999)]


def test_wandering_step_times_are_one_phase():
    rng = np.random.default_rng(0)
    wander = np.zeros(5000)
    for i in range(1, 5000):
        wander[i] = 0.98 * wander[i - 1] + np.sqrt(1 - 0.98**2) * rng.standard_normal()
    kinds = np.arange(5000) % 60 >= 55
    dur_ps = noisy(np.exp(0.1 * wander) * np.where(kinds, 0.4, 1.0), 0.03)
    result = detect_phases(run(dur_ps))
    assert np.array_equal(result.labels, kinds.astype(int))


def test_what_the_job_names_aside_is_one_phase():
    kind = pa.array(["eval" if i % 20 >= 16 else None for i in range(400)], pa.string())
    mean = np.where(np.arange(400) % 20 >= 16, np.where(np.arange(400) < 200, 0.3, 0.7), 1.0)
    result = detect_phases(run(noisy(mean, 0.02), kind=kind))
    assert names(result) == ["train", "eval"]
