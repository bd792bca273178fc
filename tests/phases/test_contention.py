"""Steps beside neighbours on the machine: one phase, unless the job changed."""

import numpy as np
import pyarrow as pa
import pytest

from phasepoint.phases import detect_phases
from phasepoint.phases.detection.signals.contention import calm_values

N = 2000
MS = 10**9


def neighbour(seed, n=N, *, least=40, most=160):
    """Crowded steps: a neighbour that comes and goes."""
    rng = np.random.default_rng(seed)
    is_busy, at, on = np.zeros(n, bool), 0, False
    while at < n:
        length = int(rng.integers(least, most))
        is_busy[at : at + length] = on
        at, on = at + length, not on
    return is_busy


def beside(mean, is_busy, seed, *, factor=2.2):
    """Durations in ms, and the crowded part of each: a busy step lasts some `factor` times as long."""
    rng = np.random.default_rng(seed)
    n = len(mean)
    slower = np.where(is_busy, factor * rng.lognormal(0, 0.25, n) * np.where(rng.random(n) < 0.05, 4, 1), 1.0)
    return mean * rng.lognormal(0, 0.05, n) * slower, np.where(is_busy, 0.36, 0.01) + rng.uniform(0, 0.01, n)


def table(dur_ms, crowded=None, **more):
    dur_ps = (np.asarray(dur_ms) * MS).astype(np.int64)
    columns = {"step": np.arange(len(dur_ps)), "dur_ps": dur_ps, **more}
    if crowded is not None:
        columns["crowded_ps"] = (dur_ps * crowded).astype(np.int64)
    return pa.table(columns)


