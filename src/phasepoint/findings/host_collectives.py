"""Collectives that a thread of the host runs (gloo, MPI, UCC), which PyTorch's profiler shows as the host's work."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.statistics import quantile_ps
from phasepoint.findings.op_estimates import Estimate, estimate_of_steps
from phasepoint.findings.view import FindingsView
from phasepoint.phases.captured import PARTS

_NAMES = "^(gloo|mpi|ucc):"
_EXPOSED_IN = tuple(PARTS.index(name) for name in ("communication", "host", "idle"))


def host_collectives(view: FindingsView, undisturbed: float) -> tuple[Estimate, tuple[str, ...]] | None:
    """What they take of the steps with nothing computed meanwhile, and their names; None where none ran.

    Args:
        view: the run.
        undisturbed: quantile of the times of a step's collectives that is taken for the exchange: of the shortest
            among the hosts, where several saw a step; what is beyond it is waiting.
    """
    ops, captured = view.table("ops"), view.captured
    ops = ops.filter(pc.match_substring_regex(ops.column("op").cast(pa.string()), _NAMES))
    index = captured.index_of(view.keys.rows_of(ops))
    known = index >= 0
    if not known.any():
        return None
    took_ps = np.bincount(index[known], ops.column("self_ps").to_numpy()[known], len(captured.row))
    seen = np.flatnonzero(took_ps)
    steps, met, hosts = np.unique(view.clock.step[captured.row[seen]], return_inverse=True, return_counts=True)
    shortest = np.full(len(steps), np.inf)
    np.minimum.at(shortest, met.ravel(), took_ps[seen])
    several = hosts > 1 if (hosts > 1).any() else hosts > 0
    usual_ps = quantile_ps(shortest[several].astype(np.int64), undisturbed)
    exposed_ps = captured.parts_ps[:, _EXPOSED_IN].sum(axis=1)
    saved_ps = np.minimum(np.minimum(took_ps, usual_ps), exposed_ps)
    everywhere = np.arange(len(captured.row))
    names = tuple(pc.unique(ops.column("op").cast(pa.string())).to_pylist())
    return estimate_of_steps(view, "communication", everywhere, saved_ps.astype(np.float64)), names
