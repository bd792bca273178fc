"""`detect_phases`: one door to every method."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import first_rows, renumber
from phasepoint.phases.detection.describe import describe_phases
from phasepoint.phases.detection.result import Labelling, PhaseResult, Segments
from phasepoint.phases.detection.table import DEFAULT_METHOD, find_method
from phasepoint.phases.detection.vectors import read_ops, read_steps


def detect_phases(steps: pa.Table, ops: pa.Table | None = None, *, method: str = DEFAULT_METHOD) -> PhaseResult:
    """Find the phases of a run: classes of steps that behave alike.

    Rows may come in any order; the tables are not changed; the same tables give the same result.
    One step is one phase.

    Args:
        steps: one row per step: `step`, `dur_ps` (ps); optionally `input_ps`, `compile_ps` (ps), `start_ps`, `kind`,
            `host`, `attempt`. A step that several hosts report is one step, as long as its slowest host.
        ops: rows of the captured steps only: `step`, `op`, `count`, `self_ps` (ps); optionally `category`, `level`,
            `host`, `attempt`. Rows whose step is null are work outside the steps and take no part.
        method: a key of `METHODS`.

    Returns:
        Labels per row of `steps` `[n_steps]`, segments, phases, and notes on what limits them.

    Raises:
        NoDataError: `steps` has no rows.
        ValueError: an unknown method; a missing column; nulls or negative values; a step twice on one host;
            ops of a step that `steps` does not hold.

    Example:
        >>> import pyarrow as pa
        >>> steps = pa.table({"step": range(200), "dur_ps": [10**9] * 100 + [2 * 10**9] * 100})
        >>> [(s.first_step, s.last_step) for s in detect_phases(steps).segments]
        [(0, 99), (100, 199)]
    """
    label = find_method(method).label
    series = read_steps(steps)
    vectors = read_ops(ops, series)
    labelling = label(series, vectors)
    labelling = _renumber(labelling)
    phases = describe_phases(series, vectors, labelling)
    order = np.argsort(series.row, kind="stable").astype(np.int64)
    slow = np.zeros(series.n_steps, bool) if labelling.slow is None else labelling.slow
    return PhaseResult(
        labels=labelling.labels[series.row],
        steps=series.step[series.row],
        order=order,
        segments=Segments(labelling.labels, series.step),
        phases=phases,
        method=method,
        slow=slow[series.row],
        notes=labelling.notes,
    )


def _renumber(labelling: Labelling) -> Labelling:
    """The same classes numbered from 0 in order of first appearance."""
    found, codes = renumber(labelling.labels)
    rank = np.empty(len(found), np.int64)
    rank[np.argsort(first_rows(codes), kind="stable")] = np.arange(len(found))
    number = dict(zip(found.tolist(), rank.tolist(), strict=True))
    roles = {number[label]: role for label, role in labelling.roles.items() if label in number}
    labels: Int64s = rank[codes]
    return replace(labelling, labels=labels, roles=roles)
