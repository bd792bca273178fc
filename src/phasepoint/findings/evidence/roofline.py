"""Matrix products that ran in captured steps: element type, dimensions, work, bytes, and the device's peaks.

And how near to its peak the device worked as a whole.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.units import PS_PER_S
from phasepoint.devices import DeviceSpec, device_spec
from phasepoint.findings.evidence.device_ops import OpKind, read_device_ops
from phasepoint.findings.evidence.graphs import Node, ProgramGraph, graph_of
from phasepoint.findings.view import FindingsView
from phasepoint.hlo.shapes import ArrayShape, parse_array

_MATRIX = frozenset({"dot", "convolution"})


@dataclass(frozen=True)
class MatrixOp:
    """An op that holds one matrix product (or convolution).

    Attributes:
        index: position of the op in `DeviceOps.kinds`.
        kind: the op.
        per_op_ps: self time of one execution, mean over the captured ones.
        element_type: of both operands, the wider of the two: f32, bf16, …
        flop: operations of one execution.
        bytes: bytes that the whole op moves in one execution, None where unknown.
        dims: batch, rows, columns and the dimension summed over; None for convolutions in space.
        spec: the device's peaks, None where they are not known.
    """

    index: int
    kind: OpKind
    per_op_ps: float
    element_type: str
    flop: int
    bytes: int | None
    dims: tuple[int, int, int, int] | None
    spec: DeviceSpec | None

    @property
    def flop_per_s(self) -> float:
        """The rate that was reached."""
        return self.flop / max(self.per_op_ps, 1.0) * PS_PER_S

    def memory_ps(self, ratio: float = 1.0) -> float:
        """How long the device's memory takes at least for so much of the op's bytes; 0 where either is unknown."""
        if self.spec is None or self.bytes is None:
            return 0.0
        return ratio * self.bytes / self.spec.memory_bytes_per_s.value * PS_PER_S


def matrix_ops(view: FindingsView) -> list[MatrixOp]:
    """All ops whose program is known and that hold exactly one product of known work."""
    ops = view.once(read_device_ops)
    per_op = ops.of_kinds(ops.self_ps) / np.maximum(ops.of_kinds(ops.count), 1)
    found = []
    for index, kind in enumerate(ops.kinds):
        graph = graph_of(view, kind)
        node = graph.nodes.get(kind.op) if graph is not None else None
        if graph is None or node is None or per_op[index] <= 0:
            continue
        products = [one for one in graph.inside(node) if _is_product(one)]
        operands = _operands(graph, products[0]) if len(products) == 1 else []
        types = [shape.element_type for shape in operands if shape is not None]
        if types and products[0].flop:
            widest = max(types, key=lambda name: int("".join(filter(str.isdigit, name)) or 0))
            work, dims = products[0].flop, _dims(graph, products[0])
            spec = spec_of(view, kind)
            found.append(MatrixOp(index, kind, float(per_op[index]), widest, work, node.bytes, dims, spec))
    return found


def spec_of(view: FindingsView, kind: OpKind) -> DeviceSpec | None:
    """The peaks of the device an op ran on; None where the table has none."""
    name = device_name(view, kind)
    return None if name is None else device_spec(name)


def device_name(view: FindingsView, kind: OpKind) -> str | None:
    """What the framework calls the device: `gpu:0 NVIDIA H200`; None where the run does not say."""
    for shard in view.analysis.run.shards:
        if (shard.host, shard.attempt) == (kind.host, kind.attempt):
            return next((name for name in shard.session.devices if name.startswith(f"{kind.device} ")), None)
    return None


def _is_product(node: Node) -> bool:
    """A product, or a library's call whose work is counted (of the custom calls only products are)."""
    return node.opcode in _MATRIX or (node.opcode == "custom-call" and bool(node.flop))


def _operands(graph: ProgramGraph, product: Node) -> list[ArrayShape | None]:
    """Shapes of the two factors, as far as the graph holds them."""
    return [parse_array(graph.nodes[op].shape) for op in product.operands[:2] if op in graph.nodes]


def _dims(graph: ProgramGraph, product: Node) -> tuple[int, int, int, int] | None:
    """Batch, M, N, K from the number of elements of operands and result and the work: 2·B·M·N·K operations."""
    shapes = _operands(graph, product)
    result = parse_array(product.shape)
    if result is None or len(shapes) < 2 or not product.flop or not result.elements:
        return None
    if product.opcode == "convolution" and len(result.dims) > 2:
        return None
    left, right = (shape.elements if shape is not None else 0 for shape in shapes)
    k, rest = divmod(product.flop, 2 * result.elements)
    if rest or not k or left % k or right % k:
        return None
    batch, rest = divmod((left // k) * (right // k), result.elements)
    if rest or not batch or (left // k) % batch or (right // k) % batch:
        return None
    return batch, left // k // batch, right // k // batch, k


LEAST_KNOWN = 0.5
"""Ratio of the ops' time whose bytes must be known: else what they reached says little of the step (a choice)."""


@dataclass(frozen=True)
class PeakShare:
    """What was reached.

    Attributes:
        ratio: of the peak, 0 to 1, over all time in which the device worked.
        is_of_memory: whether the peak is the memory's bandwidth.
    """

    ratio: float
    is_of_memory: bool


def peak_share(view: FindingsView) -> PeakShare | None:
    """What the device reached while it worked; None where its peaks, or the work of most ops, are not known.

    An op could have run in max(its products at the peak of their type, its bytes at the memory's bandwidth). Which of
    the two is longer for most of the time is the roof, and the sum of it, of the time that the ops took, the ratio.
    """
    ops = view.once(read_device_ops)
    self_ps, count = ops.of_kinds(ops.self_ps).astype(np.float64), ops.of_kinds(ops.count)
    of_compute, of_memory = np.zeros(len(ops.kinds)), np.zeros(len(ops.kinds))
    for product in matrix_ops(view):
        rate = product.spec.flop_per_s.get(product.element_type) if product.spec is not None else None
        if rate is not None:
            of_compute[product.index] = product.flop * count[product.index] / rate.value * PS_PER_S
    for index, kind in enumerate(ops.kinds):
        graph, spec = graph_of(view, kind), spec_of(view, kind)
        node = graph.nodes.get(kind.op) if graph is not None else None
        if node is not None and node.bytes is not None and spec is not None:
            of_memory[index] = node.bytes * count[index] / spec.memory_bytes_per_s.value * PS_PER_S
    known = (of_compute > 0) | (of_memory > 0)
    if not known.any() or self_ps[known].sum() < LEAST_KNOWN * self_ps.sum():
        return None
    is_of_memory = bool(self_ps[of_memory > of_compute].sum() > self_ps.sum() / 2)
    reached = float((of_memory if is_of_memory else of_compute).sum() / self_ps.sum())
    return PeakShare(reached, is_of_memory) if reached <= 1.0 else None
