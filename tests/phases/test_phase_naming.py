"""Names from evidence alone."""

import numpy as np
import pytest

from phasepoint.phases.detection.detect import find_return_period
from phasepoint.phases.detection.naming import PhaseEvidence, name_phases


def phase(number, **changes):
    usual = {
        "number": number,
        "role": None,
        "n_steps": 50,
        "n_run": 1000,
        "first_index": 500,
        "last_index": 600,
        "starts": np.array([500]),
        "total_ps": 50,
        "median_ps": 100,
    }
    return PhaseEvidence(**(usual | changes))


MAIN = phase(0, n_steps=900, first_index=0, last_index=999, starts=np.array([0]), total_ps=90_000)
RETURNS = np.arange(100, 1000, 100)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"role": "compile", "n_steps": 1}, "compile"),
        ({"compile_share": 0.8}, "compile"),
        ({"hint": "eval", "compile_share": 0.8}, "compile"),
        ({"hint": "eval"}, "eval"),
        ({"hint": "validation"}, "validation"),
        ({"role": "drift"}, "drift"),
        ({"input_share": 0.6}, "input stall"),
        ({"starts": RETURNS, "n_steps": 9, "median_ps": 500}, "checkpoint"),
        ({"starts": RETURNS, "median_ps": 40}, "eval"),
        ({"starts": RETURNS, "ops": frozenset("a")}, "eval"),
        ({"first_index": 0, "last_index": 49, "starts": np.array([0]), "median_ps": 150}, "warm-up"),
        ({"median_ps": 160}, "slow"),
    ],
)
def test_evidence_to_name(changes, name):
    main = phase(0, n_steps=900, first_index=0, last_index=999, total_ps=90_000, ops=frozenset("abc"))
    named = name_phases([main, phase(1, **changes)])
    assert named[0].name == named[0].kind == "train"
    assert named[1].name == name
    assert named[1].kind == {"validation": "named"}.get(name, name)
    assert named[1].why


def test_several_of_a_sort_are_numbered_in_order():
    named = name_phases([MAIN, phase(1, role="drift"), phase(2, role="drift"), phase(3, hint="eval")])
    assert [phase.name for phase in named] == ["train", "drift-1", "drift-2", "eval"]


def test_main_phase_that_waits_is_called_a_stall():
    main = phase(0, n_steps=900, first_index=0, last_index=999, total_ps=90_000, input_share=0.7)
    assert name_phases([main])[0][0] == "input stall"


def test_the_main_phase_is_never_what_only_compiles():
    slow_compile = phase(0, n_steps=1, compile_share=0.9, total_ps=10**6)
    train = phase(1, n_steps=900, first_index=1, last_index=999, total_ps=90_000)
    assert [named.name for named in name_phases([slow_compile, train])] == ["compile", "train"]


@pytest.mark.parametrize(
    ("starts", "period"),
    [([0, 10, 20, 30], 10.0), ([0, 10, 21, 30], 10.0), ([5], None), ([5, 50], None), ([0, 3, 90, 95, 400], None)],
)
def test_return_period(starts, period):
    assert find_return_period(np.array(starts)) == period


def test_what_a_job_that_names_its_evaluation_did_not_name_is_no_evaluation():
    returning = {"starts": RETURNS, "median_ps": 40}
    assert [named.name for named in name_phases([MAIN, phase(1, **returning)])] == ["train", "eval"]
    named = name_phases([MAIN, phase(1, **returning), phase(2, hint="eval")])
    assert [phase.name for phase in named] == ["train-1", "train-2", "eval"]
