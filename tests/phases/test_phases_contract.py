"""The contract battery: every method, every odd input."""

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phasepoint.core.errors import NoDataError
from phasepoint.phases import METHODS, detect_phases
from phasepoint.phases.detection import methods

STEP_PS = 10**11
METHOD_NAMES = sorted(METHODS)


def steps_table(dur_ps, **columns):
    return pa.table({"step": np.arange(len(dur_ps)), "dur_ps": np.asarray(dur_ps, np.int64), **columns})


def ops_table(captured, *, kinds=None):
    """Two kinds of step: kind 1 runs a subset of kind 0's ops."""
    rows = []
    for step in captured:
        kind = 0 if kinds is None else int(kinds[step])
        ops = {"dot": (4, 60), "grad": (4, 40)} if kind == 0 else {"dot": (4, 60)}
        rows += [
            {"step": int(step), "op": op, "count": c, "self_ps": t * 10**9, "category": "compute"}
            for op, (c, t) in ops.items()
        ]
    return pa.Table.from_pylist(rows)


def mixed_run(n=300, seed=3):
    """Levels, an evaluation every 30 steps, noise, half of the steps captured."""
    rng = np.random.default_rng(seed)
    kinds = np.arange(n) % 30 >= 25
    mean = np.where(kinds, 0.4, np.where(np.arange(n) < 200, 1.0, 1.6))
    dur_ps = (mean * np.exp(0.05 * rng.standard_normal(n)) * STEP_PS).astype(np.int64)
    return steps_table(dur_ps), ops_table(range(0, n, 2), kinds=kinds)


@cache
def mixed_result(method, *, ops=True):
    """The mixed run's tables, and what a method finds in them; with a look at its ops or without."""
    steps, seen = mixed_run()
    return steps, seen, detect_phases(steps, seen if ops else None, method=method)


def check_result(result, n):
    assert result.labels.shape == (n,)
    assert result.labels.dtype == np.int64
    assert [phase.id for phase in result.phases] == list(range(len(result.phases)))
    assert set(np.unique(result.labels)) == set(range(len(result.phases)))
    in_order = result.labels[result.order]
    at = 0
    for segment in result.segments:
        assert segment.first_index == at
        assert (in_order[segment.first_index : segment.last_index + 1] == segment.phase).all()
        assert segment.n_steps == segment.last_index - segment.first_index + 1
        at = segment.last_index + 1
    assert at == n
    assert all(a.phase != b.phase for a, b in zip(result.segments, result.segments[1:], strict=False))
    assert sum(phase.n_steps for phase in result.phases) == n
    assert sum(phase.n_segments for phase in result.phases) == len(result.segments)
    assert sum(phase.share for phase in result.phases) == pytest.approx(1, abs=1e-12)
    assert sum(phase.weight for phase in result.phases) == pytest.approx(1, abs=1e-12)
    assert len({phase.name for phase in result.phases}) == len(result.phases)
    for phase in result.phases:
        member = result.labels == phase.id
        assert phase.n_steps == member.sum()
        assert phase.representative in result.steps[member]


@pytest.mark.parametrize("method", METHOD_NAMES)
class TestEveryMethod:
    def test_mixed_run_is_partitioned(self, method):
        steps, _, result = mixed_result(method)
        check_result(result, 300)
        assert result.method == method
        total_ps = int(np.sum(steps.column("dur_ps").to_numpy()))
        assert sum(phase.total_ps for phase in result.phases) == total_ps
        assert sum(phase.share for phase in result.phases) == pytest.approx(1)

    def test_no_steps(self, method):
        with pytest.raises(NoDataError, match="no steps"):
            detect_phases(steps_table([]), method=method)

    def test_one_step_is_one_phase(self, method):
        result = detect_phases(steps_table([STEP_PS]), ops_table([0]), method=method)
        check_result(result, 1)
        assert len(result.phases) == 1
        assert result.phases[0].share == 1.0
        assert result.phases[0].representative == 0

    @pytest.mark.parametrize("n", [2, 7, 8, 9, 40])
    def test_constant_run_is_one_phase(self, method, n):
        for ops in (None, ops_table(range(n))):
            result = detect_phases(steps_table([STEP_PS] * n), ops, method=method)
            check_result(result, n)
            assert len(result.phases) == 1

    def test_steps_that_take_no_time(self, method):
        result = detect_phases(steps_table([0] * 20), method=method)
        check_result(result, 20)

    def test_runs_without_optional_columns(self, method):
        steps, ops = mixed_run()
        bare = detect_phases(steps, ops.drop_columns(["category"]), method=method)
        check_result(bare, 300)
        assert bare.phases[0].top_ops[0].category is None
        without = mixed_result(method, ops=False)[2]
        check_result(without, 300)
        assert without.notes

    def test_empty_ops_are_no_ops(self, method):
        steps, ops, without = mixed_result(method, ops=False)
        assert np.array_equal(detect_phases(steps, ops.slice(0, 0), method=method).labels, without.labels)

    def test_same_input_same_result(self, method):
        first, second = mixed_result(method)[2], detect_phases(*mixed_run(), method=method)
        assert np.array_equal(first.labels, second.labels)
        assert first.phases == second.phases
        assert first.segments == second.segments
        assert first.notes == second.notes

    def test_input_is_not_changed(self, method):
        seen, before = mixed_result(method)[:2], mixed_run()
        assert [table.to_pydict() for table in seen] == [table.to_pydict() for table in before]

    def test_rows_in_any_order(self, method):
        steps, ops, straight = mixed_result(method)
        rng = np.random.default_rng(1)
        shuffle, ops_shuffle = rng.permutation(300), rng.permutation(ops.num_rows)
        mixed = detect_phases(steps.take(shuffle), ops.take(ops_shuffle), method=method)
        assert np.array_equal(mixed.labels, straight.labels[shuffle])
        assert np.array_equal(mixed.steps, shuffle)
        assert mixed.segments == straight.segments

    def test_step_numbers_need_not_begin_at_zero(self, method):
        steps, ops = mixed_run()
        moved = steps.set_column(0, "step", pa.array(np.arange(300) * 10 + 7))
        ops = ops.set_column(0, "step", pa.array(ops.column("step").to_numpy() * 10 + 7))
        result = detect_phases(moved, ops, method=method)
        check_result(result, 300)
        assert result.segments[0].first_step == 7
        assert result.segments[-1].last_step == 2997

    def test_several_hosts_are_one_run(self, method):
        steps, ops, alone = mixed_result(method)
        host = [pa.array(np.full(300, h)) for h in (0, 1)]
        both = pa.concat_tables([steps.append_column("host", h) for h in host])
        ops = ops.append_column("host", pa.array(np.zeros(ops.num_rows, np.int64)))
        result = detect_phases(both, ops, method=method)
        assert np.array_equal(result.labels, np.concatenate([alone.labels, alone.labels]))
        assert result.segments == alone.segments


