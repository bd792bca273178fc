"""What holds back a graph that ONNX Runtime runs, from the runtime's own times of its nodes.

What the device does at most is measured as ONNX Runtime runs on it: a product of matrices, and one operation on each
number of a large array. What any node takes before it works is measured on one number, in turns with the graph: a
machine that becomes slower in between would make work of it.
"""

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from phasepoint.bench.bottleneck.explain import list_alternatives
from phasepoint.bench.bottleneck.operations import TimedOperation, best_ns
from phasepoint.bench.bottleneck.verdict import DeviceRates, find_bottleneck
from phasepoint.bench.runtimes.onnx_runtime import make_session
from phasepoint.bench.suite.result import Bottleneck, Pair
from phasepoint.core.units import PS_PER_NS, PS_PER_S, PS_PER_US

RUNS = 5
"""Of a graph under the runtime's profiler, after one that does not count; the median of a node's times is taken."""

SIDE, COPIED, TINY_NODES = 768, 8 << 20, 100
"""Of what the device does at most: rows of the product, numbers of the copy, nodes on one number."""

MOST_TINY = TINY_NODES * 95 // 100
"""By time, the tiny node that tells what any node takes before it works: the runtime gives whole µs, so that some of a
hundred nodes that do nothing seem to work."""

RESOLUTION_US = 1
"""Of the runtime's profiler: what a call takes above a tiny node is not told from nothing up to here."""

_PRODUCTS = frozenset({"MatMul", "FusedMatMul", "Gemm", "FusedGemm", "MatMulInteger", "MatMulIntegerToFloat"})
_PRODUCTS |= {"DynamicQuantizeMatMul", "QLinearMatMul", "QGemm"}
_CONVOLUTIONS = frozenset({"Conv", "FusedConv", "NhwcFusedConv", "ConvInteger", "QLinearConv"})
_BRANCHES = frozenset({"If", "Loop", "Scan"})
"""Nodes whose own time, without the nodes inside, is no work."""

_GATES = {"LSTM": 4, "DynamicQuantizeLSTM": 4, "GRU": 3, "RNN": 1}

Shape = tuple[int, ...]


class _Node(NamedTuple):
    """A node of a graph in one run: as often as it ran, without the nodes of its own branches and loops."""

    kind: str
    calls: int
    dur_us: int
    flop: int
    moved_bytes: int


class _Graph(NamedTuple):
    """A graph, its bytes or its path, how it is run, and what it is given."""

    network: Any
    pair: Pair
    inputs: Any


def explain_graph(
    network: Any, inputs_of: Callable[[int], Any], pair: Pair, latency_ps: int, batches: Sequence[int]
) -> Bottleneck:
    """Time a graph's nodes, and judge them by what the device does at most.

    Args:
        network: the graph's bytes, or its path.
        inputs_of: of so many samples.
        pair: how it is run.
        latency_ps: of one inference.
        batches: sizes above 1 that it may be given.

    Raises:
        ValueError: on a GPU, where the runtime tells when it started a node, and not how long the node took.
    """
    if not pair.device.startswith("cpu"):
        raise ValueError("ONNX Runtime does not time nodes on a GPU")
    alternatives = list_alternatives(pair, batches)
    rates = _measure_rates(pair)
    session, inputs = make_session(network, pair.device, pair.precision), inputs_of(1)
    beside_ns: list[int] = []

    def between() -> None:
        beside_ns.append(best_ns(lambda: session.run(None, inputs), lambda: None, 1))

    operations = _time_nodes(_Graph(network, pair, inputs), between)
    worked_ps = sum(one.work_ps for one in operations)
    ratios: list[float | None] = []
    for other in alternatives:
        try:
            setting = msgspec.structs.replace(pair, device=f"cpu:{other.threads}", precision=other.precision)
            changed = _time_nodes(_Graph(network, setting, inputs_of(other.batch)))
            ratios.append(sum(one.work_ps for one in changed) / worked_ps if worked_ps else None)
        except Exception:  # noqa: BLE001 - whatever the library raises in a setting that it cannot run
            ratios.append(None)
    told = [number for number, ratio in enumerate(ratios) if ratio is not None]
    return find_bottleneck(
        operations,
        latency_ps,
        rates,
        [alternatives[number] for number in told],
        {place: [ratios[number] for number in told] for place in range(len(operations))},
        beside_ps=int(median(beside_ns[1:])) * PS_PER_NS,
    )


