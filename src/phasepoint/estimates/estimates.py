"""Whole-run totals from the windows: time per category and per op, each with a 95 % interval.

See `estimates/captured.py` for what the time of a captured step is split into, `estimates/cells.py` for how the others
are estimated, and `docs/estimates.md` for both in words, with the coverage that was measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.estimates.captured import (
    PARTS,
    Captured,
    Sampled,
    Stratum,
    assign_strata,
    describe_strata,
    read_captured,
)
from phasepoint.estimates.cells import Fit, fit_cells
from phasepoint.estimates.op_columns import OpColumns, OpKey, read_op_columns
from phasepoint.estimates.totals import Totals, count_windows, predict_rest
from phasepoint.phases.clock.breakdown import FEW, Breakdown, OpTime
from phasepoint.phases.clock.steps import StepSeries, read_series, sum_ps

TOP_OPS = 10
"""Ops listed for the run and for each phase; the others are added up under `other`."""
SLOWDOWN_NOTED = 0.01
"""A slow-down of captured steps from 1 % on is told with the estimates."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """Whole-run totals, and those of each phase.

    Attributes:
        categories: all time inside steps.
        phases: phase id → the time of its steps.
        ops: of the run, by self time, `other` last; empty where no op was captured.
        phase_ops: phase id → likewise.
        sampled: the run as its windows show it, with what each captured step's time went into.
    """

    categories: Breakdown
    phases: Mapping[int, Breakdown]
    ops: tuple[OpTime, ...]
    phase_ops: Mapping[int, tuple[OpTime, ...]]
    sampled: Sampled

    @property
    def seen(self) -> Captured:
        """The captured steps, with what each one's time went into."""
        return self.sampled.captured

    @cached_property
    def window(self) -> Int64s:
        """`[n_steps]`, the converted window that saw each step; -1 where none did."""
        window = np.full(len(self.sampled.stratum), -1, np.int64)
        window[self.seen.row] = self.seen.window
        return window

    @cached_property
    def captured(self) -> Bools:
        """`[n_steps]`, whether a converted window saw the step."""
        return self.window >= 0


def estimate_totals(
    steps: pa.Table,
    windows: pa.Table,
    breakdowns: pa.Table,
    labels: Int64s,
    *,
    ops: pa.Table | None = None,
    programs: pa.Table | None = None,
    names: Mapping[int, str] | None = None,
    confidence: float = 0.95,
) -> Estimates:
    """Whole-run totals from the captured steps, by stratified cluster sampling with the phases as strata.

    Args:
        steps: `step`, `dur_ps`; optionally `input_ps`, `compile_ps`, `host`, `attempt`.
        windows: `window`, `probability`; `host` and `attempt` like steps; `slowdown_cost_ps` for a note.
        breakdowns: `window`, `step`, `device`, `category`, `wall_ps`; `host` and `attempt` like steps.
        labels: `[n_steps]` phase id per row of steps.
        ops: `step`, `op`, `count`, `self_ps`; optionally `window`, `device`, `level`, `category`, `layer`, `program`.
        programs: `program`, `name`, to name the ops' programs.
        names: phase id → name, for the notes.
        confidence: of the intervals, between 0 and 1.

    Returns:
        Totals in ps that close: parts add up to the time of the steps exactly. With every step captured all of them
        are exact and every interval is nil.

    Raises:
        ValueError: labels of another length than steps, or a category that is none of the declared.

    Source: see `estimates/cells.py`.
    """
    if len(labels) != steps.num_rows:
        raise ValueError(f"{len(labels)} labels for {steps.num_rows} steps; one per row is needed")
    sample = _align(read_series(steps), windows, breakdowns, labels)
    columns = None if ops is None else read_op_columns(ops, programs, sample.steps, sample.captured)
    extra = _op_extras(sample, columns)
    fit = fit_cells(sample, extra.of_step)
    rest = predict_rest(fit, sample.strata)
    totals = Totals(sample.strata, fit, rest, _seen_parts(sample), extra.of_stratum, extra.keys, confidence)
    seen_ps = sum_ps(sample.steps.dur_ps[sample.captured.row])
    counts = {phase: count_windows(sample, phase) for phase in (None, *renumber(labels)[0].tolist())}
    notes = _slowdown_notes(windows, seen_ps)
    if counts[None].basis != FEW:  # else nothing is said of how long
        notes = (*borrowing_notes(fit, sample.strata, names or {}), *notes)
    ops_of = {phase: totals.top_ops(phase, TOP_OPS, basis=one.basis) for phase, one in counts.items()}
    return Estimates(
        categories=totals.breakdown(None, counts[None], notes),
        phases={phase: totals.breakdown(phase, one, ()) for phase, one in counts.items() if phase is not None},
        ops=ops_of[None],
        phase_ops={phase: ops for phase, ops in ops_of.items() if phase is not None},
        sampled=sample,
    )


