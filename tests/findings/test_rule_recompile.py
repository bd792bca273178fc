"""RECOMPILE: which program was compiled again and what changed; first compilations and evaluations are not."""

import numpy as np
import pytest
from planted_runs import MS, capture, check_finding, noisy_steps, steps_of, view_of, within

from phasepoint.findings.evidence.compilations import find_compilations
from phasepoint.findings.rules.run.compile_share import find as find_first
from phasepoint.findings.rules.run.recompile import find

N = 600


def program(number, window, name="jit_train_step", instructions=200):
    counts = {"instructions": instructions, "fingerprint": f"{number:032x}"}
    return {"program": number, "name": name, "first_window": window, **counts}


def parameter(number, name, shape):
    row = {"program": number, "computation": "main", "op": f"Arg_{name}", "opcode": "parameter", "category": "compute"}
    row |= {"shape": shape, "operands": [], "calls": [], "is_root": False, "is_entry": True, "op_name": name}
    return row


def compiled_again(at, *, each_ms=300, shapes=None, name="jit_train_step"):
    """The first step and those at `at` compile; a window opens after each, and sees the program with its shape."""
    dur_ps, compile_ps = noisy_steps(N), np.zeros(N, np.int64)
    for step in (0, *at):
        compile_ps[step] = each_ms * MS
        dur_ps[step] += each_ms * MS
    steps = steps_of(dur_ps, compile_ps=compile_ps)
    rows = capture(steps, lambda step: {"compute": 0.9}, every=50, first=1)
    shapes = shapes or [f"f32[{256 - 8 * i},64]{{1,0}}" for i in range(len(at) + 1)]
    windows = [next(w["window"] for w in rows["windows"] if w["first_step"] > step) for step in (0, *at)]
    rows["programs"] = [program(i, window, name) for i, window in enumerate(windows)]
    rows["instructions"] = [
        row
        for i, shape in enumerate(shapes)
        for row in (parameter(i, "x", shape), parameter(i, "state['w']", "f32[64,64]{1,0}"))
    ]
    return steps, rows


@pytest.mark.parametrize("times", [1, 3, 8])
def test_program_shape_and_cost_are_told(tmp_path, times):
    at = tuple(range(40, 40 + 50 * times, 50))
    view = view_of(tmp_path, compiled_again(at))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, times * 300 * MS, 0.1)
    assert np.flatnonzero(found.claim.by_step).tolist() == list(at)
    assert "jit_train_step was compiled again" in found.title
    assert "x: f32[256,64] → f32[248,64]" in found.title
    assert found.layers == ("x",)


def test_a_changed_type_is_told_as_such(tmp_path):
    shapes = ["f32[256,64]{1,0}", "bf16[256,64]{1,0}", "f32[256,64]{1,0}"]
    (found,) = find(view_of(tmp_path, compiled_again((140, 290), shapes=shapes)))
    assert found.remedy.startswith("keep one type of x")


def test_names_with_quotes_do_not_break_the_query(tmp_path):
    view = view_of(tmp_path, compiled_again((140, 290), name="jit_it's"))
    check_finding(view, find(view)[0])


def test_the_first_compilation_is_left_to_compile_share(tmp_path):
    view = view_of(tmp_path, compiled_again((140, 290), each_ms=900))
    again, first = find(view)[0], find_first(view)[0]
    assert not (again.claim.by_step * first.claim.by_step).any()


def test_one_compilation_is_no_finding(tmp_path):
    assert find(view_of(tmp_path, compiled_again(()))) == []


def told_again(at, *, why="tensor 'x' size mismatch at index 0. expected 64, actual 63", each_ms=300):
    """Compilations that PyTorch told of, without a window that saw a program."""
    steps, _ = compiled_again(at, each_ms=each_ms)
    rows = [
        {"step": step, "name": "forward", "start_ps": int(steps["start_ps"][step]), "dur_ps": each_ms * MS}
        | {"again": step > 0, "why": why if step else None}
        for step in (0, *at)
    ]
    return steps, {"compilations": rows}


