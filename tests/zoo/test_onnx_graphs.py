"""ONNX graphs: what they hold and take, counted by hand; what is broken or hostile; those that packages ship."""

import numpy as np
import pytest

from phasepoint.zoo.graphs.inputs import make_graph_inputs
from phasepoint.zoo.graphs.onnx_graph import load_graph
from phasepoint.zoo.graphs.packaged import packaged_graphs

onnx = pytest.importorskip("onnx")


def write_graph(path, nodes, weights, inputs, *, rank=2):
    from onnx import TensorProto, helper, numpy_helper

    made = helper.make_graph(
        [helper.make_node(kind, names, results, **options) for kind, names, results, options in nodes],
        "made",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_counts_are_those_by_hand(tmp_path):
    """A convolution with stride and groups, a product, a dense layer."""
    random = np.random.default_rng(0)
    weights = {
        "k": random.standard_normal((8, 2, 3, 3)).astype(np.float32),
        "m": random.standard_normal((16, 16)).astype(np.float32),
        "g": random.standard_normal((10, 8 * 16 * 16)).astype(np.float32),
        "b": random.standard_normal(10).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "k"], ["c"], {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": 2}),
        ("MatMul", ["c", "m"], ["p"], {}),
        ("Flatten", ["p"], ["f"], {}),
        ("Gemm", ["f", "g", "b"], ["y"], {"transB": 1}),
    ]
    path = write_graph(tmp_path / "made.onnx", nodes, weights, {"x": ["n", 4, 32, 32]})
    loaded = load_graph(path, {})
    assert loaded.params == 8 * 2 * 9 + 16 * 16 + 10 * 2048 + 10
    assert loaded.weight_bytes == 4 * loaded.params
    assert loaded.macs == 8 * 16 * 16 * (2 * 9) + 8 * 16 * 16 * 16 + 10 * 2048
    (one,) = loaded.inputs
    assert (one.name, one.shape, one.dtype, one.has_batch) == ("x", (1, 4, 32, 32), "float32", True)
    assert make_graph_inputs(loaded.inputs, 5)["x"].shape == (5, 4, 32, 32)
    assert loaded.note == ""


def test_weights_that_are_nodes_count_in_branches_too_and_where_the_format_is_old(tmp_path):
    from onnx import TensorProto, helper, numpy_helper

    def made(node, outputs, nodes=()):
        return helper.make_graph([*nodes, node], "made", [], [helper.make_tensor_value_info(outputs, 1, [None, None])])

    weight = numpy_helper.from_array(np.ones((16, 8), np.float32), "w")
    constant = helper.make_node("Constant", [], ["w"], value=weight)
    branch = made(helper.make_node("MatMul", ["x", "w"], ["y"]), "y", [constant])
    graph = made(helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch), "y")
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16]))
    graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "if.onnx")
    loaded = load_graph(tmp_path / "if.onnx", {})
    assert (loaded.params, loaded.weight_bytes, loaded.macs) == (2 * 16 * 8, 4 * 2 * 16 * 8, None)
    nodes = [("ConstantOfShape", ["s"], ["w"], {}), ("MatMul", ["x", "w"], ["y"], {})]
    path = write_graph(tmp_path / "old.onnx", nodes, {"s": np.array([16, 8])}, {"x": [1, 16]})
    old = onnx.load(path)
    old.ir_version = 3
    old.graph.input.append(helper.make_tensor_value_info("s", TensorProto.INT64, [2]))
    onnx.save(old, path)
    loaded = load_graph(path, {})
    assert (loaded.params, loaded.macs) == (16 * 8, 16 * 8)
    assert loaded.note == "1 constant weights were drawn anew"


def test_open_dimensions_are_filled_in_and_told(tmp_path):
    nodes = [("Relu", ["x"], ["y"], {})]
    path = write_graph(tmp_path / "open.onnx", nodes, {}, {"x": [None, 3, None, None]}, rank=4)
    loaded = load_graph(path, {})
    assert loaded.inputs[0].shape == (1, 3, 224, 224)
    assert loaded.note == "open dimensions were taken so: x as 1×3×224×224"
    assert load_graph(path, {"x": (1, 3, 48, 320)}).note == ""
    assert load_graph(path, {"x": (1, 3, 48, 320)}).inputs[0].shape == (1, 3, 48, 320)


def test_weights_that_are_one_number_are_drawn_anew(tmp_path):
    from onnx import numpy_helper

    weights = {"shape": np.array([32, 64], np.int64)}
    value = numpy_helper.from_array(np.array([0.02], np.float32))
    nodes = [("ConstantOfShape", ["shape"], ["w"], {"value": value}), ("MatMul", ["x", "w"], ["y"], {})]
    loaded = load_graph(write_graph(tmp_path / "light.onnx", nodes, weights, {"x": [1, 32]}), {})
    assert loaded.note == "1 constant weights were drawn anew"
    assert loaded.params == 32 * 64
    made = onnx.load_from_string(loaded.source)
    assert [node.op_type for node in made.graph.node] == ["MatMul"]
    drawn = numpy_helper.to_array(made.graph.initializer[-1])
    assert drawn.std() == pytest.approx(64**-0.5, rel=0.1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is no valid ONNX graph"),
        (b"\x08not a graph at all", r"is no (ONNX file|valid ONNX graph)"),
        (b"\xff" * 4096, "is no ONNX file"),
    ],
)
def test_what_is_no_graph_is_said(tmp_path, data, message):
    (tmp_path / "broken.onnx").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        load_graph(tmp_path / "broken.onnx", {})


def test_a_string_input_is_said(tmp_path):
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "words",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [1])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [1])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "words.onnx")
    with pytest.raises(ValueError, match="input 'x' is no array of numbers"):
        load_graph(tmp_path / "words.onnx", {})


def test_graphs_that_packages_ship_run():
    """Those of the onnx package are here at least; each runs once, without denormal or infinite numbers."""
    onnxruntime = pytest.importorskip("onnxruntime")
    graphs = packaged_graphs()
    assert sum(name.startswith("onnx/") for name in graphs) >= 8
    loaded = load_graph(graphs["onnx/squeezenet"].path, {})
    assert loaded.params == pytest.approx(1.24e6, rel=0.01)  # Iandola et al. 2016, table 2: 1.24 million
    session = onnxruntime.InferenceSession(loaded.source, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, make_graph_inputs(loaded.inputs, 1))
    assert np.isfinite(output).all()
    assert output.std() > 0
