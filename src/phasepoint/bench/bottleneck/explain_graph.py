"""What holds back a graph that ONNX Runtime runs, from the runtime's own times of its nodes.

What the device does at most is measured as ONNX Runtime runs on it: a product of matrices, and one operation on each
number of a large array. What any node takes before it works is measured on one number.
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
    rates, tiny_us = _measure_rates(pair)
    session, inputs = make_session(network, pair.device, pair.precision), inputs_of(1)
    beside_ns: list[int] = []

    def between() -> None:
        beside_ns.append(best_ns(lambda: session.run(None, inputs), lambda: None, 1))

    operations = _time_nodes(network, pair, inputs, tiny_us, between)
    worked_ps = sum(one.work_ps for one in operations)
    ratios: list[float | None] = []
    for other in alternatives:
        try:
            setting = msgspec.structs.replace(pair, device=f"cpu:{other.threads}", precision=other.precision)
            changed = _time_nodes(network, setting, inputs_of(other.batch), tiny_us)
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


def _time_nodes(
    network: Any, pair: Pair, inputs: Any, tiny_us: float, between: Callable[[], object] = lambda: None
) -> list[TimedOperation]:
    """The nodes of a graph as they ran, in their order."""
    runs = _profile(network, pair, inputs, between)[1:]
    rows = []
    for name, node in runs[-1].items():
        if node.kind in _BRANCHES:
            continue
        taken_us = median(run[name].dur_us - tiny_us * run[name].calls for run in runs if name in run)
        work_ps = max(int(taken_us * PS_PER_US), 0)
        rows.append(TimedOperation(node.kind, name, node.kind, work_ps, node.flop, node.moved_bytes))
    return rows


def _profile(
    network: Any, pair: Pair, inputs: Any, between: Callable[[], object] = lambda: None
) -> list[dict[str, _Node]]:
    """By run, and by a node's name, as the runtime's profiler tells; `between` is called before each run."""
    with tempfile.TemporaryDirectory() as folder:
        session = make_session(network, pair.device, pair.precision, Path(folder) / "profile")
        for _ in range(RUNS + 1):
            between()
            session.run(None, inputs)
        events = json.loads(Path(session.end_profiling()).read_bytes())
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


def _measure_rates(pair: Pair) -> tuple[DeviceRates, float]:
    """What the device does at most, and what any node takes, µs: a few tenths of a second."""
    import numpy as np
    from onnx import TensorProto, checker, helper

    product, kind = ("MatMulInteger", TensorProto.UINT8) if pair.precision == "int8" else ("MatMul", TensorProto.FLOAT)
    made = TensorProto.INT32 if pair.precision == "int8" else TensorProto.FLOAT
    nodes = [helper.make_node(product, ["a", "a"], ["b"], "product"), helper.make_node("Neg", ["c"], ["d"], "copy")]
    nodes += [helper.make_node("Abs", [f"t{n}"], [f"t{n + 1}"], f"tiny{n}") for n in range(TINY_NODES)]
    given = [("a", kind, (SIDE, SIDE)), ("c", TensorProto.FLOAT, (COPIED,)), ("t0", TensorProto.FLOAT, (1,))]
    taken = [("b", made, (SIDE, SIDE)), ("d", TensorProto.FLOAT, (COPIED,))]
    taken += [(f"t{TINY_NODES}", TensorProto.FLOAT, (1,))]
    values = [[helper.make_tensor_value_info(*one) for one in side] for side in (given, taken)]
    graph = helper.make_model(
        helper.make_graph(nodes, "rates", *values), ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )
    checker.check_model(graph)
    inputs = {name: np.ones(shape, helper.tensor_dtype_to_np_dtype(of)) for name, of, shape in given}
    runs = _profile(graph.SerializeToString(), msgspec.structs.replace(pair, precision="f32"), inputs)[1:]
    product_s, copy_s = (min(run[name].dur_us for run in runs) * PS_PER_US / PS_PER_S for name in ("product", "copy"))
    tiny_us = sorted(median(run[f"tiny{n}"].dur_us for run in runs) for n in range(TINY_NODES))[MOST_TINY]
    return DeviceRates(2 * SIDE**3 / product_s, 8 * COPIED / copy_s), float(tiny_us)
