"""Work that grows with the run, told from how many operations the captured steps execute.

Other processes make steps longer, and by turns; they do not make a step execute more. So where executions rise from
window to window, the drift is sure even if the step times alone would not show it.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.statistics import MAD_TO_SIGMA
from phasepoint.findings.evidence.device_ops import read_device_ops
from phasepoint.findings.view import FindingsView

LEAST_WINDOWS = 5
"""Five windows in rising order come about by chance once in 120 times."""

LEAST_TAU = 0.9
"""Rank correlation (Kendall's tau-a) of executions with time: all of 5 windows in order, 95 of 100 pairs of many. Two
levels reach 0.56, three 0.7: a program that was exchanged once or twice is no growth."""

LEAST_STRAIGHT = 0.9
"""Share of the variance of the windows' executions that a line through them explains."""


@dataclass(frozen=True)
class GrowingWork:
    """Executions that grow over a session's steps.

    Attributes:
        rise_ps: device time that a step's further executions take at the end.
        error_ratio: standard error of an execution's time, as a ratio of it.
        before: executions of a step at the start, of all operations.
        after: at the end.
        tau: rank correlation of executions with time, 0–1.
        windows: windows that it was seen in.
    """

    rise_ps: float
    error_ratio: float
    before: float
    after: float
    tau: float
    windows: int


def find_growing_work(view: FindingsView, rows: Int64s) -> GrowingWork | None:
    """What the captured ones of `rows` `[n]` of the clock, in order, execute more and more of; None for nothing."""
    seen = np.flatnonzero(np.isin(view.captured.row, rows))
    window, of_step = np.unique(view.captured.window[seen], return_inverse=True)
    if len(window) < LEAST_WINDOWS:
        return None
    place = np.searchsorted(rows, view.captured.row[seen])
    at = np.bincount(of_step, place) / np.bincount(of_step) / len(rows)
    count, self_ps = _of_windows(view, seen, of_step)
    order = np.argsort(at)
    at, count, self_ps = at[order], count[order], self_ps[order]
    grows = count[-1] > count[0]
    executed = count[:, grows].sum(axis=1)
    tau = _tau(executed)
    if tau < LEAST_TAU:
        return None
    slope, level = np.polyfit(at, executed, 1)
    if np.var(executed - level - slope * at) > (1 - LEAST_STRAIGHT) * np.var(executed):
        return None
    each_ps = _each_more(executed, self_ps[:, grows].sum(axis=1))
    usual_ps = max(float(np.median(each_ps)), 0.0)
    spread = MAD_TO_SIGMA * float(np.median(np.abs(each_ps - usual_ps)))
    rest = float(count[:, ~grows].sum(axis=1).mean())
    return GrowingWork(
        rise_ps=float(slope) * usual_ps / max(len({kind.device for kind in view.once(read_device_ops).kinds}), 1),
        error_ratio=1.2533 * spread / float(np.sqrt(len(window))) / max(usual_ps, 1.0),
        before=rest + max(float(level), 0.0),
        after=rest + float(level + slope),
        tau=tau,
        windows=len(window),
    )


def _of_windows(view: FindingsView, seen: Int64s, of_step: Int64s) -> tuple[Floats, Floats]:
    """`[n_windows, n_ops]` executions and self time of a step, on average; ops of one name are one."""
    ops = view.once(read_device_ops)
    names = {name: i for i, name in enumerate(sorted({kind.op for kind in ops.kinds}))}
    named = np.array([names[kind.op] for kind in ops.kinds], np.int64)
    place = np.full(len(view.captured.row), -1, np.int64)
    place[seen] = of_step
    mine = place[ops.index] >= 0
    steps = np.bincount(of_step)[:, None]
    tables = []
    for values in (ops.count, ops.self_ps):
        table = np.zeros((len(steps), len(names)))
        np.add.at(table, (place[ops.index[mine]], named[ops.kind[mine]]), values[mine])
        tables.append(table / steps)
    return tables[0], tables[1]


def _each_more(executed: Floats, self_ps: Floats) -> Floats:
    """What one more execution takes, from every pair of windows that lie at least half of all growth apart.

    Not the mean of all: those that were there from the start may be larger, and are of no account.
    """
    i, j = np.triu_indices(len(executed), 1)
    more = executed[j] - executed[i]
    apart = more >= (executed.max() - executed.min()) / 2
    return np.asarray((self_ps[j] - self_ps[i])[apart] / more[apart], np.float64)


def _tau(values: Floats) -> float:
    """Kendall's tau-a of values with their order: pairs that rise less pairs that fall, of all pairs."""
    i, j = np.triu_indices(len(values), 1)
    return float(np.sign(values[j] - values[i]).mean())