@pytest.mark.parametrize("method", METHOD_NAMES)
@settings(max_examples=25)
@given(data=st.data())
def test_any_run_is_partitioned(method, data):
    n = data.draw(st.integers(1, 60))
    dur_ps = data.draw(st.lists(st.integers(0, 10**15), min_size=n, max_size=n))
    captured = data.draw(st.sets(st.integers(0, n - 1), max_size=12))
    kinds = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    ops = ops_table(sorted(captured), kinds=kinds) if captured else None
    check_result(detect_phases(steps_table(dur_ps), ops, method=method), n)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (pa.table({"step": [0]}), "lacks column 'dur_ps'"),
        (pa.table({"dur_ps": [1]}), "lacks column 'step'"),
        (pa.table({"step": [0, 1], "dur_ps": [5, -1]}), "negative.*row 1 .step 1"),
        (pa.table({"step": [3, 4, 3], "dur_ps": [1, 1, 1]}), "duplicate.*step 3"),
        (pa.table({"step": [0, None], "dur_ps": [1, 1]}), "'step': 1 nulls"),
        (pa.table({"step": [0, 1], "dur_ps": [1, None]}), "'dur_ps': 1 nulls"),
        (pa.table({"step": ["a"], "dur_ps": [1]}), "'step': expected integers"),
        (pa.table({"step": [0], "dur_ps": [0.5]}), "'dur_ps': expected integers"),
        (pa.table({"step": [3, 3], "dur_ps": [1, 1], "host": [2, 2]}), "duplicate.*on host 2"),
    ],
)
def test_bad_steps(steps, message):
    with pytest.raises(ValueError, match=message):
        detect_phases(steps)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"op": ["a"], "count": [1], "self_ps": [1]}, "lacks column 'step'"),
        ({"step": [0], "op": ["a"], "count": [1]}, "lacks column 'self_ps'"),
        ({"step": [9], "op": ["a"], "count": [1], "self_ps": [1]}, "does not hold.*step 9"),
        ({"step": [0], "op": [None], "count": [1], "self_ps": [1]}, "'op': 1 nulls"),
        ({"step": [0], "op": ["a"], "count": [-1], "self_ps": [1]}, "'count'.*negative"),
        ({"step": [0], "op": ["a"], "count": [1], "self_ps": [-1]}, "'self_ps'.*negative"),
    ],
)
def test_bad_ops(columns, message):
    with pytest.raises(ValueError, match=message):
        detect_phases(steps_table([1, 2]), pa.table(columns))


def test_every_file_is_a_method():
    files = {path.stem for path in Path(methods.__path__[0]).glob("*.py")}
    assert files - {"__init__", "step_space"} == set(METHODS)  # two methods share the space of steps


def test_unknown_method_names_the_known_ones():
    with pytest.raises(ValueError, match="recurrent, ols, kmeans, dbscan"):
        detect_phases(steps_table([1]), method="guess")


def test_work_outside_steps_takes_no_part():
    ops = pa.table({"step": [0, None], "op": ["a", "b"], "count": [1, 9], "self_ps": [5, 900]})
    (phase,) = detect_phases(steps_table([10]), ops).phases
    assert [(top.op, top.self_ps, top.share) for top in phase.top_ops] == [("a", 5, 1.0)]


def test_attempts_are_told_apart():
    steps = pa.table({"step": [0, 1, 0, 1], "attempt": [0, 0, 1, 1], "dur_ps": [5, 5, 5, 5]})
    result = detect_phases(steps)
    assert len(result.labels) == 4
    assert (result.segments[0].first_index, result.segments[0].last_index) == (0, 3)
