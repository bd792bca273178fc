"""What holds a graph back in ONNX Runtime: its nodes' flop against counts by the graph, times that close, causes."""

import itertools

import numpy as np
import pytest

from phasepoint.bench.bottleneck.explain_graph import explain_graph, node_flop, packed_bytes, self_times_us
from phasepoint.bench.runtimes.runtimes import RUNTIMES
from phasepoint.bench.suite.ask import ask_suite
from phasepoint.bench.suite.result import Pair
from phasepoint.bench.suite.run import run_suite
from phasepoint.bench.suite.subject import open_subject
from phasepoint.bench.suite.summary import summarize_suite

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

FLOAT = onnx.TensorProto.FLOAT


def array(name, shape):
    return onnx.helper.make_tensor_value_info(name, FLOAT, shape)


def save(path, nodes, taken, given, weights=()):
    graph = onnx.helper.make_graph(nodes, "graph", [array("x", taken)], [array("y", given)], list(weights))
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=[opset]), path)
    return str(path)


def weight(name, shape):
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return onnx.numpy_helper.from_array(values, name)


def chain(kind, count, **attributes):
    """Nodes from x to y."""
    names = ["x", *(f"t{number}" for number in range(1, count)), "y"]
    pairs = enumerate(itertools.pairwise(names))
    return [onnx.helper.make_node(kind, [a], [b], f"{kind}{n}", **attributes) for n, (a, b) in pairs]


def causes(folder):
    """A graph of each cause: by its file, what holds it back."""
    products = [onnx.helper.make_node("MatMul", [a, "w"], [b], a) for a, b in (("x", "t"), ("t", "y"))]
    side = 1 << 11
    return {
        save(folder / "product.onnx", products, (512, 1024), (512, 1024), [weight("w", (1024, 1024))]): "compute",
        save(folder / "elements.onnx", chain("Neg", 3), (1, 1 << 22), (1, 1 << 22)): "bandwidth",
        save(folder / "tiny.onnx", chain("Neg", 300), (1, 4), (1, 4)): "overhead",
        save(folder / "moves.onnx", chain("Transpose", 3, perm=[1, 0]), (side, side), (side, side)): "data movement",
    }


@pytest.mark.alone
def test_verdicts_of_graphs_whose_cause_is_known(tmp_path):
    known = causes(tmp_path)
    request = ask_suite(list(known), devices=["cpu:1"], rounds=1, seconds=0.2, explains=True)
    summaries = summarize_suite(run_suite(tmp_path / "suite", request))
    assert {row.reason for row in summaries} == {""}
    assert {row.pair.model: row.bottleneck.part for row in summaries} == known
    for row in summaries:
        assert sum(row.bottleneck.parts_ps.values()) == row.latency_ps


@pytest.mark.parametrize("name", ["onnx/resnet50", "onnx/vgg19", "onnx/bvlc_alexnet"])
def test_flop_of_real_graphs_are_twice_their_multiply_accumulates(name):
    subject = open_subject(name, counts=True)
    found = explain_graph(subject.network, subject.inputs, Pair(name, "cpu:1", "onnxruntime", "f32"), 10**12, [])
    assert sum(one.flop for one in found.every_layer) == 2 * subject.facts.macs
    assert sum(found.parts_ps.values()) == 10**12
    inside = sum(one.time_ps for one in found.every_layer)
    assert inside + found.parts_ps["overhead"] == 10**12
    assert {one.kind.removeprefix("Fused") for one in found.every_layer} >= {"Conv", "Gemm", "MaxPool"}


def loop(path, rounds):
    """A loop that adds one to x so many times."""
    one = onnx.helper.make_tensor("one", FLOAT, (1,), [1.0])
    goes_on, keeps = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, ()) for name in ("go", "on"))
    body = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Add", ["before", "one"], ["after"], "inside"),
            onnx.helper.make_node("Identity", ["go"], ["on"], "again"),
        ],
        "body",
        [onnx.helper.make_tensor_value_info("number", onnx.TensorProto.INT64, ()), goes_on, array("before", (1,))],
        [keeps, array("after", (1,))],
        [one],
    )
    count = onnx.helper.make_tensor("count", onnx.TensorProto.INT64, (), [rounds])
    node = onnx.helper.make_node("Loop", ["count", "", "x"], ["y"], "loop", body=body)
    return save(path, [node], (1,), (1,), [count])


def test_a_node_in_a_loop_is_counted_as_often_as_it_ran_and_the_loop_without_it(tmp_path):
    subject = open_subject(loop(tmp_path / "loop.onnx", 50), counts=False)
    found = explain_graph(subject.network, subject.inputs, Pair("loop", "cpu:1", "onnxruntime", "f32"), 10**12, [])
    inside = next(one for one in found.every_layer if one.layer == "inside")
    assert inside.moved_bytes == 50 * 12
    assert "Loop" not in {one.kind for one in found.every_layer}


