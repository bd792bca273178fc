"""Programs drawn from a seed: kernels that have nothing to do with one another, and random graphs of operations.

The kinds of kernel that a program of kernels alone is drawn from, and how often each.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from phasepoint.zoo.generated import moving_pieces as moving
from phasepoint.zoo.generated import pieces
from phasepoint.zoo.generated.moving_pieces import TABLE_ROWS
from phasepoint.zoo.generated.pieces import KernelPiece, Rng
from phasepoint.zoo.generated.random_graphs import RandomGraph, draw_graph, net_of_graph
from phasepoint.zoo.modes import UPDATES, Program, forward_program, train_program
from phasepoint.zoo.specs import ProgramSpec, f32, i32


@dataclass(frozen=True)
class PieceKind:
    """One row of the table.

    Attributes:
        draw: draws a kernel of this kind.
        weight: how often, beside the others. Set so that a corpus of networks gets more of what networks hold few of.
    """

    draw: Callable[[Rng], KernelPiece]
    weight: float


PIECE_KINDS: Mapping[str, PieceKind] = {
    "elementwise": PieceKind(pieces.elementwise, 5),
    "dot": PieceKind(pieces.dot, 6),
    "batched-dot": PieceKind(pieces.batched_dot, 3),
    "fused-dot": PieceKind(pieces.fused_dot, 3),
    "reduction": PieceKind(pieces.reduction, 6),
    "transposition": PieceKind(pieces.transposition, 3),
    "broadcast": PieceKind(pieces.broadcast, 3),
    "normalisation": PieceKind(pieces.normalisation, 2),
    "convolution": PieceKind(pieces.convolution, 5),
    "gather": PieceKind(moving.gather, 2),
    "scatter": PieceKind(moving.scatter, 1.5),
    "grouped-sum": PieceKind(moving.grouped_sum, 1),
    "concatenation": PieceKind(moving.concatenation, 2),
    "slicing": PieceKind(moving.slicing, 1.5),
    "replaced-part": PieceKind(moving.replaced_part, 1),
    "padding": PieceKind(moving.padding, 1.5),
    "reordering": PieceKind(moving.reordering, 1),
    "conversion": PieceKind(moving.conversion, 1.5),
    "choice": PieceKind(moving.choice, 1.5),
    "integers": PieceKind(moving.integers, 1),
    "running": PieceKind(moving.running, 1.5),
    "pooling": PieceKind(moving.pooling, 2),
    "sorting": PieceKind(moving.sorting, 1),
    "places": PieceKind(moving.places, 1),
}


KERNELS_ALONE, RANDOM_GRAPH = "kernels-alone", "random-graph"
FEWEST, MOST = 4, 8
"""Kernels in a program of kernels alone: one compilation gives many labels."""

# In turn: half are kernels alone, a quarter each graphs forward and in training.
_TURN = ((KERNELS_ALONE, "forward"), (RANDOM_GRAPH, "forward"), (KERNELS_ALONE, "forward"), (RANDOM_GRAPH, "train"))


def generated_programs(count: int, *, seed: int = 0) -> tuple[ProgramSpec, ...]:
    """The first `count` generated programs of a seed; a larger count goes on after the same beginning."""
    return tuple(_spec(seed=seed, place=place) for place in range(count))


def _spec(*, seed: int, place: int) -> ProgramSpec:
    family, mode = _TURN[place % len(_TURN)]
    variant = f"s{seed}-{place:04d}"
    return ProgramSpec(
        name=f"{family}.{variant}.{mode}",
        family=family,
        variant=variant,
        mode=mode,
        build=lambda: _build(family, mode, seed=seed, place=place),
        integer_bound=TABLE_ROWS,
    )


def _build(family: str, mode: str, *, seed: int, place: int) -> Program:
    if family == KERNELS_ALONE:
        return _of_pieces(drawn_pieces(seed=seed, place=place))
    net = net_of_graph(drawn_graph(seed=seed, place=place))
    if mode == "forward" or not net.parameters:
        return forward_program(net)
    return train_program(net, update=UPDATES[place // len(_TURN) % len(UPDATES)])


def drawn_pieces(*, seed: int, place: int) -> tuple[KernelPiece, ...]:
    """The kernels of one program; needs no JAX."""
    rng = np.random.default_rng([seed, place])
    kinds = tuple(PIECE_KINDS.values())
    weights = np.array([kind.weight for kind in kinds])
    chosen = rng.choice(len(kinds), int(rng.integers(FEWEST, MOST + 1)), p=weights / weights.sum())
    return tuple(kinds[index].draw(rng) for index in chosen)


def drawn_graph(*, seed: int, place: int) -> RandomGraph:
    """The graph of one program; needs no JAX."""
    return draw_graph(np.random.default_rng([seed, place]))


def _of_pieces(pieces: tuple[KernelPiece, ...]) -> Program:
    def function(*arguments: Any) -> Any:
        return tuple(piece.apply(*values) for piece, values in zip(pieces, arguments, strict=True))

    shape = {"f32": f32, "i32": i32}
    return function, tuple(tuple(shape[dtype](*size) for dtype, size in piece.shapes) for piece in pieces)
