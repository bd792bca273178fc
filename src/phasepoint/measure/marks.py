"""Charges time to layers: a stack of what runs, and a mark whenever it changes. Knows no framework.

At every instant the innermost layer that runs is charged, so the layers' own times and the time outside add up to the
whole. In the backward pass marks replace each other: the layer whose gradient began last is charged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

OUTSIDE = -1
"""Stands for no layer."""

_ENTER, _LEAVE, _BACKWARD = range(3)


class LayerMarks:
    """Takes down when layers begin and end. Its methods run inside the measured work, so they only append.

    Attributes:
        innermost: the layer that is charged now, `OUTSIDE` for none.

    Args:
        clock: gives a time, as an integer or as something that is resolved later (an event on a device).
        announce: told of every mark, which layer is charged from then on; it leaves a trace for a profiler.
    """

    def __init__(self, clock: Callable[[], Any], announce: Callable[[int], None] | None = None) -> None:
        self._clock, self._announce = clock, announce
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.innermost = OUTSIDE
        self._stack: list[int] = []  # what is charged when the one that runs now ends
        self._backward: list[bool] = []  # whether it runs in a backward pass
        self._times: list[Any] = []
        self._codes: list[tuple[int, int]] = []

    def enter(self, key: int) -> None:
        """A layer begins inside of what runs. The clock is read last: what this takes is the caller's time."""
        self._stack.append(self.innermost)
        self._backward.append(False)
        self.innermost = key
        self._codes.append((_ENTER, key))
        if self._announce is not None:
            self._announce(key)
        self._times.append(self._clock())

    def leave(self) -> None:
        """The innermost layer ends. The clock is read first: what this takes is the caller's time."""
        self._times.append(self._clock())
        if self._stack:
            self.innermost = self._stack.pop()
            self._backward.pop()
        self._codes.append((_LEAVE, self.innermost))
        if self._announce is not None:
            self._announce(self.innermost)

    def backward(self, key: int) -> bool:
        """A layer's gradient begins; returns whether this is the first of a backward pass."""
        first = not (self._backward and self._backward[-1])
        if first:
            self._stack.append(self.innermost)
            self._backward.append(True)
        self.innermost = key
        self._codes.append((_BACKWARD, key))
        if self._announce is not None:
            self._announce(key)
        self._times.append(self._clock())
        return first

    def end_backward(self) -> None:
        """The backward pass is over."""
        if self._backward and self._backward[-1]:
            self.leave()

    def take(self) -> "Marks":
        """What was taken down since the last reset."""
        return Marks(tuple(self._codes), tuple(self._times))


@dataclass(frozen=True)
class Marks:
    """What was taken down.

    Attributes:
        codes: `[n_marks]` what happened, and which layer is charged from then on.
        times: `[n_marks]` when, as the clock gave it.
    """

    codes: tuple[tuple[int, int], ...]
    times: tuple[Any, ...]


@dataclass(frozen=True)
class MarkCost:
    """What the hooks take, calibrated with layers that do nothing.

    Attributes:
        inside_ps: of one call of a layer, in the layer's own time; below 0 where hooks see less than the whole call.
        caller_ps: of one call of a layer, in the time of what calls it.
        backward_ps: of one mark of the backward pass.
    """

    inside_ps: int = 0
    caller_ps: int = 0
    backward_ps: int = 0


@dataclass(frozen=True)
class Charged:
    """What became of the time between the first mark and the last, by layer; `OUTSIDE` has what no layer ran in.

    Attributes:
        self_ps: key → time.
        cost_ps: key → what of it the hooks took.
        calls: key → how often the layer began.
    """

    self_ps: dict[int, int]
    cost_ps: dict[int, int]
    calls: dict[int, int]


def charge_marks(marks: Marks, times_ps: Sequence[int], cost: MarkCost) -> Charged:
    """Add the time between marks up by layer.

    Args:
        marks: what was taken down.
        times_ps: `[n_marks]` the marks' times, resolved.
        cost: what the hooks take.
    """
    self_ps: dict[int, int] = {}
    cost_ps: dict[int, int] = {}
    calls: dict[int, int] = {}
    charged = OUTSIDE
    for at, (what, key) in enumerate(marks.codes):
        if what == _ENTER:
            calls[key] = calls.get(key, 0) + 1
            cost_ps[key] = cost_ps.get(key, 0) + cost.inside_ps
            cost_ps[charged] = cost_ps.get(charged, 0) + cost.caller_ps
        elif what == _BACKWARD:
            calls[key] = calls.get(key, 0) + 1
            cost_ps[charged] = cost_ps.get(charged, 0) + cost.backward_ps
        charged = key
        if at + 1 < len(times_ps):
            self_ps[charged] = self_ps.get(charged, 0) + times_ps[at + 1] - times_ps[at]
    return Charged(self_ps, cost_ps, calls)
