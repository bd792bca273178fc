"""The job's hosts side by side, and which of them holds the others up."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.statistics import median_absolute_deviation_ps, median_ps
from phasepoint.core.units import format_ps, format_ratio
from phasepoint.phases.clock.breakdown import Anatomy
from phasepoint.phases.clock.steps import RunClock, sum_ps

STRAGGLER_RATIO = 0.05
"""A host is called a straggler from 5 % over the hosts' median on: less is within what hosts differ by anyway."""

ERRORS = 3
"""Standard errors by which it must stand out."""


@dataclass(frozen=True)
class HostSummary:
    """One host (process, rank) of the job, all its attempts together.

    Attributes:
        host: rank.
        attempts: attempts that belong to the run's history.
        state: closed, live or killed: of its newest attempt.
        steps: steps recorded.
        wall_ps: time of its sessions.
        inside_ps: time inside steps.
        median_ps: median step time, None with no steps.
        input_ps: measured wait for input, None where not seen.
        windows: windows captured.
        slower: its own part of the median step (less the wait for others, where seen) over the hosts' median, less 1;
            None on a single host.
        straggler: whether it stands out from the other hosts.
        note: what to look at, None where nothing stands out.
        anatomy: inside_ps by what it served; None where no captured step tells.
    """

    host: int
    attempts: int
    state: str
    steps: int
    wall_ps: int
    inside_ps: int
    median_ps: int | None
    input_ps: int | None
    windows: int
    slower: float | None
    straggler: bool
    note: str | None
    anatomy: Anatomy | None = None


@dataclass(frozen=True)
class HostWait:
    """How long a host waits for the others in a step.

    Attributes:
        median_ps: of the steps that were captured.
        error_ps: standard error of it.
    """

    median_ps: int
    error_ps: float


def compare_hosts(clock: RunClock, windows: pa.Table, waits: Mapping[int, HostWait]) -> tuple[HostSummary, ...]:
    """One row per host. A straggler is judged by its own part of the step, where every host's wait is known.

    In a synchronous job every host's steps last equally long, since all wait for the slowest; what tells the slowest
    apart is the time it does not spend waiting.

    Args:
        clock: the run's steps.
        windows: columns `host`.
        waits: host → its wait in a step, as windows saw it.
    """
    hosts = sorted({session.host for session in clock.sessions})
    known = waits if set(hosts) <= set(waits) else {}
    own = {
        host: max(median_ps(clock.dur_ps[mine]) - (known[host].median_ps if known else 0), 0)
        for host in hosts
        if (mine := clock.host == host).any()
    }
    usual = _Usual(
        statistics.median(own.values()) if len(own) > 1 else None,
        max((wait.error_ps for wait in known.values()), default=0.0),
    )
    return tuple(_summarize(clock, windows, host, own.get(host), usual) for host in hosts)


@dataclass(frozen=True)
class _Usual:
    """The hosts' median own part of a step, None for a single host; how well waits are known."""

    own_ps: float | None
    error_ps: float


def _summarize(clock: RunClock, windows: pa.Table, host: int, own_ps: int | None, usual: _Usual) -> HostSummary:
    sessions = clock.of_host(host)
    mine = clock.host == host
    dur_ps: Int64s = clock.dur_ps[mine]
    usual_ps = usual.own_ps
    slower, noise = None, 0.0
    if own_ps is not None and usual_ps:  # a host without steps has no part of its own
        slower = own_ps / usual_ps - 1
        noise = _noise(dur_ps) + ERRORS * usual.error_ps / usual_ps
    straggler = slower is not None and slower > max(STRAGGLER_RATIO, noise)
    note = None
    if straggler and own_ps is not None and usual_ps is not None:
        note = f"its own part of a step takes {format_ps(own_ps)}, {format_ratio(slower)} more than the hosts' median"
    return HostSummary(
        host=host,
        attempts=len(sessions),
        state=sessions[-1].state,
        steps=len(dur_ps),
        wall_ps=sum(session.wall_ps for session in sessions),
        inside_ps=sum_ps(dur_ps),
        median_ps=median_ps(dur_ps) if len(dur_ps) else None,
        input_ps=sum_ps(clock.input_ps[mine]) if clock.input_known else None,
        windows=int(pc.sum(pc.equal(windows.column("host"), host)).as_py() or 0),
        slower=slower,
        straggler=straggler,
        note=note,
    )


def _noise(dur_ps: Int64s) -> float:
    """Standard error of the median, relative, three times over."""
    return ERRORS * median_error_ps(dur_ps, len(dur_ps)) / max(median_ps(dur_ps), 1)


def median_error_ps(values_ps: Int64s, independent: int) -> float:
    """Standard error of a median: 1.25 × 1.48 × MAD / √n for normal noise.

    Args:
        values_ps: at least one.
        independent: how many of them count as independent.
    """
    return float(1.86 * median_absolute_deviation_ps(values_ps) / np.sqrt(max(independent, 1)))
