"""From strata to totals: what the captured steps went into, exactly, plus what the others are estimated to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.phases.accounting import closed
from phasepoint.phases.breakdown import Breakdown, OpTime, PartTime
from phasepoint.phases.captured import COMPILING, INPUT, PARTS, UNATTRIBUTED
from phasepoint.phases.cells import COMPILE, WAIT, Fit
from phasepoint.phases.op_columns import OpKey
from phasepoint.phases.prediction import Prediction, half_widths
from phasepoint.phases.strata import Stratum

OTHER = "other"


@dataclass(frozen=True, eq=False)
class Totals:
    """Everything known and estimated of every stratum, ready to be added up for the run or for one phase.

    Attributes:
        strata: of the run.
        fit: shares and sizes.
        rest: of the uncaptured steps.
        seen_parts: `[n_strata, len(PARTS)]` ps of the captured steps.
        seen_extra: `[n_strata, 2 * len(op_keys)]`: self times, then executions, of the captured steps.
        op_keys: the ops of the extras; the last one stands for all that are not named.
        confidence: of the intervals.
    """

    strata: Sequence[Stratum]
    fit: Fit
    rest: Prediction
    seen_parts: Int64s
    seen_extra: Int64s
    op_keys: Sequence[OpKey]
    confidence: float

    def breakdown(self, phase: int | None, counts: tuple[int, int], notes: tuple[str, ...]) -> Breakdown:
        """The time of a phase, or of the run, by parts that add up to it.

        Args:
            phase: its id; None for the run.
            counts: its windows and captured steps.
            notes: for the reader.
        """
        members = self._members(phase)
        total_ps = sum(self.strata[i].total_ps for i in members)
        seen = self.seen_parts[members].sum(axis=0)
        rest = self.rest.parts_ps[members].sum(axis=0)
        half = half_widths(self.fit, members, self.confidence)
        most_ps = self._most(members, seen, total_ps)
        unknown_ps = sum(self.strata[i].rest_ps for i in members) - int(rest.sum())
        parts = []
        for index, name in enumerate(PARTS):
            time_ps = int(seen[index]) + int(rest[index]) + (unknown_ps if name == UNATTRIBUTED else 0)
            low_ps = min(max(int(seen[index]), time_ps - half[index]), time_ps)
            high_ps = max(min(time_ps + half[index], most_ps[index]), time_ps)
            share = time_ps / total_ps if total_ps else 0.0
            basis = UNATTRIBUTED if name == UNATTRIBUTED else "estimated"
            parts.append(PartTime(name, time_ps, low_ps, high_ps, share, basis))
        return closed(Breakdown(total_ps, tuple(parts), *counts, self.confidence, notes))

    def top_ops(self, phase: int | None, n_top: int) -> tuple[OpTime, ...]:
        """The largest ops of a phase, or of the run, by self time, and `other`; empty where none was captured."""
        members, n = self._members(phase), len(self.op_keys)
        if not n:
            return ()
        seen = self.seen_extra[members].sum(axis=0)
        rest = np.rint(self.rest.extra[members].sum(axis=0))
        total = [int(a) + int(b) for a, b in zip(seen, rest, strict=True)]
        half = half_widths(self.fit, members, self.confidence)[len(PARTS) :]
        all_ps = sum(total[:n])
        order = sorted((i for i in range(n - 1) if total[i]), key=lambda i: (-total[i], self.op_keys[i].op))[:n_top]
        listed = [_op_time(self.op_keys[i], total[n + i], total[i], (int(seen[i]), half[i]), all_ps) for i in order]
        left = [i for i in range(n) if i not in order]
        other_ps = sum(total[i] for i in left)
        if other_ps:
            summed = np.zeros(len(PARTS) + 2 * n)
            summed[[len(PARTS) + i for i in left]] = 1
            half_ps = half_widths(self.fit, members, self.confidence, summed=summed)[0]
            known = (sum(int(seen[i]) for i in left), half_ps)
            listed.append(_op_time(OpKey(OTHER, "mixed", None, None), None, other_ps, known, all_ps))
        return tuple(listed)

    def _most(self, members: Sequence[int], seen: Int64s, total_ps: int) -> list[int]:
        """What each part can be at most: `input` and `compiling` are parts of waits that the clock measured."""
        most_ps = [total_ps] * len(PARTS)
        for part, cell in ((INPUT, WAIT), (COMPILING, COMPILE)):
            index = PARTS.index(part)
            most_ps[index] = int(seen[index]) + int(self.fit.rest[members, cell].sum())
        return most_ps

    def _members(self, phase: int | None) -> list[int]:
        return [i for i, stratum in enumerate(self.strata) if phase is None or stratum.phase == phase]


def _op_time(key: OpKey, count: int | None, self_ps: int, known: tuple[int, int], all_ps: int) -> OpTime:
    """`known`: the part that was captured, and half the interval."""
    seen_ps, half_ps = known
    return OpTime(
        op=key.op,
        category=key.category,
        layer=key.layer,
        program=key.program,
        count=count,
        self_ps=self_ps,
        low_ps=min(max(seen_ps, self_ps - half_ps), self_ps),
        high_ps=self_ps + half_ps,
        share=self_ps / all_ps if all_ps else 0.0,
    )