def _time_nodes(graph: _Graph, between: Callable[[], object] = lambda: None) -> list[TimedOperation]:
    """The nodes of a graph as they ran, in their order."""
    runs, beside = (one[1:] for one in _profile([graph, _tiny_graph(graph.pair)], between))
    tiny_us = [sorted(node.dur_us for node in run.values())[MOST_TINY] for run in beside]
    rows = []
    for name, node in runs[-1].items():
        if node.kind in _BRANCHES:
            continue
        pairs = zip(runs, tiny_us, strict=True)
        taken_us = median(run[name].dur_us - tiny * run[name].calls for run, tiny in pairs if name in run)
        work_ps = int(taken_us * PS_PER_US) if taken_us > RESOLUTION_US * node.calls else 0
        rows.append(TimedOperation(node.kind, name, node.kind, work_ps, node.flop, node.moved_bytes))
    return rows


def _profile(graphs: Sequence[_Graph], between: Callable[[], object] = lambda: None) -> list[list[dict[str, _Node]]]:
    """By graph, run and a node's name, as the runtime's profiler tells; they run in turns, `between` before each."""
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / f"profile{number}" for number in range(len(graphs))]
        sessions = [
            make_session(one.network, one.pair.device, one.pair.precision, place)
            for one, place in zip(graphs, places, strict=True)
        ]
        for _ in range(RUNS + 1):
            between()
            for session, one in zip(sessions, graphs, strict=True):
                session.run(None, one.inputs)
        return [_read_runs(json.loads(Path(session.end_profiling()).read_bytes())) for session in sessions]


def _read_runs(events: Sequence[Mapping[str, Any]]) -> list[dict[str, _Node]]:
    """By run, and by a node's name, from a profile of one graph."""
    ends_us = sorted(one["ts"] + one["dur"] for one in events if one["name"] == "model_run")
    runs: list[dict[str, _Node]] = [{} for _ in ends_us]
    for event, self_us in self_times_us([one for one in events if one["cat"] == "Node"]):
        name, args = event["name"].removesuffix("_kernel_time"), event["args"]
        run = runs[next(number for number, end_us in enumerate(ends_us) if event["ts"] <= end_us)]
        before = run.get(name, _Node(args["op_name"], 0, 0, 0, 0))
        told = (args[f"{side}_type_shape"] for side in ("input", "output"))
        shapes = [[tuple(shape) for one in side for shape in one.values()] for side in told]
        sizes = [int(args[key]) for key in ("activation_size", "parameter_size", "output_size")]
        run[name] = _Node(
            before.kind,
            before.calls + 1,
            before.dur_us + self_us,
            before.flop + node_flop(before.kind, *shapes),
            before.moved_bytes + sum(sizes) + packed_bytes(before.kind, *shapes),
        )
    return runs


