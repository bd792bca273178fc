"""Where a kernel's operands and results lie when it runs: how much else was touched since they were.

The same copy of 36 KB takes 8.9 µs after the kernel that made its operand, and 16.7 µs where the program keeps many
arrays alive in between (one core of an AMD EPYC, 2026-11-21). What decides is the distance: the bytes that the kernels
in between touched, as the stack distance of a cache does (Mattson et al., "Evaluation techniques for storage
hierarchies", IBM Systems Journal 9, 1970), here of whole arrays. A program is taken to run again and again: what it
touched last time, its parameters above all, is as far away as everything else that it touches.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from phasepoint.hlo.module import Computation, Instruction, Module, scheduled_instructions

NEAR_BYTES = (1 << 15, 1 << 17, 1 << 19, 1 << 21, 1 << 23, 1 << 25)
"""Ends of the classes of distance: between sizes that caches have, first level to last."""

_CLASS_NAMES = (*(f"{end >> 10}k" for end in NEAR_BYTES), "far")

LOCALITY_NAMES: tuple[str, ...] = (
    *(f"read_within_{name}_bytes" for name in _CLASS_NAMES),
    *(f"written_within_{name}_bytes" for name in _CLASS_NAMES),
    *("result_bytes", "footprint_bytes", "is_placed"),
)
"""What `Kernel.locality` holds: bytes by distance since they were touched, bytes that are results of the program, all
that its computation touches, and whether any of this is known."""

UNPLACED = (0.0,) * len(LOCALITY_NAMES)
"""Of a kernel outside a program."""

_FORWARDS = frozenset({"bitcast", "get-tuple-element", "opt-barrier", "add-dependency", "copy-done", "async-done"})
_STAYS = frozenset({"parameter", "constant", "tuple", "after-all", "partition-id", "replica-id", *_FORWARDS})

ENTERED = frozenset({"while", "conditional", "call", "async-start"})
"""Opcodes whose computations run as such; others (a fusion, a reduction) are part of one kernel."""

MOST_FREED = 64
"""Freed pieces that are remembered, the latest: what lies further back is far away whichever it is."""

Place = tuple[Instruction, int]
"""An array: the instruction that makes it, and which part of its result."""


@dataclass
class _Heap:
    """Memory of arrays that are no longer needed, to be used again: the latest freed that is large enough.

    Attributes:
        free: bytes of a piece, and the clock when it was last touched; the latest freed last.
    """

    free: list[tuple[int, int]] = field(default_factory=list)

    def give(self, size: int, clock: int) -> None:
        """Free a piece."""
        self.free.append((size, clock))
        del self.free[:-MOST_FREED]

    def take(self, size: int) -> int | None:
        """Clock at which a freed piece was last touched, None where none is large enough."""
        for place in range(len(self.free) - 1, -1, -1):
            held, clock = self.free[place]
            if held >= size:
                if held > size:
                    self.free[place] = (held - size, clock)
                else:
                    del self.free[place]
                return clock
        return None


def localities_of_module(module: Module, runs: Container[Computation]) -> Mapping[Instruction, tuple[float, ...]]:
    """`LOCALITY_NAMES` of every instruction that runs something, each computation as it goes when it is run again.

    Args:
        module: the program.
        runs: the computations that run as such.
    """
    orders = scheduled_instructions(module)
    found: dict[Instruction, tuple[float, ...]] = {}
    sizes: dict[Computation, int] = {}
    for computation in module.computations:  # callees first: what a loop touches is known when it is met
        if computation in runs:
            sizes[computation] = _simulate(orders[computation], computation.root, sizes, found)
    return found


def place_of(locality: tuple[float, ...]) -> tuple[int, int]:
    """The class of distance that most read bytes are of, and the one that most written bytes are of."""
    classes = len(_CLASS_NAMES)
    read, written = locality[:classes], locality[classes : 2 * classes]
    return read.index(max(read)), written.index(max(written))


def _simulate(
    order: Sequence[Instruction],
    root: Instruction,
    sizes: Mapping[Computation, int],
    found: dict[Instruction, tuple[float, ...]],
) -> int:
    """Run a computation twice, note the distances of the second time; returns the bytes that one run touches."""
    freed_at, results = _last_uses(order), {place for place, _ in _arrays(root)}
    touched: dict[Place, int] = {}
    clock, footprint = 0, 0
    for again in (False, True):
        heap = _Heap()
        for at, one in enumerate(order):
            if one.opcode in _STAYS:
                continue
            reads = [array for operand in one.operands for array in _arrays(operand)]
            writes = list(_arrays(one))
            last_touch = [touched.get(place) for place, _ in reads]
            for place, size in writes:
                reused = None if place in results else heap.take(size)
                last_touch.append(touched.get(place) if reused is None else reused)
            if again:
                behind = [footprint if last is None else clock - last for last in last_touch]
                kept = sum(size for place, size in writes if place in results)
                found[one] = _row(behind, [size for _, size in (*reads, *writes)], len(reads), (kept, footprint))
            clock += sum(size for _, size in (*reads, *writes)) + sum(sizes.get(called, 0) for called in one.called)
            for place, size in dict.fromkeys((*reads, *writes)):
                touched[place] = clock
                if freed_at.get(place) == at and place not in results:
                    heap.give(size, clock)
        footprint = footprint or clock
    return footprint


def _row(behind: Sequence[int], sizes: Sequence[int], reads: int, sums: tuple[int, int]) -> tuple[float, ...]:
    """Bytes by distance; the first `reads` arrays are read, the others written."""
    counts = [0.0] * (2 * len(_CLASS_NAMES))
    for at, (distance, size) in enumerate(zip(behind, sizes, strict=True)):
        kind = sum(distance + size > end for end in NEAR_BYTES)  # the last of it is touched after the rest of it
        counts[kind + (len(_CLASS_NAMES) if at >= reads else 0)] += size
    return (*counts, *map(float, sums), 1.0)


def _last_uses(order: Sequence[Instruction]) -> dict[Place, int]:
    """Place in the order at which each array that the computation makes is read last, or made where nobody reads it."""
    own = {one for one in order if one.opcode not in ("parameter", "constant")}
    last: dict[Place, int] = {}
    for at, one in enumerate(order):
        for source in (*one.operands, one):
            last.update({place: at for place, _ in _arrays(source) if _maker(source) in own})
    return last


def _arrays(one: Instruction) -> Iterator[tuple[Place, int]]:
    """The arrays that an instruction's result is, by who made them, with their sizes in bytes."""
    part: int | None = None
    while one.opcode in _FORWARDS and one.operands:
        if one.opcode == "get-tuple-element":
            part = one.proto.tuple_index
        one = one.operands[0]
        if one.opcode == "tuple" and part is not None and part < len(one.operands):
            one, part = one.operands[part], None
    if one.opcode == "tuple":
        for operand in one.operands:
            yield from _arrays(operand)
        return
    sizes = [part_shape.size_bytes for part_shape in one.shape.parts or (one.shape,)]
    for index, size in enumerate(sizes):
        if part is None or len(sizes) == 1 or index == part:
            yield (one, index), size


def _maker(one: Instruction) -> Instruction:
    """The instruction whose result is forwarded; a tuple counts as its own maker."""
    while one.opcode in _FORWARDS and one.operands:
        one = one.operands[0]
    return one
