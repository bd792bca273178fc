"""The layers of a phase as a tree: what its captured steps spent in each module, in time, flop and bytes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from phasepoint.phases.op_costs import OpCost

MAX_DEPTH = 12
"""Levels of the tree; a path with more parts keeps the rest of them in its last one."""
LEAST_SHARE = 0.002
"""A node below this share of the time, the flop and the bytes is added up with its like: nobody could see it."""

NO_LAYER = "no layer recorded"
SMALLER = "smaller ones"


@dataclass(frozen=True)
class LayerNode:
    """A module, or an op in it; its figures include everything below it.

    Attributes:
        name: last part of the module path, or the op's name.
        parent: position of the node above it in the tree's nodes, None for the root, which comes first.
        is_op: whether it is an op (a leaf).
        self_ps: self time of its ops, added over devices and threads.
        flop: floating-point operations of the ops where they are known.
        bytes: bytes accessed by the ops where they are known.
    """

    name: str
    parent: int | None
    is_op: bool
    self_ps: int
    flop: int
    bytes: int


@dataclass(frozen=True)
class LayerTree:
    """The layers of one phase's captured steps.

    Attributes:
        steps: captured steps that were added up.
        nodes: root first, each after its parent, siblings by time; the children of a node add up to it.
        costs_known_ps: self time of the ops whose flop and bytes are known.
        layers_known_ps: self time of the ops whose layer is known.
    """

    steps: int
    nodes: tuple[LayerNode, ...]
    costs_known_ps: int
    layers_known_ps: int


@dataclass
class _Branch:
    """A node while the tree is being built."""

    name: str
    is_op: bool = False
    figures: list[int] = field(default_factory=lambda: [0, 0, 0])
    below: dict[tuple[str, bool], "_Branch"] = field(default_factory=dict)

    def add(self, figures: Sequence[int]) -> None:
        self.figures = [a + b for a, b in zip(self.figures, figures, strict=True)]


def build_layer_tree(costs: Sequence[OpCost], steps: int, *, root: str) -> LayerTree:
    """The tree over the ops of one phase.

    Args:
        costs: of the phase.
        steps: captured steps they were added over.
        root: name of the first node: the phase's.
    """
    top = _Branch(root)
    for cost in costs:
        figures = (cost.self_ps, cost.flop or 0, cost.bytes or 0)
        branch = top
        branch.add(figures)
        for part in _path(cost):
            branch = branch.below.setdefault((part, False), _Branch(part))
            branch.add(figures)
        branch.below.setdefault((cost.op, True), _Branch(cost.op, is_op=True)).add(figures)
    nodes: list[LayerNode] = []
    _flatten(top, None, [max(total, 1) for total in top.figures], nodes)
    known_ps = sum(cost.self_ps for cost in costs if cost.flop is not None and cost.bytes is not None)
    return LayerTree(steps, tuple(nodes), known_ps, sum(cost.self_ps for cost in costs if cost.layer))


def _path(cost: OpCost) -> list[str]:
    if not cost.layer:
        return [NO_LAYER, cost.category]
    parts = [part for part in cost.layer.split("/") if part] or [cost.layer]
    return parts if len(parts) < MAX_DEPTH else [*parts[: MAX_DEPTH - 1], "/".join(parts[MAX_DEPTH - 1 :])]


def _flatten(branch: _Branch, parent: int | None, totals: Sequence[int], nodes: list[LayerNode]) -> None:
    """Append a branch and what is below it; what is too small to see becomes one node."""
    at = len(nodes)
    nodes.append(LayerNode(branch.name, parent, branch.is_op, *branch.figures))
    below = sorted(branch.below.values(), key=lambda b: (-b.figures[0], b.name, b.is_op))
    small = [b for b in below if all(f < LEAST_SHARE * t for f, t in zip(b.figures, totals, strict=True))]
    small = small if len(small) > 1 else []
    hidden = {id(b) for b in small}
    for child in below:
        if id(child) not in hidden:
            _flatten(child, at, totals, nodes)
    if small:
        rest = _Branch(f"{len(small)} {SMALLER}", is_op=True)
        for child in small:
            rest.add(child.figures)
        nodes.append(LayerNode(rest.name, at, True, *rest.figures))
