"""`detect_phases`: one door to every method; and from its labels to phases, with shares, periods, names and top ops."""

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import first_rows, renumber
from phasepoint.core.statistics import median
from phasepoint.phases.detection.naming import KnownOfJob, PhaseEvidence, RanOps, name_phases
from phasepoint.phases.detection.result import Labelling, Phase, PhaseResult, Segments, TopOp
from phasepoint.phases.detection.table import DEFAULT_METHOD, find_method
from phasepoint.phases.detection.vectors import DistinctSteps, OpVectors, read_ops, read_steps


def detect_phases(
    steps: pa.Table, ops: pa.Table | None = None, *, method: str = DEFAULT_METHOD, known: KnownOfJob | None = None
) -> PhaseResult:
    """Find the phases of a run: classes of steps that behave alike.

    Rows may come in any order; the tables are not changed; the same tables give the same result.
    One step is one phase.

    Args:
        steps: one row per step: `step`, `dur_ps` (ps); optionally `input_ps`, `compile_ps`, `crowded_ps`, `saved_ps`
            (ps, held by checkpoints), `spared_ps` (ps, by a window's edge), `batch_elements`, `graph_nodes`,
            `start_ps`, `kind`, `host`, `attempt`. A step that several hosts report is one step, as long as its slowest
            host.
        ops: rows of the captured steps only: `step`, `op`, `count`, `self_ps` (ps); optionally `category`, `level`,
            `host`, `attempt`. Rows whose step is null are work outside the steps and take no part.
        method: a key of `METHODS`.
        known: what is known of the job as a whole, for the names of its phases.

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
    phases = describe_phases(series, vectors, labelling, known or KnownOfJob())
    order = np.argsort(series.row, kind="stable").astype(np.int64)
    slow = np.zeros(series.n_steps, bool) if labelling.slow is None else labelling.slow
    lost = np.zeros(series.n_steps) if labelling.lost is None else labelling.lost
    return PhaseResult(
        labels=labelling.labels[series.row],
        steps=series.step[series.row],
        order=order,
        segments=Segments(labelling.labels, series.step),
        phases=phases,
        method=method,
        slow=slow[series.row],
        lost=lost[series.row],
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


N_TOP = 10
"""Ops kept per phase."""


def top_ops_by_phase(vectors: OpVectors, labels: Int64s, n_phases: int) -> tuple[tuple[TopOp, ...], ...]:
    """The `N_TOP` ops by self time of every phase, in ps, largest first; ties by name.

    Args:
        vectors: ops of the captured steps.
        labels: phase per step in the run's order, `[n]`.
        n_phases: phases, numbered from 0.
    """
    n_ops = len(vectors.names)
    phase_of = labels[vectors.index]
    self_ps, count = np.zeros((2, n_phases * n_ops), np.int64)
    for steps, entries in vectors.blocks():
        lengths = np.diff(np.append(vectors.start[steps], entries.stop))
        cell = np.repeat(phase_of[steps], lengths) * n_ops + vectors.op[entries]
        self_ps += _exact_sums(cell, vectors.self_ps[entries], len(self_ps))
        count += _exact_sums(cell, vectors.count[entries], len(count))
    self_ps, count = self_ps.reshape(n_phases, n_ops), count.reshape(n_phases, n_ops)
    ran = [np.flatnonzero(count[number] | self_ps[number]) for number in range(n_phases)]
    return tuple(_top_ops(vectors, op, self_ps[number, op], count[number, op]) for number, op in enumerate(ran))


def _exact_sums(group: Int64s, values: Int64s, n_groups: int) -> Int64s:
    """Sums in integers: a float cannot hold a day of picoseconds to the last one."""
    low, high = values & 0xFFFFFF, values >> 24
    return np.asarray(
        (np.bincount(group, high, n_groups).astype(np.int64) << 24)
        + np.bincount(group, low, n_groups).astype(np.int64),
        np.int64,
    )


def _top_ops(vectors: OpVectors, op: Int64s, self_ps: Int64s, count: Int64s) -> tuple[TopOp, ...]:
    total_ps = int(self_ps.sum())
    names = [vectors.names[code] for code in op.tolist()]
    best = sorted(range(len(names)), key=lambda i: (-int(self_ps[i]), names[i]))[:N_TOP]
    return tuple(
        TopOp(
            op=names[i],
            category=vectors.categories[int(op[i])],
            self_ps=int(self_ps[i]),
            count=int(count[i]),
            share=int(self_ps[i]) / total_ps if total_ps else 0.0,
        )
        for i in best
    )


_REGULAR = 0.25
"""A return is on time within this part of the median distance between returns."""


_TRAINS = re.compile(
    r"backward|\b[dw]grad|_grad_(input|weight|kernel)|grad_(weight|bias)|[_:]bwd|bwd_|optimi[sz]er|_foreach_(?!copy)"
    r"|_fused_(adam|sgd|adagrad)|addcdiv|multi_tensor_(adam|sgd|lamb)",
    re.IGNORECASE,
)
"""Ops and kernels of a backward pass or an optimizer: PyTorch, cuDNN, MIOpen, Triton, Transformer Engine."""

_TELLS = re.compile(r"^(aten|torch|c10d|autograd)::")
"""Ops of a framework whose backward pass and optimizers show by their names."""


def describe_phases(
    series: DistinctSteps, vectors: OpVectors | None, labelling: Labelling, known: KnownOfJob
) -> tuple[Phase, ...]:
    """A `Phase` per label, in order of label.

    Args:
        series: the run's steps.
        vectors: ops of the captured steps, null where there are none.
        labelling: labels numbered from 0 without gaps.
        known: as in `detect_phases`.
    """
    labels = labelling.labels
    n_phases = int(labels.max()) + 1
    tops: tuple[tuple[TopOp, ...], ...] = ((),) * n_phases
    ran = [RanOps()] * n_phases
    captured = np.zeros(series.n_steps, bool)
    if vectors is not None:
        tops, ran = top_ops_by_phase(vectors, labels, n_phases), _ops_by_phase(vectors, labels, n_phases)
        captured[vectors.index] = True
    in_order = np.argsort(labels, kind="stable")
    members = np.split(in_order, np.cumsum(np.bincount(labels))[:-1])
    evidence = [
        _evidence(series, labelling, number, members[number], ran=ran[number], updates=known.updates)
        for number in range(n_phases)
    ]
    names = name_phases(evidence, known)
    seen = [member[captured[member]] for member in members]
    return tuple(
        replace(
            _phase(series, evidence[number], members[number], seen[number]),
            **names[number]._asdict(),
            top_ops=tops[number],
        )
        for number in range(n_phases)
    )


def _evidence(
    series: DistinctSteps,
    labelling: Labelling,
    number: int,
    member: Int64s,
    *,
    ran: RanOps,
    updates: bool,
) -> PhaseEvidence:
    dur_ps = series.dur_ps[member]
    total_ps = int(dur_ps.sum())
    kind = series.kind[member]
    hinted = kind[kind >= 0]
    starts = member[np.diff(member, prepend=-2) != 1]
    nodes, elements = (
        of[member][of[member] >= least] for of, least in ((series.graph_nodes, 0), (series.batch_elements, 1))
    )
    return PhaseEvidence(
        number=number,
        role=labelling.roles.get(number),
        n_steps=len(member),
        n_run=series.n_steps,
        first_index=int(member[0]),
        last_index=int(member[-1]),
        starts=starts,
        total_ps=total_ps,
        median_ps=int(median(dur_ps)),
        compile_share=_share(series.compile_ps, member, total_ps) if series.compile_known else None,
        input_share=_share(series.input_ps, member, total_ps) if series.input_known else None,
        hint=series.kinds[int(np.bincount(hinted).argmax())] if 2 * len(hinted) > len(member) else None,
        ran=ran,
        saved_ps=int(median(series.saved_ps[member])),
        updates=updates,
        graph_nodes=int(median(nodes)) if 2 * len(nodes) > len(member) else None,
        batch_elements=int(median(elements)) if 2 * len(elements) > len(member) else None,
        period=find_return_period(starts),
    )


def _ops_by_phase(vectors: OpVectors, labels: Int64s, n_phases: int) -> list[RanOps]:
    """What the captured steps of each phase ran."""
    n_ops, n_keys = len(vectors.names), int(vectors.key.max()) + 1
    phase_of = labels[vectors.index]
    ops, keys = np.zeros(n_phases * n_ops, bool), np.zeros(n_phases * n_keys, bool)
    for steps, entries in vectors.blocks():
        phase = np.repeat(phase_of[steps], np.diff(np.append(vectors.start[steps], entries.stop)))
        ops[phase * n_ops + vectors.op[entries]] = True
        keys[phase * n_keys + vectors.key[entries]] = True
    found = []
    for row, of_programs in zip(ops.reshape(n_phases, n_ops), keys.reshape(n_phases, n_keys), strict=True):
        names = frozenset(vectors.names[op] for op in np.flatnonzero(row))
        key = frozenset(np.flatnonzero(of_programs).tolist()) if vectors.knows_programs else None
        ops_alone = [name for name in names if ".py(" not in name]  # a frame of Python may be called anything
        found.append(RanOps(names, key, any(map(_TRAINS.search, ops_alone)), sum(map(bool, map(_TELLS.match, names)))))
    return found


def _share(part_ps: Int64s, member: Int64s, total_ps: int) -> float | None:
    return int(part_ps[member].sum()) / total_ps if total_ps else None


def _phase(series: DistinctSteps, evidence: PhaseEvidence, member: Int64s, seen: Int64s) -> Phase:
    """The phase before it is named; `seen` are the members that a window saw."""
    run_ps = int(series.dur_ps.sum())
    weight = evidence.total_ps / run_ps if run_ps else len(member) / series.n_steps
    return Phase(
        id=evidence.number,
        name="",
        n_steps=len(member),
        n_segments=len(evidence.starts),
        n_captured=len(seen),
        total_ps=evidence.total_ps,
        share=weight,
        median_ps=evidence.median_ps,
        period_steps=evidence.period,
        representative=_representative(series, seen if len(seen) else member, evidence.median_ps),
        weight=weight,
    )


def _representative(series: DistinctSteps, member: Int64s, median_ps: int) -> int:
    """The step whose duration is nearest to the phase's median; the earliest of equals."""
    return int(series.step[member[np.abs(series.dur_ps[member] - median_ps).argmin()]])


def find_return_period(starts: Int64s) -> float | None:
    """Median distance in steps between the starts of a phase's segments, `[n_segments]`.

    Null where it starts fewer than three times or where fewer than half of the returns are on time, or these make less
    than half of the time from the first start to the last: bursts that return at random are not regular.
    """
    if len(starts) < 3:
        return None
    distance = np.diff(starts)
    period = float(np.median(distance))
    on_time = np.abs(distance - period) <= _REGULAR * period
    return period if on_time.mean() >= 0.5 and 2 * distance[on_time].sum() >= distance.sum() else None
