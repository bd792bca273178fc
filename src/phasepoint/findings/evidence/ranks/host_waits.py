"""What each host does of a step itself, apart from waiting in collectives for the others.

Collectives that a thread of the host runs (gloo, MPI, UCC) PyTorch's profiler shows as the host's work.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.statistics import MAD_TO_SIGMA, quantile_ps
from phasepoint.estimates.captured import PARTS
from phasepoint.estimates.run_time import RunTime
from phasepoint.findings.evidence.device_ops import time_of_steps
from phasepoint.findings.evidence.window_spans import COLLECTIVES
from phasepoint.findings.view import FindingsView

_NAMES = "^(gloo|mpi|ucc):"
_EXPOSED_IN = tuple(PARTS.index(name) for name in ("communication", "host", "idle"))


def host_collectives(view: FindingsView, undisturbed: float) -> tuple[RunTime, tuple[str, ...]] | None:
    """What they take of the steps with nothing computed meanwhile, and their names; None where none ran.

    In a step that several hosts saw, the one that came last does not wait: the shortest of their times is the exchange.
    Where one host saw a step, no more than the mean of these counts.

    Args:
        view: the run.
        undisturbed: quantile of a host's times that counts as the exchange where no step was seen by two.
    """
    ops, captured = view.table("ops"), view.captured
    ops = ops.filter(pc.match_substring_regex(ops.column("op").cast(pa.string()), _NAMES))
    index = captured.index_of(view.clock.rows_of(ops))
    known = index >= 0
    if not known.any():
        return None
    took_ps = np.bincount(index[known], ops.column("self_ps").to_numpy()[known], len(captured.row))
    seen = np.flatnonzero(took_ps)
    _, met, hosts = np.unique(view.clock.step[captured.row[seen]], return_inverse=True, return_counts=True)
    shortest_ps = np.full(len(hosts), np.inf)
    np.minimum.at(shortest_ps, met.ravel(), took_ps[seen])
    several = hosts > 1
    usual_ps = shortest_ps[several].mean() if several.any() else quantile_ps(took_ps[seen], undisturbed)
    exchange_ps = took_ps.astype(np.float64)
    exchange_ps[seen] = np.where(several, shortest_ps, np.minimum(shortest_ps, usual_ps))[met.ravel()]
    exposed_ps = captured.parts_ps[:, _EXPOSED_IN].sum(axis=1)
    saved_ps = np.minimum(exchange_ps, exposed_ps)
    everywhere = np.arange(len(captured.row))
    names = tuple(pc.unique(ops.column("op").cast(pa.string())).to_pylist())
    return time_of_steps(view, everywhere, saved_ps), names


_MARKED = f"^({'|'.join(COLLECTIVES)})"
"""Collectives as PyTorch's process groups mark them, whatever category they were given."""

_OF_MEDIAN = 1.2533
"""Standard error of a median, in those of a mean: √(π/2), for normal scatter."""


@dataclass(frozen=True, eq=False)
class OwnTime:
    """One host's own part of its steps.

    Attributes:
        host: rank.
        own_ps: median duration of all steps less the median wait, which scatters less than the steps do.
        error_ps: its standard error.
        wait_ps: median of the wait.
        dur_ps: median step time, of all its steps.
        parts_ps: `[len(PARTS)]` medians of what captured steps went into; zeros where none was captured.
        parts_error_ps: `[len(PARTS)]` their standard errors.
        windows: windows that these steps stand in.
    """

    host: int
    own_ps: float
    error_ps: float
    wait_ps: float
    dur_ps: float
    parts_ps: Int64s
    parts_error_ps: Floats
    windows: int


def own_times(view: FindingsView) -> tuple[OwnTime, ...]:
    """By host; hosts of which no wait is known are left out.

    The wait is that of the captured steps: the time charged to communication, or the collectives that the framework
    marks, whichever is more.
    """
    rows = view.captured.row
    communication_ps = view.captured.parts_ps[:, PARTS.index("communication")]
    wait_ps = np.minimum(np.maximum(communication_ps, _marked_ps(view)[rows]), view.clock.dur_ps[rows])
    host = view.clock.host[rows]
    return tuple(_of_host(view, rows[host == one], wait_ps[host == one]) for one in np.unique(host).tolist())


def _of_host(view: FindingsView, rows: Int64s, wait_ps: Int64s) -> OwnTime:
    clock, host = view.clock, int(view.clock.host[rows[0]])
    at = np.flatnonzero(np.isin(view.captured.row, rows))
    parts_ps = view.captured.parts_ps[at]
    windows = len(np.unique(view.captured.window[at]))
    dur_ps = clock.dur_ps[clock.host == host]
    middle_ps, middle_wait_ps = float(np.median(dur_ps)), float(np.median(wait_ps))
    # Steps of one window stand near one another and share what slowed them: only windows count as independent.
    errors_ps = (_spread(wait_ps) / np.sqrt(windows), _spread(dur_ps) / np.sqrt(len(dur_ps)))
    return OwnTime(
        host=host,
        own_ps=middle_ps - middle_wait_ps,
        error_ps=_OF_MEDIAN * float(np.hypot(*errors_ps)),
        wait_ps=middle_wait_ps,
        dur_ps=middle_ps,
        parts_ps=np.median(parts_ps, axis=0).astype(np.int64) if len(at) else np.zeros(len(PARTS), np.int64),
        parts_error_ps=_OF_MEDIAN
        * np.array([_spread(part) if len(at) else 0 for part in parts_ps.T])
        / np.sqrt(windows),
        windows=windows,
    )


def _spread(values: Int64s) -> float:
    """Robust standard deviation: 1.4826 × the median absolute deviation."""
    return MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values))))


def _marked_ps(view: FindingsView) -> Int64s:
    """`[n_steps]` self time of the collectives that the framework marks."""
    ops, found_ps = view.table("ops"), np.zeros(view.clock.n_steps, np.int64)
    mine = ops.filter(pc.match_substring_regex(ops.column("op").cast(pa.string()), _MARKED))
    rows = view.clock.rows_of(mine)
    np.add.at(found_ps, rows[rows >= 0], mine.column("self_ps").to_numpy()[rows >= 0])
    return found_ps
