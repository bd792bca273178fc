"""Whether steps drift, and what grows: waiting, the host's work, the device's work, or the time the same work takes.

A level, a ramp and a level are fitted through step times, which tells steady growth from jumps and from wandering.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.estimates.captured import INPUT, PARTS
from phasepoint.findings.view import FindingsView

BLOCKS = 20
"""Stretches of equal numbers of steps whose medians are fitted."""

LEAST_RAMP = 5
"""Stretches that a ramp must last; one that rises faster is a jump."""


@dataclass(frozen=True, eq=False)
class Ramp:
    """The fit.

    Attributes:
        before: level at the start.
        height: how much it rises, above 0.
        first: where the ramp begins, in stretches, 0–`BLOCKS`.
        last: where it ends.
        sigma: standard deviation of a stretch's median about the fit.
        correlation: of one stretch's residual with the next one's, 0–1.
        explained: share of the medians' variance that the fit explains.
        by_jump: share of it that the best single jump explains.
    """

    before: float
    height: float
    first: int
    last: int
    sigma: float
    correlation: float
    explained: float
    by_jump: float

    def excess(self, n: int) -> Floats:
        """What each of `n` steps `[n]` lasted above the level at the start."""
        at = (np.arange(n) + 0.5) / n * BLOCKS
        return self.height * np.clip((at - self.first) / (self.last - self.first), 0, 1)


def block_medians(values: Int64s) -> Floats:
    """Medians of `BLOCKS` stretches of `values` `[n]`, n ≥ BLOCKS."""
    return np.array([float(np.median(part)) for part in np.array_split(values, BLOCKS)])


def fit_ramp(medians: Floats) -> Ramp | None:
    """The rising ramp with the least squared error; None where nothing rises.

    Args:
        medians: `[BLOCKS]`.
    """
    total = float(((medians - medians.mean()) ** 2).sum())
    if total <= 0:
        return None
    first, last = np.triu_indices(BLOCKS + 1, LEAST_RAMP)
    shape = np.clip((np.arange(BLOCKS) + 0.5 - first[:, None]) / (last - first)[:, None], 0, 1)
    centred = shape - shape.mean(axis=1, keepdims=True)
    heights = (centred * medians).sum(axis=1) / (centred**2).sum(axis=1)
    levels = medians.mean() - heights * shape.mean(axis=1)
    rests = medians - levels[:, None] - heights[:, None] * shape
    errors = (rests**2).sum(axis=1)
    # Two free ends fit noise a little better than none: each must explain 1 % of the variance more than it would.
    best = int(np.argmin(errors + 0.01 * total * (1.0 * (first > 0) + (last < BLOCKS))))
    error, height, rest = float(errors[best]), float(heights[best]), rests[best]
    if height <= 0:
        return None
    sigma = float(np.sqrt(error / (BLOCKS - 4)))
    correlation = float(np.clip((rest[1:] * rest[:-1]).sum() / max(error, 1e-300), 0, 0.8))
    explained, by_jump = 1 - error / total, 1 - _jump_error(medians) / total
    return Ramp(float(levels[best]), height, int(first[best]), int(last[best]), sigma, correlation, explained, by_jump)


def _jump_error(medians: Floats) -> float:
    """Squared error of the best two levels."""
    cuts = range(1, BLOCKS)
    return min(float(sum(((part - part.mean()) ** 2).sum() for part in (medians[:cut], medians[cut:]))) for cut in cuts)


LEAST_WINDOWS = 2
"""Windows needed at the beginning and at the end to compare the two."""

MOST_OF_IT = 0.5
"""A part that grows by half of what the steps grow by is what grows."""

MORE_CALLS = 0.3
"""Executions that grow by this much of the relative growth of the steps: more work, no slower device."""

ONE_OP = 0.6
"""Share of the growth in one op from which on that op grows, if it had less than half of it before."""

_DEVICE = ("compute", "communication", "data_movement")


@dataclass(frozen=True)
class DriftCause:
    """What grows.

    Attributes:
        kind: input, host, device-slower, op, more-work or unknown.
        text: in words.
        op: the op that grows, for kind op.
    """

    kind: str
    text: str
    op: str | None = None


def find_cause(view: FindingsView, rows: Int64s, growth_ps: float) -> DriftCause:
    """The cause of steps growing by `growth_ps` from the first quarter of `rows` to the last.

    Args:
        view: the run.
        rows: rows of the clock of the drifting steps, in order.
        growth_ps: growth of a step, ps.
    """
    early, late = np.array_split(rows, 4)[0], np.array_split(rows, 4)[-1]
    input_ps = view.clock.input_ps
    if float(np.median(input_ps[late]) - np.median(input_ps[early])) >= MOST_OF_IT * growth_ps:
        return DriftCause("input", "waiting for input grows")
    captured = view.captured
    at = [np.flatnonzero(np.isin(captured.row, part)) for part in (early, late)]
    if min(len(np.unique(captured.window[index])) for index in at) < LEAST_WINDOWS:
        return DriftCause("unknown", "what grows was not seen: too few windows at the beginning and at the end")
    before_ps, after_ps = (np.median(captured.parts_ps[index], axis=0) for index in at)
    grown_ps = after_ps - before_ps
    device_ps = float(sum(grown_ps[PARTS.index(name)] for name in _DEVICE))
    if device_ps < MOST_OF_IT * (float(grown_ps.sum()) - float(grown_ps[PARTS.index(INPUT)])):
        return DriftCause("host", "the host's part of a step grows, the device works as before")
    return _of_device(view, captured.row[at[0]], captured.row[at[1]])


def _of_device(view: FindingsView, early: Int64s, late: Int64s) -> DriftCause:
    """Whether more work is done, one op's work grows, or the same work takes longer."""
    before, after = (_ops_of(view, rows) for rows in (early, late))
    names = sorted(set(before) | set(after))
    if not names:
        return DriftCause("unknown", "the device's part of a step grows; its ops were not seen")
    nothing = np.zeros(2)
    then, now = (np.array([of.get(name, nothing) for name in names]) for of in (before, after))
    time, calls = now.sum(axis=0)[0] / max(then.sum(axis=0)[0], 1), now.sum(axis=0)[1] / max(then.sum(axis=0)[1], 1)
    if calls - 1 >= MORE_CALLS * (time - 1):
        return DriftCause("more-work", f"a step runs more operations ({calls - 1:+.0%})")
    grown = now[:, 0] - then[:, 0]
    most = int(np.argmax(grown))
    if grown[most] >= ONE_OP * grown.sum() and then[most, 0] < 0.5 * then[:, 0].sum():
        return DriftCause("op", f"the operation {names[most]} takes longer, the others do not", names[most])
    return DriftCause("device-slower", "the same operations take longer: the device gets slower")


def _ops_of(view: FindingsView, rows: Int64s) -> dict[str, Floats]:
    """By op, its self time and executions in a captured step of these rows, on average."""
    clock, ops = view.clock, view.table("ops")
    keys = {(int(clock.host[row]), int(clock.attempt[row]), int(clock.step[row])) for row in rows.tolist()}
    names = ("host", "attempt", "step")
    near = ops.filter(pc.is_in(ops.column("step"), value_set=pa.array(sorted({key[2] for key in keys}))))
    columns = [near.column(name).to_pylist() for name in (*names, "op", "self_ps", "count")]
    found: dict[str, Floats] = {}
    for host, attempt, step, op, self_ps, count in zip(*columns, strict=True):
        if (host, attempt, step) in keys:
            found[op] = found.get(op, np.zeros(2)) + np.array([self_ps, count], np.float64)
    return {op: total / len(keys) for op, total in found.items()}
