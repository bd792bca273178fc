"""A trial in whole epochs, for what cannot change within one: pairs of epochs, one with each setting.

The first one with the new setting does not count: workers that outlive their epoch are started in it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from phasepoint.tune.live.blocks import Side
from phasepoint.tune.live.trial import SettingTrial, verdict_of_pairs

MOST_PAIRS = 20
"""A choice: a job has some tens of epochs, and what forty of them do not show is little."""

MOST_CHECKS = 2
"""Epochs whose begin is checked: the first, and the first that workers serve which were there before."""

ALIKE = 0.1
"""A choice: epochs of a pair may differ by this part of their steps; others cannot be compared."""


@dataclass(kw_only=True)
class EpochTrial(SettingTrial):
    """A trial in whole epochs.

    Attributes:
        draw: gives 0 or 1 by chance: which setting begins a pair.
        side: of the epoch that runs.
        checks: epochs whose first batches were held against those of the old setting.
    """

    draw: Callable[[], int]
    side: Side | None = None
    checks: int = 0
    _is_warm: bool = False
    _left: list[Side] = field(default_factory=list)
    _steps: dict[Side, int] = field(default_factory=dict)
    _step_ns: dict[Side, float] = field(default_factory=dict)

    @classmethod
    def instead_of(cls, trial: SettingTrial, draw: Callable[[], int]) -> "EpochTrial":
        """The trial of what another one should have tried within an epoch."""
        return cls(**{known.name: getattr(trial, known.name) for known in fields(SettingTrial)}, draw=draw)

    def begin_epoch(self) -> Side:
        """Which setting makes the epoch that begins."""
        if not self._is_warm:
            self.side = "new"
            return self.side
        if not self._left:
            self._left = ["old", "new"] if self.draw() else ["new", "old"]  # taken from its end
        self.side = self._left.pop()
        return self.side

    def end_epoch(self, steps: int, took_ns: int, *, is_whole: bool) -> str | None:
        """An epoch has ended.

        Args:
            steps: that it had.
            took_ns: from its begin to the end of the last of them.
            is_whole: whether it was not left before.

        Returns:
            Why the trial cannot go on; None where it can.
        """
        side, self.side = self.side, None
        if side is None or not steps:
            return None
        self._steps[side], self._step_ns[side] = steps, took_ns / steps
        if side == "new":
            self.spent_ns += took_ns - steps * self.base_step_ns
        if not self._is_warm:
            self._is_warm = True
            return None
        if self._left:
            return None
        old, new = self._steps["old"], self._steps["new"]
        if abs(math.log(new / old)) < ALIKE:
            self.certificate.add(math.log(max(self._step_ns["old"], 1.0) / max(self._step_ns["new"], 1.0)))
        elif is_whole:
            return f"an epoch has {new:,} batches with it and {old:,} without"
        return None

    def verdict(self) -> tuple[Side, str] | None:
        """Who has won, and why; None while that is open."""
        decided = verdict_of_pairs(self.certificate, "epochs")
        if decided is None and len(self.certificate.log_ratios) >= MOST_PAIRS:
            return "old", f"no difference beyond doubt in {MOST_PAIRS} pairs of epochs"
        return decided