@pytest.mark.parametrize("seed", range(6))
def test_a_neighbour_that_comes_and_goes_makes_no_phase(seed):
    dur_ms, crowded = beside(np.full(N, 10.0), neighbour(seed), seed)
    assert len(detect_phases(table(dur_ms)).phases) > 1
    result = detect_phases(table(dur_ms, crowded))
    assert [phase.name for phase in result.phases] == ["train"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("factor", [1.4, 2.5])
def test_a_change_of_the_job_is_found_beside_a_neighbour(seed, factor):
    mean = np.where((np.arange(N) >= 700) & (np.arange(N) < 1400), 10.0 * factor, 10.0)
    dur_ms, crowded = beside(mean, neighbour(seed), seed)
    result = detect_phases(table(dur_ms, crowded))
    in_stretch = result.labels[:1400][700:] == np.bincount(result.labels[700:1400]).argmax()
    outside = np.concatenate((result.labels[:700], result.labels[1400:]))
    assert in_stretch.mean() > 0.95
    assert (outside != np.bincount(result.labels[700:1400]).argmax()).mean() > 0.97


def test_what_the_neighbour_took_is_told():
    is_busy = neighbour(3)
    dur_ms, crowded = beside(np.full(N, 10.0), is_busy, 3)
    lost_ms = detect_phases(table(dur_ms, crowded)).lost * dur_ms
    assert lost_ms[is_busy].sum() == pytest.approx(dur_ms[is_busy].sum() - 10.0 * is_busy.sum(), rel=0.05)
    assert lost_ms[~is_busy].sum() < 0.1 * lost_ms.sum()


def test_where_no_step_is_calm_blocks_are_compared():
    rng = np.random.default_rng(0)
    mean = np.where(np.arange(N) >= 1000, 20.0, 10.0)
    dur_ms, _ = beside(mean, np.ones(N, bool), 0)
    crowded = np.full(N, 0.3) + rng.uniform(0, 0.1, N)
    result = detect_phases(table(dur_ms, crowded))
    assert np.bincount(result.labels[:1000]).max() > 950
    assert result.labels[500] != result.labels[1500]
    flat, crowded = beside(np.full(N, 10.0), np.ones(N, bool), 1)
    assert len(detect_phases(table(flat, crowded)).phases) == 1


def test_a_level_that_nothing_explains_is_no_phase_where_batches_and_ops_stayed_the_same():
    mean = np.where((np.arange(N) >= 700) & (np.arange(N) < 1400), 18.0, 10.0)
    dur_ms, crowded = beside(mean, neighbour(1), 1)
    seen = {"step": [100, 900, 1500], "op": ["mm"] * 3}
    ops = pa.table({**seen, "count": [4] * 3, "self_ps": [MS] * 3})
    known = {"batch_elements": np.full(N, 4096)}
    assert len(detect_phases(table(dur_ms, crowded), ops).phases) > 1
    assert len(detect_phases(table(dur_ms, crowded, **known), ops).phases) == 1
    assert len(detect_phases(table(dur_ms, crowded, **known, graph_nodes=np.full(N, 30))).phases) == 1
    seen = {"step": [100, 200, 300, 900, 1000, 1100], "op": ["mm"] * 3 + ["conv"] * 3}
    ops = pa.table({**seen, "count": 6 * [4], "self_ps": 6 * [MS]})
    assert len(detect_phases(table(dur_ms, crowded, **known), ops).phases) > 1


def test_calm_steps_stay_as_they_are_and_few_crowded_ones_change_nothing():
    rng = np.random.default_rng(5)
    values = rng.normal(0, 0.05, 500)
    crowded = np.zeros(500)
    crowded[[7, 200]] = 0.5
    plain = np.ones(500, bool)
    assert np.array_equal(calm_values(values, crowded, plain, changes=None), values)
    assert len(calm_values(values[:0], crowded[:0], plain[:0], changes=None)) == 0


@pytest.mark.parametrize("what", ["batch_elements", "graph_nodes"])
@pytest.mark.parametrize("ratio", [1.15, 1.5])
def test_steps_that_have_more_to_do_are_known_to_the_step(ratio, what):
    inside = (np.arange(N) >= 700) & (np.arange(N) < 1400)
    dur_ms, crowded = beside(np.where(inside, 10.0 * ratio, 10.0), neighbour(2), 2)
    sizes = {what: np.where(inside, 6000, 4000)}
    for rows in (table(dur_ms, crowded, **sizes), table(np.where(inside, 10.0 * ratio, 10.0), **sizes)):
        result = detect_phases(rows)
        assert [(s.first_step, s.last_step) for s in result.segments] == [(0, 699), (700, 1399), (1400, N - 1)]


@pytest.mark.parametrize(
    "sizes",
    [
        np.where(np.arange(N) % 100 == 99, 100, 4000),  # the last batch of an epoch
        np.random.default_rng(0).integers(3000, 5000, N),  # texts of any length
        np.where(np.arange(N) >= 1000, 4000, 5000),  # more, which takes no longer
    ],
)
def test_sizes_that_are_no_change_of_the_job_make_no_phase(sizes):
    dur_ms = 10 * np.random.default_rng(1).lognormal(0, 0.03, N)
    assert len(detect_phases(table(dur_ms, batch_elements=sizes)).phases) == 1


@pytest.mark.parametrize("what", ["batch_elements", "graph_nodes"])
def test_where_no_step_is_calm_what_steps_are_given_to_do_tells_them_apart(what):
    inside = np.arange(N) >= 700
    dur_ms = 50 * np.random.default_rng(3).lognormal(0, 0.5, N)  # as long in both: the neighbours decide
    sizes = np.where(inside, 5400, 4000)
    sizes[:3] = 0 if what == "batch_elements" else -1
    result = detect_phases(table(dur_ms, np.full(N, 0.7), **{what: sizes}))
    assert [(s.first_step, s.last_step) for s in result.segments] == [(0, 699), (700, N - 1)]
    nearly = np.where(inside, 4100, 4000)
    assert len(detect_phases(table(dur_ms, np.full(N, 0.7), **{what: nearly})).phases) == 1


def test_few_steps_that_neighbours_held_up_are_one_phase_where_the_work_is_known_to_be_the_same():
    dur_ms = np.where(np.arange(30) < 12, 20.0, 450.0) * np.random.default_rng(4).lognormal(0, 0.05, 30)
    crowded = np.full(30, 0.7)
    known = {"batch_elements": np.full(30, 4000), "graph_nodes": np.array([-1] + [9] * 29)}
    assert len(detect_phases(table(dur_ms, crowded)).phases) == 2
    assert len(detect_phases(table(dur_ms, crowded, **known)).phases) == 1


def test_between_two_compilations_nothing_changed():
    """A neighbour that never stops takes less from step 680 on; the job itself changes with its program, at 1,032."""
    rng = np.random.default_rng(0)
    step = np.arange(1900)
    dur_ms = np.select([step < 680, step < 1032], [9.8, 7.7], 21.8) * rng.lognormal(0, 0.12, len(step))
    compile_ps = np.zeros(len(step), np.int64)
    dur_ms[[0, 1032]] += 700
    compile_ps[[0, 1032]] = 700 * MS
    found = detect_phases(table(dur_ms, np.full(len(step), 0.46), compile_ps=compile_ps))
    labels = found.labels[np.delete(step, [0, 1032])]
    assert len(set(labels[:1031])) == len(set(labels[1031:])) == 1
    assert len(set(labels)) == 2
