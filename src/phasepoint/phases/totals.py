"""From strata to totals: what the captured steps went into, exactly, plus what the others are estimated to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.statistics import satterthwaite_freedom, t_quantile
from phasepoint.phases.accounting import closed
from phasepoint.phases.captured import PARTS, UNATTRIBUTED
from phasepoint.phases.op_columns import OpKey
from phasepoint.phases.sampling import Rest, Stratum
from phasepoint.phases.strata import StrataEstimate
from phasepoint.phases.summary_types import Breakdown, OpTime, PartTime

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

OTHER = "other"


@dataclass(frozen=True, eq=False)
class Totals:
    """Everything known and estimated of every stratum, ready to be added up for the run or for one phase.

    Attributes:
        strata: of the run.
        rests: of their uncaptured steps.
        seen_parts: `[n_strata, len(PARTS)]` ps of their captured steps.
        seen_extra: `[n_strata, 2 * len(op_keys)]`: self times, then executions, of their captured steps.
        op_keys: the ops of the extras; the last one stands for all that are not named.
        confidence: of the intervals.
    """

    strata: Sequence[Stratum]
    rests: StrataEstimate
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
        half = self._half_widths(members)[: len(PARTS)]
        parts = []
        for index, name in enumerate(PARTS):
            rest_ps = sum(int(rest.parts_ps[index]) for rest in self._rests(members))
            if name == UNATTRIBUTED:
                rest_ps += sum(self.strata[i].rest_ps for i in members if self.rests.rests[i] is None)
            time_ps, seen_ps = int(seen[index]) + rest_ps, int(seen[index])
            low_ps = max(seen_ps, time_ps - half[index])
            high_ps = min(time_ps + half[index], total_ps)
            share = time_ps / total_ps if total_ps else 0.0
            basis = UNATTRIBUTED if name == UNATTRIBUTED else "estimated"
            parts.append(PartTime(name, time_ps, min(low_ps, time_ps), max(high_ps, time_ps), share, basis))
        return closed(Breakdown(total_ps, tuple(parts), *counts, self.confidence, notes))

    def top_ops(self, phase: int | None, n_top: int) -> tuple[OpTime, ...]:
        """The largest ops of a phase, or of the run, by self time, and `other`; empty where none was captured."""
        members = self._members(phase)
        n = len(self.op_keys)
        if not n:
            return ()
        seen = self.seen_extra[members].sum(axis=0)
        rest = np.rint(sum((rest.extra for rest in self._rests(members)), np.zeros(2 * n)))
        total = [int(a) + int(b) for a, b in zip(seen, rest, strict=True)]
        half = self._half_widths(members)[len(PARTS) :]
        all_ps = sum(total[:n])
        order = sorted((i for i in range(n - 1) if total[i]), key=lambda i: (-total[i], self.op_keys[i].op))[:n_top]
        listed = [_op_time(self.op_keys[i], total[n + i], total[i], (int(seen[i]), half[i]), all_ps) for i in order]
        other_ps = all_ps - sum(op.self_ps for op in listed)
        if other_ps:
            seen_ps = int(seen[:n].sum()) - sum(int(seen[i]) for i in order)
            spread = self._half_widths(members, others=[i for i in range(n) if i not in order])
            listed.append(_op_time(OpKey(OTHER, "mixed", None, None), None, other_ps, (seen_ps, spread[0]), all_ps))
        return tuple(listed)

    def _members(self, phase: int | None) -> list[int]:
        return [i for i, stratum in enumerate(self.strata) if phase is None or stratum.phase == phase]

    def _rests(self, members: Sequence[int]) -> list[Rest]:
        return [rest for i in members if (rest := self.rests.rests[i]) is not None]

    def _half_widths(self, members: Sequence[int], others: Sequence[int] | None = None) -> list[int]:
        """Half the interval of every part and extra, or of the sum of some ops."""
        width = 1 if others is not None else len(PARTS) + self.seen_extra.shape[1]
        pick = None if others is None else np.array(others, np.int64) + len(PARTS)
        variances, freedoms = [np.zeros(width)], [1.0]
        for sample in np.unique(self.rests.sample[list(members)]) if members else ():
            joined = self._rests([i for i in members if self.rests.sample[i] == sample])
            if not joined:
                continue
            # Strata that rest on one sample err together: errors first, then squares.
            errors = sum((rest.errors for rest in joined[1:]), joined[0].errors)
            between = sum((rest.variance for rest in joined[1:]), joined[0].variance)
            if pick is not None:
                errors, between = errors[:, pick].sum(axis=1, keepdims=True), between[pick].sum(keepdims=True)
            variances += [(errors**2).sum(axis=0), between]
            freedoms += [joined[0].freedom, np.inf]
        table = np.array(variances)
        freedom = satterthwaite_freedom(table, np.array(freedoms))
        deviation = np.sqrt(table.sum(axis=0))
        reach = [t_quantile(0.5 + self.confidence / 2, min(f, 1e9)) for f in freedom.tolist()]
        return [int(np.ceil(d * t)) for d, t in zip(deviation.tolist(), reach, strict=True)]


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
