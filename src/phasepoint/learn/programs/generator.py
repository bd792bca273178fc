"""Programs drawn from a seed: kernels that have nothing to do with one another, and random graphs of operations."""

from typing import Any

import numpy as np

from phasepoint.learn.programs.modes import Program
from phasepoint.learn.programs.pieces import PIECES, Piece
from phasepoint.learn.programs.shapes import f32, i32
from phasepoint.learn.programs.specs import ProgramSpec

KERNELS_ALONE = "kernels-alone"
INTEGER_BOUND = 256
"""Of the integer arguments; tables that they point into have at least that many rows."""
FEWEST, MOST = 4, 8
"""Kernels in a program of kernels alone: one compilation gives many labels."""


def generated_programs(count: int, *, seed: int = 0) -> tuple[ProgramSpec, ...]:
    """The first `count` generated programs of a seed; a larger count goes on after the same beginning."""
    return tuple(_kernels_alone(seed=seed, place=place) for place in range(count))


def _kernels_alone(*, seed: int, place: int) -> ProgramSpec:
    variant = f"s{seed}-{place:04d}"
    return ProgramSpec(
        name=f"{KERNELS_ALONE}.{variant}.forward",
        family=KERNELS_ALONE,
        variant=variant,
        mode="forward",
        build=lambda: _program(draw_pieces(seed=seed, place=place)),
        integer_bound=INTEGER_BOUND,
    )


def draw_pieces(*, seed: int, place: int) -> tuple[Piece, ...]:
    """The kernels of one program; needs no JAX."""
    rng = np.random.default_rng([seed, place, 1])
    rows = tuple(PIECES.values())
    weights = np.array([row.weight for row in rows], float)
    chosen = rng.choice(len(rows), int(rng.integers(FEWEST, MOST + 1)), p=weights / weights.sum())
    return tuple(rows[index].draw(rng) for index in chosen)


def _program(pieces: tuple[Piece, ...]) -> Program:
    def function(*arguments: Any) -> Any:
        return tuple(piece.apply(*values) for piece, values in zip(pieces, arguments, strict=True))

    shape = {"f32": f32, "i32": i32}
    return function, tuple(tuple(shape[dtype](*size) for dtype, size in piece.shapes) for piece in pieces)