def test_what_the_framework_tells_needs_no_window(tmp_path):
    view = view_of(tmp_path, told_again((140,)))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 300 * MS, 0.1)
    assert "forward was compiled again once" in found.title
    assert "tensor 'x' size mismatch at index 0. expected 64, actual 63" in found.title
    assert found.confidence == "high"


@pytest.mark.parametrize("why", ["GLOBAL_STATE changed: grad_mode", "L['self'].training == True"])
def test_another_mode_is_another_program(tmp_path, why):
    view = view_of(tmp_path, told_again((140, 290, 440), why=why))
    assert find(view) == []
    assert within(find_first(view)[0].claim.total_ps, 0.9 * 4 * 300 * MS, 0.1)


def test_the_first_evaluation_is_no_recompilation(tmp_path):
    steps, rows = compiled_again((140,))
    rows["programs"][1] |= {"name": "jit_eval_step"}
    assert find(view_of(tmp_path, (steps, rows))) == []


def test_without_programs_it_counts_from_the_third_time_on(tmp_path):
    steps, _ = compiled_again((140, 290))
    assert find(view_of(tmp_path / "few", (steps, {}))) == []
    steps, _ = compiled_again((140, 290, 440))
    view = view_of(tmp_path / "many", (steps, {}))
    (found,) = find(view)
    check_finding(view, found)
    assert found.confidence == "medium"
    assert within(found.claim.total_ps, 900 * MS, 0.1)


def named(at, *, name="jit(train_step)"):
    """Compilations with their names, as JAX tells them, of which no window after the first saw a program."""
    steps, rows = compiled_again(at)
    compilations = [
        {"step": step, "name": name, "start_ps": int(steps["start_ps"][step]), "dur_ps": 300 * MS}
        | {"again": None, "why": None}
        for step in (0, *at)
    ]
    return steps, rows | {"programs": rows["programs"][:1], "compilations": compilations}


def test_a_name_that_was_compiled_before_is_compiled_again(tmp_path):
    (found,) = find(view_of(tmp_path, named((140,))))
    assert np.flatnonzero(found.claim.by_step).tolist() == [140]
    assert "jit_train_step was compiled again once" in found.title


def test_a_name_that_a_window_saw_before_is_compiled_again(tmp_path):
    steps, rows = named((140,))
    rows["compilations"] = rows["compilations"][1:]
    assert len(find(view_of(tmp_path / "known", (steps, rows)))) == 1
    rows["programs"] = [rows["programs"][0] | {"name": "jit_eval_step"}]
    assert find(view_of(tmp_path / "other", (steps, rows))) == []


def test_functions_without_a_name_are_not_taken_for_each_other(tmp_path):
    assert find(view_of(tmp_path, named((140,), name="jit(<lambda>)"))) == []


def test_a_small_program_compiled_again_beside_new_ones_is_not_blamed(tmp_path):
    steps, rows = named((140,))
    small = {"step": 140, "name": "jit(_normal)", "start_ps": int(steps["start_ps"][140]), "dur_ps": 20 * MS}
    small |= {"again": None, "why": None}
    before = small | {"step": 0, "start_ps": int(steps["start_ps"][0])}
    new = [small | {"name": f"jit(op_{place})", "dur_ps": 10 * MS} for place in range(28)]
    rows["compilations"] = [rows["compilations"][0], before, small, *new]
    view = view_of(tmp_path, (steps, rows))
    assert find(view) == []
    assert [one.is_again for one in find_compilations(view)] == [False, False]


def test_what_pytorch_compiled_again_beside_more_new_code_is_not_blamed(tmp_path):
    steps, rows = told_again((140,))
    again = rows["compilations"][1]
    rows["compilations"][1:] = [
        again | {"dur_ps": 40 * MS},
        again | {"name": "evaluate", "again": False, "why": None, "dur_ps": 260 * MS},
    ]
    view = view_of(tmp_path, (steps, rows))
    assert find(view) == []
    assert [one.is_again for one in find_compilations(view)] == [False, False]


def test_looking_up_compiled_programs_is_no_compiling_again(tmp_path):
    steps, _ = compiled_again((140, 290, 440))
    steps["compile_ps"][[290, 440]] = 7 * MS
    assert find(view_of(tmp_path, (steps, {}))) == []
