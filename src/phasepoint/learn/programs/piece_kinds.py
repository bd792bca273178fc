"""The kinds of kernel that a program of kernels alone is drawn from, and how often each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from phasepoint.learn.programs import moving_pieces as moving
from phasepoint.learn.programs import pieces
from phasepoint.learn.programs.pieces import Piece, Rng


@dataclass(frozen=True)
class PieceKind:
    """One row of the table.

    Attributes:
        draw: draws a kernel of this kind.
        weight: how often, beside the others. Set so that a corpus of networks gets more of what networks hold few of.
    """

    draw: Callable[[Rng], Piece]
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
