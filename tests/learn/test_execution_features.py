import numpy as np
import pytest

from phasepoint.learn.hlo_graph.graphs import (
    EXECUTION_NAMES,
    KERNEL_FEATURE_NAMES,
    NODE_FEATURE_NAMES,
    OPCODES,
    KernelGraph,
    executed_elements,
    execution_features,
)


def graph_of(nodes, edges, **kernel):
    """Nodes as (opcode, elements, further features)."""
    features = np.zeros((len(nodes), len(NODE_FEATURE_NAMES)), np.float32)
    for row, (_, elements, more) in zip(features, nodes, strict=True):
        for name, value in {"elements": elements, **more}.items():
            row[NODE_FEATURE_NAMES.index(name)] = value
    row = np.zeros(len(KERNEL_FEATURE_NAMES), np.float32)
    for name, value in kernel.items():
        row[KERNEL_FEATURE_NAMES.index(name)] = value
    opcodes = np.array([OPCODES.index(opcode) for opcode, *_ in nodes], np.int32)
    return KernelGraph("0", "loop-fusion", opcodes, features, np.array(edges, np.int32).reshape(-1, 2), row)


def test_behind_an_outer_broadcast_work_is_done_again():
    outer = [("parameter", 8, {}), ("exponential", 8, {}), ("broadcast", 80, {"minor_size": 8}), ("negate", 80, {})]
    assert executed_elements(graph_of(outer, [(0, 1), (1, 2), (2, 3)])).tolist() == [80, 80, 80, 80]


def test_behind_an_inner_broadcast_it_is_done_once_a_row():
    more = {"minor_size": 10, "broadcasts_minor": 1}
    inner = [("parameter", 8, {}), ("exponential", 8, {}), ("broadcast", 80, more), ("negate", 80, {})]
    assert executed_elements(graph_of(inner, [(0, 1), (1, 2), (2, 3)])).tolist() == [8, 8, 80, 80]


def test_readers_at_one_place_share_and_shifted_ones_do_not():
    shared = [("tanh", 100, {}), ("negate", 100, {}), ("abs", 100, {}), ("add", 100, {})]
    assert executed_elements(graph_of(shared, [(0, 1), (0, 2), (1, 3), (2, 3)]))[0] == 100
    stencil = [("tanh", 100, {}), ("slice", 90, {}), ("slice", 90, {}), ("add", 90, {})]
    assert executed_elements(graph_of(stencil, [(0, 1), (0, 2), (1, 3), (2, 3)]))[0] == 180


def test_a_reduction_reads_what_it_reduces():
    reduced = [("tanh", 600, {}), ("constant", 1, {}), ("reduce", 6, {})]
    assert executed_elements(graph_of(reduced, [(0, 2), (1, 2)])).tolist() == [600, 6, 6]


def test_a_librarys_kernel_computes_each_node_once():
    nodes = [("exponential", 8, {}), ("broadcast", 80, {"minor_size": 8}), ("negate", 80, {})]
    assert executed_elements(graph_of(nodes, [(0, 1), (1, 2)], is_custom_fusion=1)).tolist() == [8, 80, 80]


def test_columns():
    nodes = [
        ("parameter", 60, {"minor_size": 12}),
        ("bitcast", 60, {"minor_size": 20}),
        ("sqrt", 60, {"minor_size": 20}),
    ]
    graph = graph_of(nodes, [(0, 1), (1, 2)], output_minor_size=20, output_elements=60, dot_k=32)
    row = dict(zip(EXECUTION_NAMES, execution_features([graph])[0].tolist(), strict=True))
    assert row["executed_sqrt"] == pytest.approx(np.log1p(60))
    assert row["executed"] == pytest.approx(np.log1p(180))
    assert row["executed_reshaped"] == row["executed_awkward"] == pytest.approx(np.log1p(60))
    assert row["least_minor_size"] == pytest.approx(np.log1p(12))
    assert row["executed_ratio"] == pytest.approx(np.log1p(3))
    assert row["padding_output_minor_size"] == pytest.approx(np.log(32 / 20))
    assert (row["fits_output_minor_size"], row["fits_dot_k"], row["fits_dot_m"]) == (0, 1, 0)
