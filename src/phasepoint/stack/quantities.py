"""Flop, bytes and occupancy of executions, each with its source: counter, compiler, formula."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Bools, Int64s

SOURCES = {"counter": 1, "compiler": 2, "formula": 4}
"""Who says it, as a bit, so that a sum can have several."""


@dataclass(frozen=True, eq=False)
class Quantities:
    """What executions did. Arrays are `[n]`; a value counts where it is known, and is 0 elsewhere.

    Attributes:
        flop, flop_known: floating-point operations.
        read_bytes, read_known: bytes read from memory.
        write_bytes, write_known: bytes written.
        bytes, bytes_known: bytes read and written.
        occupancy, occupancy_known: share of the warps (waves) that a processor can hold, 0–1.
        flop_source, bytes_source, occupancy_source: a value of `SOURCES`, 0 where not known.
        element_type: type of the operands (bf16, f32), None where not known.
    """

    flop: Int64s
    flop_known: Bools
    read_bytes: Int64s
    read_known: Bools
    write_bytes: Int64s
    write_known: Bools
    bytes: Int64s
    bytes_known: Bools
    occupancy: NDArray[np.float64]
    occupancy_known: Bools
    flop_source: Int64s
    bytes_source: Int64s
    occupancy_source: Int64s
    element_type: NDArray[np.object_]


def no_quantities(n_rows: int) -> Quantities:
    """Quantities of which nothing is known."""

    def zeros() -> Int64s:
        return np.zeros(n_rows, np.int64)

    def never() -> Bools:
        return np.zeros(n_rows, np.bool_)

    return Quantities(
        flop=zeros(),
        flop_known=never(),
        read_bytes=zeros(),
        read_known=never(),
        write_bytes=zeros(),
        write_known=never(),
        bytes=zeros(),
        bytes_known=never(),
        occupancy=np.zeros(n_rows),
        occupancy_known=never(),
        flop_source=zeros(),
        bytes_source=zeros(),
        occupancy_source=zeros(),
        element_type=np.full(n_rows, None, object),
    )


def join_quantities(found: Sequence[Quantities]) -> Quantities:
    """Each quantity of each execution from the first that knows it."""
    joined = no_quantities(len(found[0].flop))
    for one in found:
        fresh = one.flop_known & ~joined.flop_known
        for name in ("flop", "flop_known", "flop_source"):
            getattr(joined, name)[fresh] = getattr(one, name)[fresh]
        fresh = one.bytes_known & ~joined.bytes_known
        for name in ("bytes", "read_bytes", "write_bytes", "bytes_known", "read_known", "write_known", "bytes_source"):
            getattr(joined, name)[fresh] = getattr(one, name)[fresh]
        fresh = one.occupancy_known & ~joined.occupancy_known
        for name in ("occupancy", "occupancy_known", "occupancy_source"):
            getattr(joined, name)[fresh] = getattr(one, name)[fresh]
        unnamed = np.array([one is None for one in joined.element_type], np.bool_)
        joined.element_type[unnamed] = one.element_type[unnamed]
    return joined


def source_texts(bits: Int64s) -> list[str | None]:
    """`[n]` sources in words: `counter`, `compiler, formula`; None where nothing is known."""
    words = [", ".join(name for name, bit in SOURCES.items() if value & bit) or None for value in range(8)]
    return [words[value] for value in bits.tolist()]