def _seen_parts(sample: Sampled) -> Int64s:
    """Parts of the captured steps of every stratum, exact `[n_strata, len(PARTS)]`."""
    seen = np.zeros((len(sample.strata), len(PARTS)), np.int64)
    np.add.at(seen, sample.of_captured, sample.captured.parts_ps)
    return seen


@dataclass(frozen=True, eq=False)
class _OpExtras:
    """Self time and executions of the picked ops: `[…, 2 * n_picked]`, first all self times, then all executions."""

    keys: tuple[OpKey, ...]
    of_step: Floats
    of_stratum: Int64s


def _align(steps: StepSeries, windows: pa.Table, breakdowns: pa.Table, labels: Int64s) -> Sampled:
    captured = read_captured(steps, windows, breakdowns)
    stratum, hosts, phases = assign_strata(steps, labels)
    strata = describe_strata(steps, captured.row, stratum, hosts, phases)
    names = [steps.host[captured.row], steps.attempt[captured.row], captured.window]
    cluster = np.unique(np.column_stack(names), axis=0, return_inverse=True)[1].ravel()
    return Sampled(steps, captured, strata, stratum, cluster)


def _op_extras(sample: Sampled, columns: OpColumns | None) -> _OpExtras:
    n_captured, n_strata = len(sample.captured.row), len(sample.strata)
    if columns is None or not len(columns.index):
        return _OpExtras((), np.zeros((n_captured, 0)), np.zeros((n_strata, 0), np.int64))
    picked = columns.picked(_pick(sample, columns.sums(sample.of_captured, n_strata, columns.self_ps)))
    both = (picked.self_ps, picked.count)
    of_stratum = np.hstack([picked.sums(sample.of_captured, n_strata, values) for values in both])
    everything_seen = n_captured == len(sample.stratum)  # then there is nothing to estimate from single steps
    of_step = np.zeros((n_captured, of_stratum.shape[1]))
    if not everything_seen:
        of_step = np.hstack([picked.sums(np.arange(n_captured), n_captured, values) for values in both])
    return _OpExtras(picked.keys, of_step.astype(np.float64), of_stratum)


def _pick(sample: Sampled, seen: Int64s) -> Int64s:
    """Ops that may be among the largest of the run or of a phase, by their captured time raised to the whole."""
    raised = np.array([s.total_ps / (s.total_ps - s.rest_ps) if s.total_ps > s.rest_ps else 0 for s in sample.strata])
    likely = seen * raised[:, None]
    phases = np.array([s.phase for s in sample.strata])
    rows = [likely.sum(axis=0), *(likely[phases == phase].sum(axis=0) for phase in np.unique(phases))]
    best = [np.argsort(-row, kind="stable")[: 2 * TOP_OPS] for row in rows]
    picked = np.unique(np.concatenate(best))
    return np.asarray(picked[likely[:, picked].any(axis=0)], np.int64)


def borrowing_notes(fit: Fit, strata: Sequence[Stratum], names: Mapping[int, str]) -> tuple[str, ...]:
    """Which phases rest on others' windows, or on windows opened by choice, and how much of the time that is."""
    total_ps = max(sum(stratum.total_ps for stratum in strata), 1)
    notes = []
    known = np.array([fit.base[group] is not None for group in fit.cells.group.tolist()], bool)
    by_choice = np.array([fit.by_choice[group] for group in fit.cells.group.tolist()], bool)
    for which, words in (
        (
            fit.cells.borrowed & known,
            "had too few windows of their own: estimated from the most similar phase, with wider intervals",
        ),
        (by_choice & known, "had no random windows, only some that the recorder placed: their intervals are rough"),
    ):
        rest = [stratum for stratum, mine in zip(strata, which.tolist(), strict=True) if mine and stratum.rest_ps]
        if not rest:
            continue
        listed = list(dict.fromkeys(names.get(s.phase, f"phase {s.phase}") for s in rest))
        named = ", ".join(listed[:3]) + (f" and {len(listed) - 3} more phases" if len(listed) > 3 else "")
        share = 100 * sum(stratum.rest_ps for stratum in rest) / total_ps
        notes.append(f"{named} ({share:.2g} % of the time) {words}")
    return tuple(notes)


def _slowdown_notes(windows: pa.Table, seen_ps: int) -> tuple[str, ...]:
    """The bias that capture itself brings, where the recorder measured it."""
    if "slowdown_cost_ps" not in windows.column_names or not seen_ps:
        return ()
    slower = (pc.sum(windows.column("slowdown_cost_ps")).as_py() or 0) / seen_ps
    if slower < SLOWDOWN_NOTED:
        return ()
    return (
        f"captured steps ran {100 * slower:.0f} % slower than their neighbours; shares are those of captured steps",
    )
