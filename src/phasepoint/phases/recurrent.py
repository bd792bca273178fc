"""Recurring phases: kinds of step from hints and ops, levels, cycles and events from the step clock. The default."""

import numpy as np

from phasepoint.phases.clock_labels import label_by_clock
from phasepoint.phases.op_kinds import kinds_by_ops
from phasepoint.phases.op_labels import refine_by_ops
from phasepoint.phases.result import IntArray, Labelling
from phasepoint.phases.vectors import OpVectors, StepSeries

_ALL = 0.98
"""Captured part of a group of steps from which on ops alone say which kind a step is."""


def label_recurrent(series: StepSeries, vectors: OpVectors | None) -> Labelling:
    """Label the run: hints first, ops where every step was seen, then the clock, then ops where some steps were.

    Hints (`kind`) keep steps apart whatever the clock says; within a hint there may be several levels.
    """
    values = np.log(np.maximum(series.dur_ps, 1))
    compiles = _compiling(series)
    kind, notes = _op_kinds(series.n, vectors)
    label = np.zeros(series.n, np.int64)
    slow = np.zeros(series.n, bool)
    roles: dict[int, str] = {}
    next_label = 0
    for members in _groups(series, kind):
        found = label_by_clock(values[members], compiles[members])
        mine = refine_by_ops(found.label, kind[members], values[members])
        roles |= {next_label + number: role for number, role in found.roles.items()}
        label[members], slow[members] = next_label + mine, found.slow
        next_label += int(mine.max()) + 1
    return Labelling(label, notes, roles, slow)


def _compiling(series: StepSeries) -> np.ndarray:
    """Steps that spent more than half of their time compiling, `[n]`."""
    if series.compile_ps is None:
        return np.zeros(series.n, bool)
    return np.asarray(2 * series.compile_ps > series.dur_ps)


def _op_kinds(n: int, vectors: OpVectors | None) -> tuple[IntArray, tuple[str, ...]]:
    """Kind by ops of every step `[n]`, -1 where it was not captured, and notes."""
    kind = np.full(n, -1, np.int64)
    if vectors is None:
        return kind, ("no step was captured: steps of equal duration could not be told apart",)
    kind[vectors.index], unknown = kinds_by_ops(vectors)
    if unknown:
        return kind, (f"{unknown} captured steps ran too many different op sets to be compared",)
    return kind, ()


def _groups(series: StepSeries, kind: IntArray) -> list[IntArray]:
    """Steps that hints, and ops where nearly all steps were captured, keep together, in order of appearance."""
    groups = []
    for hint in range(-1, len(series.kinds)):
        members = np.flatnonzero(series.kind == hint)
        if len(members) == 0:
            continue
        known = kind[members] >= 0
        if known.mean() < _ALL:
            groups.append(members)
            continue
        common = np.bincount(kind[members][known]).argmax()
        mine = np.where(known, kind[members], common)
        groups += [members[mine == number] for number in np.unique(mine)]
    return groups