def self_times_us(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Each event with its time less that of the events inside it, in µs: a loop's nodes lie in the loop's.

    Args:
        nodes: events with `ts` and `dur`, µs.

    Example:
        >>> [self_us for _, self_us in self_times_us([{"ts": 2, "dur": 3}, {"ts": 0, "dur": 9}])]
        [6, 3]
    """
    inner_us: dict[int, int] = defaultdict(int)
    ordered, open_ = sorted(nodes, key=lambda one: (one["ts"], -one["dur"])), list[Mapping[str, Any]]()
    for event in ordered:
        while open_ and 2 * (open_[-1]["ts"] + open_[-1]["dur"]) <= 2 * event["ts"] + event["dur"]:
            open_.pop()  # whole µs: what lies inside by its middle is inside
        if open_:
            inner_us[id(open_[-1])] += event["dur"]
        open_.append(event)
    for event in ordered:
        yield event, max(event["dur"] - inner_us[id(event)], 0)


def node_flop(kind: str, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Of a node, by its shapes; 0 of what is neither a product, a convolution nor a recurrent layer.

    The runtime tells nothing of weights that it has packed, so they are left out here where the rest suffices.

    Args:
        kind: `Conv`, `Gemm`, …
        inputs, outputs: shapes, without those that are not told.

    Example:
        >>> node_flop("Gemm", [(1, 2048), (1000,)], [(1, 1000)])
        4096000
    """
    first, out = (inputs or [()])[0], (outputs or [()])[0]
    if not first or not out:
        return 0
    if kind in _PRODUCTS:
        return 2 * prod(out) * _inner(kind, first, out)
    weights = next((shape for shape in inputs[1:] if len(shape) == len(first)), ())
    if kind in _CONVOLUTIONS:
        return 2 * prod(out) * prod(weights[1:]) if weights else 0
    if kind == "ConvTranspose":
        return 2 * prod(first) * prod(weights[1:]) if weights else 0
    if kind in _GATES and len(first) == 3:
        state = outputs[-1]
        directions, hidden = state[-3], state[-1]
        return 2 * first[0] * first[1] * directions * _GATES[kind] * hidden * (first[2] + hidden)
    return 0


def packed_bytes(kind: str, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Of a product's weights that the runtime has packed: its profile leaves them out."""
    first, out = (inputs or [()])[0], (outputs or [()])[0]
    if kind not in _PRODUCTS or not first or not out or any(len(shape) > 1 for shape in inputs[1:]):
        return 0
    width = 1 if "Integer" in kind or "Quantize" in kind or kind.startswith("Q") else 4
    return width * _inner(kind, first, out) * out[-1]


def _inner(kind: str, first: Shape, out: Shape) -> int:
    """The dimension over which a product adds up."""
    is_turned = kind in ("Gemm", "FusedGemm", "QGemm") and first[0] != out[0]
    return first[0] if is_turned else first[-1]


def _measure_rates(pair: Pair) -> DeviceRates:
    """What the device does at most: a few tenths of a second."""
    from onnx import TensorProto

    product, kind = ("MatMulInteger", TensorProto.UINT8) if pair.precision == "int8" else ("MatMul", TensorProto.FLOAT)
    made = TensorProto.INT32 if pair.precision == "int8" else TensorProto.FLOAT
    graph = _made_graph(
        pair,
        [(product, ["a", "a"], ["b"], "product"), ("Neg", ["c"], ["d"], "copy")],
        [("a", kind, (SIDE, SIDE)), ("c", TensorProto.FLOAT, (COPIED,))],
        [("b", made, (SIDE, SIDE)), ("d", TensorProto.FLOAT, (COPIED,))],
    )
    (runs,) = _profile([graph])
    product_s, copy_s = (
        min(run[name].dur_us for run in runs[1:]) * PS_PER_US / PS_PER_S for name in ("product", "copy")
    )
    return DeviceRates(2 * SIDE**3 / product_s, 8 * COPIED / copy_s)


def _tiny_graph(pair: Pair) -> _Graph:
    """Nodes on one number, one after the other."""
    from onnx import TensorProto

    nodes = [("Abs", [f"t{n}"], [f"t{n + 1}"], f"tiny{n}") for n in range(TINY_NODES)]
    first, last = ((f"t{n}", TensorProto.FLOAT, (1,)) for n in (0, TINY_NODES))
    return _made_graph(pair, nodes, [first], [last])


def _made_graph(
    pair: Pair,
    nodes: Sequence[tuple[str, list[str], list[str], str]],
    given: Sequence[tuple[str, int, Shape]],
    taken: Sequence[tuple[str, int, Shape]],
) -> _Graph:
    """Nodes (kind, inputs, outputs, name), with arrays given and taken (name, element type, shape); f32 stays f32."""
    import numpy as np
    from onnx import checker, helper

    values = [[helper.make_tensor_value_info(*one) for one in side] for side in (given, taken)]
    made = helper.make_graph([helper.make_node(*node) for node in nodes], "made", *values)
    model = helper.make_model(made, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    checker.check_model(model)
    inputs = {name: np.ones(shape, helper.tensor_dtype_to_np_dtype(of)) for name, of, shape in given}
    return _Graph(model.SerializeToString(), msgspec.structs.replace(pair, precision="f32"), inputs)
