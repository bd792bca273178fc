"""A whole program as one graph: every instruction of every computation, as TpuGraphs has it."""

import numpy as np

from phasepoint.learn.graph_features import node_rows, work_of_nodes
from phasepoint.learn.graphs import KERNEL_COLUMN_OF, KERNEL_FEATURES, KernelGraph
from phasepoint.learn.kernel_nodes import KernelNode, Nodes
from phasepoint.learn.node_rules import number
from phasepoint.learn.opcodes import OPCODE_IDS
from phasepoint.sources.hlo_cost import cost_of_module
from phasepoint.sources.hlo_fingerprint import fingerprint_module
from phasepoint.sources.hlo_module import Module


def graph_of_program(module: Module) -> KernelGraph:
    """All instructions of a program, callees before callers, the entry's last.

    An edge leads from each distinct operand to its user, and from the root of a computation to whoever calls it. Of the
    kernel features those are set that a program has: flop, transcendentals, nodes; `bytes_read` holds all its bytes.
    """
    nodes, edges = _linked(module)
    opcodes = [OPCODE_IDS.get(node.opcode, 0) for node in nodes]
    cost = cost_of_module(module)
    row = np.zeros(KERNEL_FEATURES, np.float32)
    known = {
        "flop": cost.total.flop,
        "transcendentals": cost.total.transcendentals,
        "bytes_read": cost.total.bytes,
        "nodes": len(nodes),
    }
    for name, value in known.items():
        row[KERNEL_COLUMN_OF[name]] = number(value or 0)
    unknown = sorted({node.opcode for node in nodes if node.opcode not in OPCODE_IDS})
    return KernelGraph(
        fingerprint_module(module),
        "program",
        np.array(opcodes, np.int32),
        node_rows(nodes, work_of_nodes(nodes)),
        np.array(edges, np.int32).reshape(-1, 2),
        row,
        notes=(*(f"opcode {opcode!r} is not known" for opcode in unknown), *cost.notes),
    )


def _linked(module: Module) -> tuple[Nodes, list[tuple[int, int]]]:
    places: dict[int, int] = {}
    nodes: list[KernelNode] = []
    edges: list[tuple[int, int]] = []
    for computation in module.computations:
        for one in computation.instructions:
            read = tuple([places[id(operand)] for operand in one.operands])
            roots = [places[id(called.root)] for called in one.called]
            edges += [(place, len(nodes)) for place in dict.fromkeys((*read, *roots))]
            places[id(one)] = len(nodes)
            nodes.append(KernelNode(one.opcode, one.shape, one, read))
    return tuple(nodes), edges
