"""One trial in progress: a feed of the new setting beside the old one's, and what their blocks have shown."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from phasepoint.core.units import NS_PER_S
from phasepoint.tune.certificate import Certificate
from phasepoint.tune.choose import Proposal
from phasepoint.tune.live.blocks import BlockPlan, Side
from phasepoint.tune.pipeline import Width
from phasepoint.tune.source import Feed

WITNESSES = 3
"""Batches that both settings make, to see that they are the same bit for bit."""

LEAST_COUNTED, MOST_COUNTED, COUNTED_S = 8, 64, 0.3
"""Steps of a block that are counted: so many as last 0.3 s, within these bounds. What the certificate needs is pairs,
not long blocks; but beside a scheduler's tick a block must be long."""

READY_S = 0.3
"""From starting workers to their first block: forked ones are there within 0.1 s (2 cores)."""

MOST_PAIRS = 200
"""Then a gain of a tenth is seen through blocks that scatter by a fifth (simulated: 19 of 20 trials)."""

MOST_S = 120.0
"""A choice: what is not seen in two minutes is little, and other settings wait for their turn."""

FUTILE_GAIN = 0.01
"""A trial ends where it is certain that less than this is won."""

CLEARLY_SLOWER = (0.25, 0.1, 0.05)
"""After so many pairs in each of which the new setting was slower by more: no reason to go on. Ending a trial early
without taking anything up leaves the certificate valid."""


HOPELESS = 2.0
"""A choice: where the first counted steps of a block take so many times as long as before, the trial is over."""


@dataclass
class Role:
    """Which positions a feed makes; asked while it runs, on any thread."""

    side: Side = "old"
    plan: BlockPlan | None = None
    witnesses: range = range(0)
    least: int = 0

    def next(self, position: int) -> int | None:
        """The first position from this one on that the feed makes; from `least` on, where a trial has ended there."""
        position = max(position, self.least)
        if self.plan is None:
            return position
        if self.side == "new" and position < self.plan.first:
            return position if position in self.witnesses else self.plan.next_of("new", self.plan.first)
        return self.plan.next_of(self.side, position)


@dataclass(kw_only=True)
class SettingTrial:
    """A proposal that is being tried.

    Attributes:
        number: of the trial, from 0.
        proposal: what is tried.
        first_step: of the loop.
        began_ns: when.
        base_step_ns: a step's mean time before.
        certificate: what the pairs have shown.
        reason: why it ended.
        spent_ns: by how much longer its steps took than before, so far; below 0 where it won.
    """

    number: int
    proposal: Proposal
    first_step: int
    began_ns: int
    base_step_ns: float
    certificate: Certificate = field(default_factory=Certificate)
    reason: str = "the job ended before it was decided"
    spent_ns: float = 0.0


@dataclass(kw_only=True)
class LoaderTrial(SettingTrial):
    """A trial in blocks; where an epoch ends in the middle of it, it goes on in the next.

    Attributes:
        batch_ns: mean time of making a batch before.
        last: position from which on the winner makes all; None while the trial runs.
    """

    batch_ns: float
    digests: dict[int, bytes] = field(default_factory=dict)
    is_witnessed: bool = False
    last: int | None = None
    winner: Side = "old"
    steps: int = 0
    entered_ns: int | None = None

    def enter(self, plan: BlockPlan, role: Role, feed: Feed, entered_ns: int) -> None:
        """It begins, or goes on: who makes which batch of this epoch, and the new setting's feed."""
        self.plan, self.role, self.feed = plan, role, feed
        self.digests, self.is_witnessed, self.steps = {}, False, 0
        self.entered_ns = entered_ns

    def leave(self, left_ns: int) -> None:
        """It ends, or waits for the next epoch."""
        self.spent_ns = self.cost_ns(left_ns)
        self.entered_ns, self.steps = None, 0

    def cost_ns(self, now_ns: int) -> float:
        """By how much longer its steps took than before, so far; below 0 where it wins."""
        if self.entered_ns is None:
            return self.spent_ns
        return self.spent_ns + now_ns - self.entered_ns - self.steps * self.base_step_ns

    def is_hopeless(self, position: int, asked_ns: int) -> tuple[Side, str] | None:
        """Why there is no need to see the block in progress to its end; None where there is.

        As with `CLEARLY_SLOWER`, nothing is taken up, so that the certificate stays valid.
        """
        so_far = self.plan.step_so_far(position, asked_ns)
        if so_far is None or so_far[0] == "old" or so_far[1] < LEAST_COUNTED:
            return None
        _, counted, step_ns = so_far
        ratio = step_ns / max(self.base_step_ns, 1.0)
        return ("old", f"{ratio:.1f} times as long in its first {counted} steps") if ratio > HOPELESS else None

    def verdict(self, now_ns: int) -> tuple[Side, str] | None:
        """Who has won, and why; None while that is open."""
        decided = verdict_of_pairs(self.certificate, "blocks")
        if decided is not None:
            return decided
        ratios = self.certificate.log_ratios
        if len(ratios) >= MOST_PAIRS or now_ns - self.began_ns > MOST_S * NS_PER_S:
            return "old", f"no difference beyond doubt in {len(ratios)} pairs of blocks"
        return None


def verdict_of_pairs(certificate: Certificate, what: str) -> tuple[Side, str] | None:
    """Who has won by what the pairs show, and why; None while that is open.

    Args:
        certificate: of the trial.
        what: they are pairs of, in words.
    """
    if certificate.is_better:
        return "new", "faster beyond doubt"
    if certificate.is_below(FUTILE_GAIN):
        return "old", f"less than {FUTILE_GAIN:.0%} to win, beyond doubt"
    ratios = certificate.log_ratios
    for count, least in enumerate(CLEARLY_SLOWER, 1):
        if len(ratios) >= count and all(ratio < -math.log1p(least) for ratio in ratios):
            return "old", f"slower by more than {least:.0%} in each of {len(ratios)} pairs of {what}"
    return None


def lay_out(
    position: int, old: Width, new: Width, *, step_ns: float, batch_ns: float, draw: Callable[[], int]
) -> BlockPlan:
    """The blocks of a trial: where they begin, how long they are, and how much of each side's is not counted.

    The first batches of a block were made while the other setting ran: as many as its own workers are ahead. And while
    the other's workers go on filling their queue, it has fewer cores.

    Args:
        position: the next to be taken.
        old: pipeline of the setting in force; it has begun `ahead` batches from `position` on.
        new: of the one to be tried.
        step_ns: mean time of a step.
        batch_ns: of making a batch.
        draw: gives 0 or 1 by chance.
    """
    step_ns = max(step_ns, 1.0)
    lead = max(old.ahead, WITNESSES, math.ceil(READY_S * NS_PER_S / step_ns)) + 1
    refill = max((side.ahead / side.workers for side in (old, new) if side.workers), default=0.0) * batch_ns / step_ns
    refill = min(math.ceil(refill), 4 * max(old.ahead, new.ahead))
    counted = min(max(math.ceil(COUNTED_S * NS_PER_S / step_ns), LEAST_COUNTED), MOST_COUNTED)
    old_skipped, skipped = (max(side.ahead, refill) + 2 for side in (old, new))
    return BlockPlan(position + lead, skipped + counted, skipped, draw, old_skipped)
