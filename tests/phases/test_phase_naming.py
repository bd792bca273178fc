"""Names from evidence alone."""

import numpy as np
import pyarrow as pa
import pytest

from phasepoint.phases.detection.detect import detect_phases, find_return_period
from phasepoint.phases.detection.naming import KnownOfJob, PhaseEvidence, RanOps, name_phases


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


def ran(names, *, trains=False, keys=None):
    return {"ran": RanOps(frozenset(names), keys, trains)}


def main_phase(**changes):
    return phase(0, n_steps=900, first_index=0, last_index=999, total_ps=90_000, **changes)


ONCE = {"role": "compile", "n_steps": 1, "first_index": 0, "last_index": 0, "starts": np.array([0])}
OFTEN = {"starts": RETURNS, "period": 100.0}
SCATTERED = {"starts": np.array([100, 102, 230, 771]), "batch_elements": 32}


@pytest.mark.parametrize(
    ("changes", "kind", "name"),
    [
        ({"compile_share": 0.8}, "compile", "compile"),
        ({"hint": "eval", "compile_share": 0.8}, "compile", "compile"),
        ({"role": "compile", "n_steps": 2}, "compile", "compile"),
        (ONCE, "warm-up", "warm-up"),
        (ONCE | {"compile_share": 0.0}, "warm-up", "warm-up"),
        ({"role": "compile", "n_steps": 2, "compile_share": 0.0, "median_ps": 900}, "slow", "slow 9 ×"),
        ({"hint": "eval"}, "eval", "eval"),
        ({"hint": "validation"}, "named", "validation"),
        ({"role": "drift"}, "drift", "drift"),
        ({"input_share": 0.6}, "input stall", "input stall"),
        (OFTEN | {"n_steps": 9, "median_ps": 500}, "slow", "slow 5 ×"),
        (OFTEN | {"n_steps": 9, "median_ps": 500, "saved_ps": 390}, "checkpoint", "checkpoint"),
        (OFTEN | {"n_steps": 9, "median_ps": 500, "saved_ps": 200}, "checkpoint", "checkpoint"),
        (OFTEN | {"n_steps": 9, "median_ps": 500, "saved_ps": 199}, "slow", "slow 5 ×"),
        (OFTEN | {"median_ps": 79, "saved_ps": 10}, "short", "short 0.79 ×"),
        (OFTEN | {"median_ps": 40}, "short", "short 0.4 ×"),
        (OFTEN | {"median_ps": 40, **ran("ab")}, "eval", "eval"),
        (OFTEN | {"median_ps": 40, **ran("ad")}, "eval", "eval"),
        (OFTEN | {"median_ps": 40, **ran("ab", trains=True)}, "short", "short 0.4 ×"),
        (
            OFTEN | {"median_ps": 40, **ran("ab"), "updates": True},
            "short",
            "short 0.4 ×",
        ),
        ({"first_index": 0, "last_index": 49, "starts": np.array([0]), "median_ps": 150}, "warm-up", "warm-up"),
        ({"median_ps": 160}, "slow", "slow 1.6 ×"),
        (SCATTERED | {"median_ps": 140}, "slow", "slow 1.4 ×"),
        (SCATTERED | {"median_ps": 87}, "short", "short 0.87 ×"),
        (SCATTERED | {"median_ps": 140, "batch_elements": 64}, "train", "train-2"),
        (SCATTERED | {"median_ps": 140, "n_steps": 101}, "train", "train-2"),
        (OFTEN | {"median_ps": 140}, "train", "train-2"),
    ],
)
def test_evidence_to_name(changes, kind, name):
    main = main_phase(ran=RanOps(frozenset("abc"), None, True), batch_elements=32)
    named = name_phases([main, phase(1, **changes)])
    assert named[0].kind == "train"
    assert (named[1].kind, named[1].name) == (kind, name)
    assert named[1].why


def test_where_no_op_tells_training_a_part_of_the_ops_that_returns_is_evaluation():
    main = phase(
        0, n_steps=900, first_index=0, last_index=999, total_ps=90_000, ran=RanOps(frozenset("abc"), None, False)
    )
    part = ran("ab")
    assert name_phases([main, phase(1, **OFTEN, **part)])[1].name == "eval"
    main = phase(
        0, n_steps=900, first_index=0, last_index=999, total_ps=90_000, ran=RanOps(frozenset("abc"), {1, 2, 3})
    )
    for keys, name in (({1, 2}, "train-2"), ({4, 5}, "eval")):
        assert name_phases([main, phase(1, **OFTEN, **ran("ab", keys=keys))])[1].name == name
    assert name_phases([main, phase(1, **part)])[1].name == "train-2"


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
    [
        ([0, 10, 20, 30], 10.0),
        ([0, 10, 21, 30], 10.0),
        ([5], None),
        ([5, 50], None),
        ([0, 3, 90, 95, 400], None),
        ([0, 2, 4, 6, 700, 702, 704, 1500], None),
    ],
)
def test_return_period(starts, period):
    assert find_return_period(np.array(starts)) == period


