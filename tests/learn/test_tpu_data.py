"""TpuGraphs' own files: what is read, the graphs against the protobuf's, the error of the choices."""

import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from phasepoint.hlo.module import parse_module_proto
from phasepoint.hlo.schema import load_schema
from phasepoint.learn.choosing.tpu_tiles import (
    default_choices,
    evaluate,
    read_tile_kernels,
    read_tuned_kernels,
    train,
)
from phasepoint.learn.hlo_graph.graphs import NODE_FEATURE_NAMES, OPCODES, graph_of_kernel, graph_of_program
from phasepoint.learn.hlo_graph.kernels import kernels_of_module

pytestmark = pytest.mark.data

THEIR_OPCODES = {
    **{2: "add", 4: "after-all", 12: "bitcast-convert", 13: "broadcast", 19: "count-leading-zeros", 20: "compare"},
    **{24: "constant", 25: "convert", 26: "convolution", 31: "custom-call", 32: "divide", 34: "dot"},
    **{37: "exponential", 45: "get-tuple-element", 47: "infeed", 48: "iota", 50: "log", 52: "and", 54: "or"},
    **{57: "maximum", 59: "multiply", 60: "negate", 61: "outfeed", 63: "parameter", 66: "power", 70: "reduce"},
    **{72: "reduce-window", 75: "reshape", 77: "rng", 83: "select", 84: "select-and-scatter", 87: "shift-left"},
    **{89: "shift-right-logical", 95: "subtract", 100: "tuple", 102: "while"},
}
"""Numbers of TpuGraphs' arrays, its own list and not XLA's; the ones that `alexnet_layout.npz` holds."""


@pytest.fixture(scope="module")
def folder():
    found = Path(os.environ.get("PHASEPOINT_DATA", "")) / "learn" / "tpu"
    if not os.environ.get("PHASEPOINT_DATA") or not (found / "op_tuning_data.pb").exists():
        pytest.skip("PHASEPOINT_DATA does not name a folder with learn/tpu")
    return found


def raw_modules(path, message):
    """The messages themselves, read without our reader."""
    data = load_schema("tpu_graphs")[message]()
    data.ParseFromString(path.read_bytes())
    tuned = data.modules if message == "TuningData" else [data]
    for one in tuned:
        module = load_schema("hlo")["HloModuleProto"]()
        module.ParseFromString(one.module)
        yield module


def raw_graph(module):
    """Opcodes and edges of a message, by instruction names: operand → user, callee's root → caller."""
    ids = {one.id: one.name for computation in module.computations for one in computation.instructions}
    roots = {computation.id: computation.root_id for computation in module.computations}
    opcodes, edges = Counter(), Counter()
    for computation in module.computations:
        for one in computation.instructions:
            opcodes[one.opcode] += 1
            sources = {*one.operand_ids, *(roots[called] for called in one.called_computation_ids)}
            edges.update((ids[source], one.name) for source in sources)
    return opcodes, edges


def compare_whole(module, raw):
    graph = graph_of_program(module)
    names = [one.name for computation in module.computations for one in computation.instructions]
    opcodes, edges = raw_graph(raw)
    assert Counter(OPCODES[one] for one in graph.opcodes) == opcodes
    assert Counter((names[source], names[target]) for source, target in graph.edges) == edges
    dims = {one.name: tuple(one.shape.dimensions) for c in raw.computations for one in c.instructions}
    at = NODE_FEATURE_NAMES.index
    for name, row in zip(names, graph.node_features, strict=True):
        if dims[name]:
            assert row[at("dim_sum")] == sum(dims[name])
            assert row[at("elements")] == np.float32(np.prod(dims[name], dtype=np.float64))
    return graph


def test_kernels_are_graphs_like_their_messages(folder):
    path = folder / "op_tuning_data.pb"
    tuned = read_tuned_kernels(path)
    assert (len(tuned), sum(len(one.runs) for one in tuned)) == (15, 754)
    assert sum(run.time_ps is not None for one in tuned for run in one.runs) == 752
    for one, raw in zip(tuned, raw_modules(path, "TuningData"), strict=True):
        graph = compare_whole(one.module, raw)
        assert graph.notes == ()
        (kernel,) = kernels_of_module(one.module).kernels
        own = graph_of_kernel(kernel)
        assert not (own.opcodes == 0).any()
        assert own.notes == ()
        assert own.edges[:, 0].max(initial=-1) < len(own.opcodes)
        assert len(own.opcodes) == raw_kernel_nodes(raw)


def raw_kernel_nodes(raw):
    """Values of the kernel alone: nested fusions opened, their parameters and the fusions themselves gone."""
    by_id = {computation.id: computation for computation in raw.computations}
    entry = by_id[raw.entry_computation_id]
    root = next(one for one in entry.instructions if one.id == entry.root_id)
    if root.opcode != "fusion":
        return 1 + len(set(root.operand_ids))

    def count(computation, nested):
        total = 0
        for one in computation.instructions:
            if one.opcode == "fusion":
                total += count(by_id[one.called_computation_ids[0]], True)
            elif not (nested and one.opcode == "parameter"):
                total += 1
        return total

    return count(by_id[root.called_computation_ids[0]], False)


def test_a_whole_program_is_a_graph_like_its_message(folder):
    path = folder / "module_tuning_data_layout.pb"
    (raw,) = raw_modules(path, "ModuleTuningData")
    graph = compare_whole(parse_module_proto(raw.SerializeToString()), raw)
    assert len(graph.opcodes) == 3163
    assert not (graph.opcodes == 0).any()


def test_their_arrays_hold_only_opcodes_that_are_known(folder):
    stored = np.load(folder / "alexnet_layout.npz", allow_pickle=False)
    names = {THEIR_OPCODES[number] for number in set(stored["node_opcode"].tolist())}
    assert names <= set(OPCODES)
    features, edges = stored["node_feat"], stored["edge_index"]
    assert (len(features), len(edges)) == (372, 597)
    assert (edges[:, 0] > edges[:, 1]).all()  # (user, operand): ours are (operand, user)
    four = features[(features[:, 8:12] > 0).all(axis=1)]  # columns 8 to 13: four dimensions, their sum and product
    np.testing.assert_array_equal(four[:, 12], four[:, 8:12].sum(axis=1))
    np.testing.assert_array_equal(four[:, 13], four[:, 8:12].prod(axis=1))


def test_choices_of_a_left_out_kernel(folder):
    kernels = read_tile_kernels(folder)
    assert default_choices(kernels).tile_size_error == pytest.approx(0.0716, abs=1e-4)
    seen = []
    model = train(folder, seed=0, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (15, 15)
    assert all(a < b for a, b in pairwise(seen))
    assert model.card["errors"]["tile_size_error"] <= 0.06
    rows = {row.group: row for row in evaluate(model, folder, seed=0, progress=lambda *_: None).rows}
    assert rows["all: tile-size error"].regret == model.card["errors"]["tile_size_error"]
    assert rows["all with known tiles: tile-size error"].n == 12
    assert rows["all with known tiles: tile-size error"].regret < 0.01
    assert rows["fusion.191"].n == 579