def test_on_a_gpu_nothing_is_said():
    with pytest.raises(ValueError, match="does not time nodes on a GPU"):
        explain_graph(b"", dict, Pair("loop", "cuda:0", "onnxruntime", "f32"), 10**12, [])


def test_times_in_whole_microseconds_may_stand_out_by_one():
    outer, inner, after = {"ts": 0, "dur": 10}, {"ts": 5, "dur": 6}, {"ts": 9, "dur": 4}
    assert [self_us for _, self_us in self_times_us([outer, inner])] == [4, 6]
    assert [self_us for _, self_us in self_times_us([outer, after])] == [10, 4]


def test_the_times_of_all_events_add_up_to_those_of_the_outermost():
    rng = np.random.default_rng(0)
    for _ in range(200):
        cuts = np.unique(rng.integers(0, 1000, 12))
        events = [{"ts": int(a), "dur": int(b - a)} for a, b in itertools.pairwise(cuts)]
        events += [{"ts": int(cuts[0]), "dur": int(cuts[-1] - cuts[0])}, {"ts": int(cuts[0]), "dur": 1000}]
        assert sum(self_us for _, self_us in self_times_us(events)) == 1000


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "flop"),
    [
        ("MatMul", [(8, 128, 64), (64, 32)], [(8, 128, 32)], 2 * 8 * 128 * 32 * 64),
        ("Gemm", [(64, 8), (32,)], [(8, 32)], 2 * 8 * 32 * 64),  # transposed, its weights packed
        ("Conv", [(1, 8, 9, 9), (16, 4, 3, 3), (16,)], [(1, 16, 7, 7)], 2 * 16 * 49 * 4 * 9),
        ("QLinearConv", [(1, 8, 9, 9), (), (), (16, 8, 3, 3)], [(1, 16, 7, 7)], 2 * 16 * 49 * 8 * 9),
        ("ConvTranspose", [(1, 8, 4, 4), (8, 3, 2, 2)], [(1, 3, 8, 8)], 2 * 8 * 16 * 3 * 4),
        ("LSTM", [(7, 2, 10)], [(7, 1, 2, 20), (1, 2, 20), (1, 2, 20)], 2 * 7 * 2 * 4 * 20 * 30),
        ("Conv", [(1, 8, 9, 9), (16,)], [(1, 16, 7, 7)], 0),  # its weights packed: not known
        ("Relu", [(8, 8)], [(8, 8)], 0),
        ("Shape", [(8, 8)], [()], 0),
    ],
)
def test_flop_by_shapes(kind, inputs, outputs, flop):
    assert node_flop(kind, inputs, outputs) == flop


def test_packed_weights_are_counted_where_the_profile_leaves_them_out():
    assert packed_bytes("Gemm", [(1, 2048), (1000,)], [(1, 1000)]) == 4 * 2048 * 1000
    assert packed_bytes("DynamicQuantizeMatMul", [(1, 64)], [(1, 32)]) == 64 * 32
    assert packed_bytes("MatMul", [(8, 64), (64, 32)], [(8, 32)]) == 0
    assert packed_bytes("Relu", [(8, 64)], [(8, 64)]) == 0


def test_what_should_relieve_a_graph_is_measured_too(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3}, raising=False)
    request = ask_suite(["onnx/resnet50"], devices=["cpu:1"], proves=True)
    settings = [(pair.device, pair.precision) for pair in request.pairs]
    assert settings == [("cpu:1", "f32"), ("cpu:4", "f32"), ("cpu:1", "int8")]


@pytest.mark.parametrize("how", ["weights as nodes", "weights that are no inputs, of an old version"])
def test_graphs_as_exporters_write_them_are_quantised(tmp_path, how):
    name = "onnx/squeezenet"
    if how == "weights as nodes":
        constant = onnx.helper.make_node("Constant", [], ["w"], "constant", value=weight("w", (64, 32)))
        product = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "product")
        name = save(tmp_path / "constant.onnx", [constant, product], (8, 64), (8, 32))
    subject = open_subject(name, counts=False)
    inputs, runtime = subject.inputs(1), RUNTIMES["onnxruntime"]
    exact, quantised = (runtime.prepare(subject.network, "cpu:1", kind).run(inputs)[0] for kind in ("f32", "int8"))
    assert not np.array_equal(exact, quantised)
    assert np.abs(exact - quantised).max() < 0.1 * np.abs(exact).max()