def test_steps_that_note_nothing_for_a_backward_pass_are_an_evaluation():
    main, none = main_phase(graph_nodes=40), {"graph_nodes": 0, "median_ps": 40}
    assert name_phases([main, phase(1, **none)])[1].name == "eval"
    assert name_phases([main, phase(1, **none, updates=True)])[1].name != "eval"
    assert name_phases([main_phase(graph_nodes=0), phase(1, **none)])[1].name != "eval"
    assert name_phases([main_phase(), phase(1, **none)])[1].name != "eval"
    assert name_phases([main, phase(1, median_ps=40)])[1].name != "eval"


def test_the_first_step_passes_before_anybody_counts():
    evaluates = np.arange(1200) % 240 >= 200
    nodes = np.where(evaluates, 0, 40)
    nodes[0] = -1
    dur_ps = np.where(evaluates, 30, 100) * 10**7 + np.random.default_rng(1).integers(0, 10**6, 1200)
    steps = pa.table({"step": range(1200), "dur_ps": dur_ps, "graph_nodes": nodes})
    assert [phase.name for phase in detect_phases(steps).phases] == ["train", "eval"]


def test_what_a_job_that_names_its_evaluation_did_not_name_is_no_evaluation():
    main = phase(
        0, n_steps=900, first_index=0, last_index=999, total_ps=90_000, ran=RanOps(frozenset("abc"), None, True)
    )
    forward = {**OFTEN, **ran("ab")}
    assert [named.name for named in name_phases([main, phase(1, **forward)])] == ["train", "eval"]
    named = name_phases([main, phase(1, **forward), phase(2, hint="eval")])
    assert [phase.name for phase in named] == ["train-1", "train-2", "eval"]


FORWARD = frozenset(f"aten::op{i}" for i in range(8))


@pytest.mark.parametrize(
    ("ran", "known", "name"),
    [
        (RanOps(), KnownOfJob(), "train"),  # nothing was captured
        (RanOps(FORWARD, None, trains=True, tells=8), KnownOfJob(imported=True), "train"),
        (RanOps(FORWARD, None, tells=8), KnownOfJob(), "inference"),
        (RanOps(FORWARD, None, tells=8), KnownOfJob(updates=True), "train"),
        (RanOps(frozenset({"aten::mm"}), None, tells=7), KnownOfJob(), "train"),  # too few ops to tell
        (RanOps(frozenset({"aten::mm"}), None, tells=7), KnownOfJob(imported=True), "main"),
        (RanOps(frozenset({"fusion.1"}), frozenset({1})), KnownOfJob(imported=True, goes_back=True), "train"),
        (RanOps(frozenset({"fusion.1"}), frozenset({1})), KnownOfJob(imported=True, goes_back=False), "inference"),
        (RanOps(frozenset({"gemm"})), KnownOfJob(imported=True), "main"),  # kernels alone
        (RanOps(frozenset({"gemm"})), KnownOfJob(), "train"),
    ],
)
def test_what_the_job_does_names_its_usual_steps(ran, known, name):
    usual, other = phase(0, n_steps=900, total_ps=90_000, ran=ran), phase(1, ran=RanOps())
    found = name_phases([usual, other], known)
    assert (found[0].kind, found[0].name) == (name, f"{name}-1")  # the other phase's steps are of the same job
    assert found[1].kind == name


def test_one_phase_that_goes_back_is_enough_and_the_jobs_own_names_stay():
    mine = RanOps(FORWARD, None, tells=8)
    back = mine._replace(trains=True)
    assert name_phases([phase(0, total_ps=9_000, ran=mine), phase(1, ran=back)])[0].kind == "train"
    assert name_phases([phase(0, ran=mine, hint="train")])[0].name == "train"


@pytest.mark.parametrize(
    ("names", "trains"),
    [
        (["aten::mm", "autograd::engine::evaluate_function: AddmmBackward0"], True),
        (["aten::mm", "Optimizer.step#SGD.step"], True),
        (["aten::_foreach_add_"], True),
        (["void at::native::(anonymous namespace)::layer_norm_grad_input_kernel<float>"], True),
        (["igemm_bwd_gtcx2_nhwc_bf16"], True),
        (["te_fused_attn_backward_ffi.18"], True),
        (["aten::_foreach_copy_", "triton_poi_fused_silu_2", "aten::set_grad_enabled"], False),
        (["vllm/compilation/optimizer_pass.py(12): run"], False),
    ],
)
def test_ops_and_kernels_that_tell_of_training(names, trains):
    ops = pa.table({"step": [0] * len(names), "op": names, "count": [1] * len(names), "self_ps": [1000] * len(names)})
    result = detect_phases(pa.table({"step": [0], "dur_ps": [10_000]}), ops, known=KnownOfJob(imported=True))
    assert result.phases[0].name == ("train" if trains else "main")
