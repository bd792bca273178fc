"""Graphs in TensorFlow Lite's format: what they hold and take, counted by hand; what is broken."""

import pytest

pytest.importorskip("ai_edge_litert")

from phasepoint.zoo.graphs.packaged import packaged_graphs
from phasepoint.zoo.graphs.tflite_graph import load_tflite
from zoo.tiny_tflite import CHANNELS, CLASSES, FEATURES, SIDE, write_tiny


def test_counts_are_those_by_hand(tmp_path):
    loaded = load_tflite(write_tiny(tmp_path / "tiny.tflite"))
    assert loaded.params == FEATURES * 9 * CHANNELS + FEATURES + CLASSES * SIDE * SIDE * FEATURES + CLASSES
    assert loaded.weight_bytes == 4 * loaded.params
    assert loaded.macs == SIDE * SIDE * FEATURES * 9 * CHANNELS + CLASSES * SIDE * SIDE * FEATURES
    (one,) = loaded.inputs
    assert (one.name, one.shape, one.dtype, one.has_batch) == ("x", (1, SIDE, SIDE, CHANNELS), "float32", False)


def test_an_operator_that_loops_inside_is_not_counted(tmp_path):
    from ai_edge_litert.schema_py_generated import BuiltinOperator

    assert load_tflite(write_tiny(tmp_path / "loops.tflite", first_code=BuiltinOperator.WHILE)).macs is None


def test_what_is_no_graph_is_told(tmp_path):
    path = tmp_path / "other.tflite"
    path.write_bytes(b"PK\x03\x04 no graph")
    with pytest.raises(ValueError, match=r"other.tflite is no TensorFlow Lite file: it does not have TFL3 at byte 4"):
        load_tflite(path)
    whole = write_tiny(tmp_path / "tiny.tflite").read_bytes()
    path.write_bytes(whole[:8] + b"\xff" * 64)
    with pytest.raises(ValueError, match=r"other.tflite is no TensorFlow Lite file"):
        load_tflite(path)


def test_those_that_packages_ship_are_read():
    found = {name: graph for name, graph in packaged_graphs().items() if name.endswith(".tflite")}
    if not found:
        pytest.skip("no installed package ships one")
    for graph in found.values():
        loaded = load_tflite(graph.path)
        assert loaded.params > 0
        assert loaded.macs > loaded.params
