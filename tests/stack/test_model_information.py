import pytest
from stack_runs import run_of

from phasepoint.stack.analyses.model_information import best_batch_size
from phasepoint.stack.analyses.table import analyse

MS = 10**9


def run_with(path, steps, windows=()):
    rows, at = [], 0
    for i, (dur_ms, kind, compile_ms) in enumerate(steps):
        compile_ps = compile_ms * MS if compile_ms else None
        rows.append({"step": i, "start_ps": at, "dur_ps": dur_ms * MS, "kind": kind, "compile_ps": compile_ps})
        at += dur_ms * MS
    zero = {"start_ps": 0, "dur_ps": 0, "start_cost_ps": 0, "stop_cost_ps": 0, "capture_cost_ps": 0, "bytes": 0}
    named = {"reason": "sample", "format": "kineto"}
    taken = [
        {"window": i, "first_step": first, "last_step": last, **zero, **named}
        for i, (first, last) in enumerate(windows)
    ]
    return run_of(path, [], steps=rows, windows=taken)


def test_uncaptured_steps_tell_the_latency_and_compiling_ones_do_not(tmp_path):
    steps = [(900, None, 800), *[(10, None, 0)] * 5, (30, None, 0), (30, None, 0)]
    (row,) = analyse(run_with(tmp_path / "run", steps, [(6, 7)]), "A1").rows.to_pylist()
    assert (row["steps"], row["measured"], row["latency_ps"]) == (5, "uncaptured", 10 * MS)
    assert (row["steps_per_s"], row["batch_size"], row["items_per_s"]) == (100.0, None, None)


def test_too_few_uncaptured_steps_are_measured_with_the_others(tmp_path):
    steps = [(10, None, 0), *[(30, None, 0)] * 4]
    (row,) = analyse(run_with(tmp_path / "run", steps, [(1, 4)]), "A1").rows.to_pylist()
    assert (row["steps"], row["measured"], row["latency_ps"]) == (5, "all", 30 * MS)


def test_batch_sizes_by_the_user_s_names_and_the_best(tmp_path):
    sizes = {"batch=8": 8, "train bs16": 10, "batch_size: 32": 19, "batch 64": 38}
    steps = [(ms, kind, 0) for kind, ms in sizes.items() for _ in range(6)]
    rows = analyse(run_with(tmp_path / "run", steps), "A1").rows.to_pylist()
    assert [(r["batch_size"], r["latency_ps"] // MS, r["is_best"]) for r in rows] == [
        (8, 8, False),
        (16, 10, False),
        (32, 19, True),
        (64, 38, False),
    ]
    assert rows[0]["items_per_s"] == pytest.approx(1000)


@pytest.mark.parametrize(
    ("sizes", "rates", "best"),
    [
        ([1, 2, 4, 8], [100, 190, 199, 205], 2),
        ([1, 2, 4], [100, 200, 400], None),
        ([1], [100], None),
        ([4, 6], [100, 101], None),
        ([4, 6, 8], [100, 150, 105], 4),
        ([1, 2], [100, 105], 1),
        ([1, 2], [100, 105.1], None),
    ],
)
def test_best_batch_size_is_the_first_that_doubling_does_not_improve(sizes, rates, best):
    assert best_batch_size(sizes, rates) == best
