"""MEMORY-BOUND: chains in a program, between programs and between kernels; what is no chain; clean runs."""

import pytest
from device_runs import PROGRAM, US, inside_ps, instruction, view_of_ops
from planted_runs import check_finding, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.device.memory_bound import find

SIZE = 1 << 20
ARRAY = f"f32[{SIZE}]{{0}}"


def chain_in_program(length, *, kept=False):
    """Multiplications of one array, each an instruction of its own; `kept`: every result is one of the program's."""
    rows = [instruction("start", "parameter", ARRAY)]
    for i in range(length):
        before = "start" if i == 0 else f"multiply.{i - 1}"
        rows.append(instruction(f"multiply.{i}", "multiply", ARRAY, before, flop=SIZE, bytes=8 * SIZE))
    results = [f"multiply.{i}" for i in range(length)] if kept else [f"multiply.{length - 1}"]
    return [*rows, instruction("result", "tuple", f"({ARRAY})", *results, is_root=True)]


@pytest.mark.parametrize("share", [0.05, 0.15, 0.4])
@pytest.mark.parametrize("length", [2, 8])
def test_a_chain_in_a_program_costs_what_a_fusion_would_not_move(tmp_path, share, length):
    shares = {f"multiply.{i}": ("compute", share / length) for i in range(length)} | {"dot.1": ("compute", 0.3)}
    view = view_of_ops(tmp_path, shares, chain_in_program(length))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, share * (1 - 1 / length) * inside_ps(view), 0.05)


def test_results_that_are_kept_or_read_by_other_work_are_no_chain(tmp_path):
    shares = {f"multiply.{i}": ("compute", 0.1) for i in range(4)} | {"dot.1": ("compute", 0.3)}
    assert find(view_of_ops(tmp_path / "kept", shares, chain_in_program(4, kept=True))) == []
    rows = [*chain_in_program(2), instruction("dot.1", "dot", ARRAY, "multiply.0")]
    assert find(view_of_ops(tmp_path / "read", shares, rows)) == []


def one_after_another(names, *, share, gap_ps=0, program=None, track="thread 1"):
    """Spans of every captured step: these ops back to back from its start, each of the same length."""

    def spans(steps, rows):
        number = 0
        for window in rows["windows"]:
            for step in range(window["first_step"], window["last_step"] + 1):
                at_ps, each_ps = int(steps["start_ps"][step]), int(steps["dur_ps"][step] * share / len(names))
                for i, name in enumerate(names):
                    yield {
                        **{"window": window["window"], "span": number, "level": "op", "category": "compute"},
                        **{"name": name, "start_ps": at_ps, "dur_ps": each_ps, "self_ps": each_ps, "device": "cpu:0"},
                        **{"track": track, "step": step, "program": None if program is None else program + i},
                    }
                    number, at_ps = number + 1, at_ps + each_ps + gap_ps

    return spans


def ops_of(names, share):
    return {name: ("compute", share * names.count(name) / len(names)) for name in names}


@pytest.mark.parametrize("share", [0.05, 0.15, 0.4])
def test_a_chain_of_operators_leaves_one_of_them(tmp_path, share):
    names = ["aten::mul", "aten::add", "aten::tanh", "aten::mul"]
    spans = one_after_another(names, share=share)
    view = view_of_ops(tmp_path, ops_of(names, share), program=None, spans=spans)
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, share * 0.75 * inside_ps(view), 0.05)
    assert found.low_ps < 0.7 * found.claim.total_ps
    assert set(found.layers) == set(names)


def test_gaps_between_the_ops_go_too_up_to_a_launch(tmp_path):
    names = ["aten::mul", "aten::add"]
    views = [
        view_of_ops(
            tmp_path / str(gap_us),
            ops_of(names, 0.2),
            program=None,
            spans=one_after_another(names, share=0.2, gap_ps=gap_us * US),
        )
        for gap_us in (0, 150, 5_000)
    ]
    none, short, long = (find(view)[0].claim.total_ps / view.clock.n_steps for view in views)
    assert short - none == pytest.approx(150 * US, rel=0.05)
    assert long - none == pytest.approx(200 * US, rel=0.05)


@pytest.mark.parametrize(
    "names",
    [
        ["aten::mul", "aten::mm", "aten::add", "aten::mm"],
        ["aten::tanh", "aten::exp", "aten::gelu"],
        ["aten::_foreach_mul_", "aten::_foreach_add_"],
        ["aten::relu"],
    ],
)
def test_single_ops_and_those_bound_by_arithmetic_are_no_chain(tmp_path, names):
    spans = one_after_another(names, share=0.4)
    assert find(view_of_ops(tmp_path, ops_of(names, 0.4), program=None, spans=spans)) == []


def test_programs_of_one_operation_each_are_a_chain(tmp_path):
    names = ["wrapped_multiply", "wrapped_add", "wrapped_negate"]
    rows, opcodes = [], ("multiply", "add", "negate")
    for i, (name, opcode) in enumerate(zip(names, opcodes, strict=True)):
        own = {"program": PROGRAM + i}
        rows += [instruction(name, "fusion", ARRAY, calls=["body"], flop=SIZE, bytes=8 * SIZE) | own]
        rows += [instruction(f"{opcode}.0", opcode, ARRAY, computation="body") | own]

    def planned(steps, windows):
        return one_after_another(names, share=0.3, program=PROGRAM)(steps, windows)

    programs = {name: PROGRAM + i for i, name in enumerate(names)}
    view = view_of_ops(tmp_path, ops_of(names, 0.3), rows, spans=planned, program=programs)
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 0.2 * inside_ps(view), 0.05)


def test_ops_shorter_than_a_launch_are_not_its_business(tmp_path):
    names = ["aten::mul", "aten::add"] * 5
    spans = one_after_another(names, share=0.001)
    assert find(view_of_ops(tmp_path, ops_of(names, 0.3), program=None, spans=spans)) == []


def test_without_ops_it_says_what_it_lacks(tmp_path):
    with pytest.raises(Unavailable, match="no op was captured on a device"):
        find(view_of_ops(tmp_path, {}))
