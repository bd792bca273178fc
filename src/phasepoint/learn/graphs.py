"""A kernel as a graph of numbers: what a network is fed, and what the analytic model computes with.

`FEATURISER_VERSION` is stored with every corpus and model; it changes whenever a number here changes its meaning.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Float32s, Int32s
from phasepoint.learn.graph_features import node_rows, work_of_nodes
from phasepoint.learn.kernel_features import KERNEL_COLUMN_OF, KERNEL_FEATURE_NAMES, KERNEL_FLAGS, class_of, kernel_row
from phasepoint.learn.kernel_nodes import Nodes, nodes_of_kernel
from phasepoint.learn.kernels import Kernel
from phasepoint.learn.node_feature_names import NODE_FEATURE_NAMES, NODE_FLAGS
from phasepoint.learn.opcodes import COLLECTIVE, OPCODE_IDS, OPCODES
from phasepoint.sources.hlo_work import Work

FEATURISER_VERSION = 1

NODE_FEATURES, KERNEL_FEATURES = len(NODE_FEATURE_NAMES), len(KERNEL_FEATURE_NAMES)

KINDS = (
    *("convolution", "dot", "custom-call", "collective", "sort", "indexed", "reduce", "loop-fusion", "copy", "other"),
)
"""Kinds of kernel, the decisive one first: a fusion with a dot in it is a dot, whatever else it does."""

__all__ = [
    "FEATURISER_VERSION",
    "KERNEL_COLUMN_OF",
    "KERNEL_FEATURES",
    "KERNEL_FEATURE_NAMES",
    "KINDS",
    "NODE_FEATURES",
    "NODE_FEATURE_NAMES",
    "OPCODES",
    "EncodedGraph",
    "KernelGraph",
    "encode_config",
    "encode_features",
    "graph_of_kernel",
    "kind_of_nodes",
]


@dataclass(frozen=True, eq=False)
class KernelGraph:
    """One kernel.

    Attributes:
        fingerprint: of what it computes.
        kind: one of `KINDS`.
        opcodes: number of each node's opcode in `OPCODES`, 0 unknown; int32 [n]; operands before users, root last.
        node_features: raw, float32 [n, NODE_FEATURES], columns `NODE_FEATURE_NAMES`.
        edges: (producer, consumer), int32 [e, 2], in the order of the consumers' operands.
        kernel_features: raw, float32 [KERNEL_FEATURES], entries `KERNEL_FEATURE_NAMES`.
        config_features: tile or configuration of a variant, float32 [c]; None where there are no variants.
        notes: what the features do not know.
    """

    fingerprint: str
    kind: str
    opcodes: Int32s
    node_features: Float32s
    edges: Int32s
    kernel_features: Float32s
    config_features: Float32s | None = None
    notes: tuple[str, ...] = ()

    def feature(self, name: str) -> float:
        """One kernel feature by its name."""
        return float(self.kernel_features[KERNEL_COLUMN_OF[name]])


@dataclass(frozen=True, eq=False)
class EncodedGraph:
    """What networks are fed: sizes as log(1 + x), flags as they are.

    Attributes:
        nodes: float32 [n, NODE_FEATURES].
        kernel: float32 [KERNEL_FEATURES].
    """

    nodes: Float32s
    kernel: Float32s


def graph_of_kernel(kernel: Kernel, *, config: Sequence[float] | None = None) -> KernelGraph:
    """The features of a kernel.

    Nothing in a module makes it fail: what is not known (opcodes, dynamic shapes, custom calls) is 0 and in the notes.

    Args:
        kernel: from `kernels_of_module`.
        config: features of a variant of it, such as a tile.
    """
    nodes = kernel.nodes or nodes_of_kernel(kernel.instruction)
    work = work_of_nodes(nodes)
    rows = node_rows(nodes, work)
    row = kernel_row(kernel.instruction, nodes, rows, work, locality=kernel.locality)
    edges = [(place, consumer) for consumer, node in enumerate(nodes) for place in node.operands]
    return KernelGraph(
        kernel.fingerprint,
        kind_of_nodes(nodes),
        np.array([OPCODE_IDS.get(node.opcode, 0) for node in nodes], np.int32),
        rows,
        np.array(edges, np.int32).reshape(-1, 2),
        row,
        None if config is None else np.asarray(config, np.float32),
        (*kernel.notes, *_notes(nodes, work, row)),
    )


def kind_of_nodes(nodes: Nodes) -> str:
    """The kind of kernel that some nodes make: that of the node which decides its cost."""
    opcodes = {node.opcode for node in nodes}
    classes = {class_of(opcode) for opcode in opcodes}
    found = (
        ("convolution", "convolution" in classes),
        ("dot", "matrix" in classes),
        ("custom-call", "custom-call" in opcodes),
        ("collective", bool(opcodes & COLLECTIVE)),
        ("sort", bool(opcodes & {"sort", "topk"})),
        ("indexed", "indexed" in classes),
        ("reduce", "reducing" in classes),
        ("loop-fusion", bool(classes & {"elementwise", "transcendental"})),
        ("copy", classes <= {"movement"}),
    )
    return next((kind for kind, present in found if present), "other")


def _notes(nodes: Nodes, work: list[Work], row: Float32s) -> tuple[str, ...]:
    unknown = sorted({node.opcode for node in nodes if node.opcode not in OPCODE_IDS})
    notes = [f"opcode {opcode!r} is not known" for opcode in unknown]
    for node, one in zip(nodes, work, strict=True):
        if one.flop is not None or node.instruction is None:
            continue
        if node.opcode == "custom-call":
            notes.append(f"operations of custom call {node.instruction.proto.custom_call_target!r} are not known")
        else:
            notes.append(f"operations of {node.opcode} are not known")
    if row[KERNEL_COLUMN_OF["is_dynamic"]]:
        notes.append("a shape is dynamic: its bound is taken for its size")
    return tuple(dict.fromkeys(notes))


def encode_features(graph: KernelGraph) -> EncodedGraph:
    """The features of a graph on scales that a network can learn from."""
    return EncodedGraph(_encode(graph.node_features, NODE_FLAGS), _encode(graph.kernel_features, KERNEL_FLAGS))


def encode_config(config: npt.ArrayLike) -> Float32s:
    """Configuration features as log(1 + x), the sign kept."""
    values = np.asarray(config, np.float32)
    return np.sign(values) * np.log1p(np.abs(values))


def _encode(values: Float32s, flags: npt.NDArray[np.bool_]) -> Float32s:
    return np.where(flags, values, np.sign(values) * np.log1p(np.abs(values))).astype(np.float32)
