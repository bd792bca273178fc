"""The ops that took most of a phase's captured time."""

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.phases.result import TopOp
from phasepoint.phases.vectors import OpVectors

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
