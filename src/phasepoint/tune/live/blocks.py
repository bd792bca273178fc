"""Who makes which batch during a trial, and what each block of batches took.

Two settings take turns over one order of batches: a block of the old one and a block of the new one make a pair, in an
order drawn by chance. The first batches of a block are not counted: they were made while the other setting ran.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Side = Literal["old", "new"]


@dataclass
class BlockPlan:
    """Positions of an order, each made by one side; times of the blocks that were run.

    Positions before `first` belong to the old setting, those from `last` on to the side that `end` names.

    Args:
        first: position of the first block.
        block: positions in one.
        skipped: positions at a block's begin that are not counted, below `block`.
        draw: gives 0 or 1 by chance: which side begins a pair.
        old_skipped: those of the old setting's blocks, where it is another number; as many are counted as of the new.

    Example:
        >>> plan = BlockPlan(first=2, block=3, skipped=1, draw=lambda: 0)
        >>> [plan.side_of(position) for position in range(9)]
        ['old', 'old', 'old', 'old', 'old', 'new', 'new', 'new', 'old']
        >>> plan.next_of("new", 0), plan.next_of("old", 5)
        (5, 8)
    """

    first: int
    block: int
    skipped: int
    draw: Callable[[], int]
    old_skipped: int | None = None
    _sides: list[Side] = field(default_factory=list)
    _end: tuple[int, Side] | None = None
    _began_ns: int | None = None
    _times_ns: dict[int, int] = field(default_factory=dict)

    @property
    def pair(self) -> int:
        """Positions of two blocks, one of each setting."""
        return self._size("old") + self._size("new")

    def side_of(self, position: int) -> Side:
        """Which setting makes the batch at a position."""
        if self._end is not None and position >= self._end[0]:
            return self._end[1]
        return "old" if position < self.first else self._block_at(position)[2]

    def number_of(self, position: int) -> int:
        """Number of the block that a position lies in; below 0 before the first."""
        return -1 if position < self.first else self._block_at(position)[0]

    def begins_block(self, position: int) -> bool:
        """Whether a block begins at a position."""
        return position >= self.first and self._block_at(position)[1] == position

    def next_of(self, side: Side, position: int) -> int | None:
        """The first position from this one on that a side makes; None where it makes no more."""
        while self.side_of(position) != side:
            if self._end is not None and position >= self._end[0]:
                return None
            after = self._after(position)
            position = after if self._end is None else min(after, self._end[0])
        return position

    def end(self, position: int, winner: Side, *, at_once: bool) -> int:
        """Give everything from here on to one side, but for the loser's blocks that come next: it still makes these.

        There may be two of them, the last of a pair and the first of the next one. The winner has begun what comes
        behind them.

        Args:
            position: the next one to be taken.
            winner: who goes on.
            at_once: the winner has begun nothing beyond this position, and takes the next block over as well.

        Returns:
            The position from which on the winner makes all.
        """
        last = position
        while not at_once and self.side_of(last) != winner:
            last = self._after(last)
        self._end = last, winner
        return last

    def note(self, position: int, asked_ns: int) -> float | None:
        """The batch at a position is about to be asked for. Gives a pair's log ratio where one has just ended.

        Args:
            position: of the batch.
            asked_ns: when, on any clock.

        Returns:
            Log of the old setting's time over the new one's; None where no pair ended here.
        """
        if position < self.first:
            return None
        number, begin, side = self._block_at(position)
        ended: float | None = None
        if position == begin and self._began_ns is not None:
            self._times_ns[number - 1] = max(asked_ns - self._began_ns, 1)
            self._began_ns = None
            if number % 2 == 0:
                ended = self._log_ratio(number - 2)
        if position == begin + self._skipped(side):
            self._began_ns = asked_ns
        return ended

    def step_so_far(self, position: int, asked_ns: int) -> tuple[Side, int, float] | None:
        """Of the block in progress: whose it is, steps counted by now and their mean time; None before the first."""
        if self._began_ns is None or position < self.first:
            return None
        _, begin, side = self._block_at(position)
        counted = position - begin - self._skipped(side)
        return None if counted < 1 else (self.side_of(position), counted, (asked_ns - self._began_ns) / counted)

    def _skipped(self, side: Side) -> int:
        return self.skipped if side == "new" or self.old_skipped is None else self.old_skipped

    def _size(self, side: Side) -> int:
        return self.block - self.skipped + self._skipped(side)

    def _block_at(self, position: int) -> tuple[int, int, Side]:
        """Number, first position and side of the block that a position from `first` on lies in."""
        pair, offset = divmod(position - self.first, self.pair)
        while 2 * pair >= len(self._sides):
            drawn: tuple[Side, Side] = ("old", "new")
            self._sides.extend(drawn if not self.draw() else drawn[::-1])
        side, other = self._sides[2 * pair : 2 * pair + 2]
        begin, size = position - offset, self._size(side)
        return (2 * pair, begin, side) if offset < size else (2 * pair + 1, begin + size, other)

    def _after(self, position: int) -> int:
        """The position behind the block that this one lies in; the first block where it lies before all."""
        if position < self.first:
            return self.first
        _, begin, side = self._block_at(position)
        return begin + self._size(side)

    def _log_ratio(self, first: int) -> float | None:
        """Of the pair whose first block has this number; None where one of the two does not count."""
        times = {self._sides[number]: self._times_ns.pop(number, None) for number in (first, first + 1)}
        old, new = times["old"], times["new"]
        return None if old is None or new is None else math.log(old / new)
