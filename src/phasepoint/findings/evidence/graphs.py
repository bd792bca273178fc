"""The compiled programs that ran in captured steps, as graphs of their instructions."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.findings.evidence.device_ops import OpKind, read_device_ops
from phasepoint.findings.view import FindingsView

ProgramId = tuple[int, int, int]
"""Host, attempt and the program's id there."""

_COLUMNS = (
    *("computation", "op", "opcode", "category", "shape", "operands", "calls", "is_root", "flop", "bytes"),
    *("transcendentals", "op_name", "source_file", "source_line"),
)


@dataclass(frozen=True, slots=True)
class Node:
    """One instruction; see the columns of `instructions` in core/tables.py."""

    computation: str
    op: str
    opcode: str
    category: str
    shape: str
    operands: tuple[str, ...]
    calls: tuple[str, ...]
    is_root: bool
    flop: int | None
    bytes: int | None
    transcendentals: int | None
    op_name: str | None
    source_file: str | None
    source_line: int | None

    @property
    def source(self) -> str | None:
        """The user's line: `train.py:12`; None where the compiler put the instruction in."""
        return None if self.source_file is None else f"{self.source_file}:{self.source_line}"


@dataclass(frozen=True, eq=False)
class ProgramGraph:
    """One program.

    Attributes:
        nodes: by instruction name, which is unique in a program.
        bodies: computation → its instructions, in the program's order.
    """

    nodes: Mapping[str, Node]
    bodies: Mapping[str, tuple[Node, ...]]

    def inside(self, node: Node) -> tuple[Node, ...]:
        """The instructions that a fusion or call holds, at any depth; the instruction itself where it holds none."""
        if not node.calls:
            return (node,)
        found: list[Node] = []
        waiting, seen = list(node.calls), set(node.calls)
        while waiting:
            for one in self.bodies.get(waiting.pop(), ()):
                found.append(one)
                fresh = [name for name in one.calls if name not in seen]
                seen.update(fresh)
                waiting += fresh
        return tuple(found)


def read_graphs(view: FindingsView) -> dict[ProgramId, ProgramGraph]:
    """The programs that ran in captured steps, as graphs, where their instructions were recorded (JAX)."""
    kinds = view.once(read_device_ops).kinds
    wanted = {(k.host, k.attempt, k.program) for k in kinds if k.program is not None}
    if not wanted:
        return {}
    instructions = view.table("instructions")
    ids = pa.array(sorted({program for _, _, program in wanted}), pa.int64())
    rows = instructions.filter(pc.is_in(instructions.column("program"), value_set=ids))
    keys = zip(*(rows.column(name).to_pylist() for name in ("host", "attempt", "program")), strict=True)
    values = zip(*(rows.column(name).to_pylist() for name in _COLUMNS), strict=True)
    nodes: dict[ProgramId, list[Node]] = {}
    for key, value in zip(keys, values, strict=True):
        if key in wanted:
            row = dict(zip(_COLUMNS, value, strict=True))
            row |= {name: tuple(row[name] or ()) for name in ("operands", "calls")}
            nodes.setdefault(key, []).append(Node(**row))
    graphs = {}
    for key, mine in nodes.items():
        bodies: dict[str, list[Node]] = {}
        for node in mine:
            bodies.setdefault(node.computation, []).append(node)
        by_name = {name: tuple(body) for name, body in bodies.items()}
        graphs[key] = ProgramGraph({node.op: node for node in mine}, by_name)
    return graphs


def graph_of(view: FindingsView, kind: OpKind) -> ProgramGraph | None:
    """The graph of the program in which an op ran; None where it is not known."""
    if kind.program is None:
        return None
    return view.once(read_graphs).get((kind.host, kind.attempt, kind.program))
