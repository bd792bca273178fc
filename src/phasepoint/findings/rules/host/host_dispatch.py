"""The host cannot issue work fast enough: the device waits while the training thread launches many small pieces.

**Formula.** In the captured steps: the device's idle time in which the training thread was launching work, or was
between two launches less than {PIECE_TOLD} apart; with rows of {ROW_TOLD} or more launches and the tiny executions
among them, if these wait for their launch (nothing is executed for half of the time or more). A step counts with at
most {MOST_RATIO:g} times the median step's time: a single launch that was delayed is another cause. The time by which
captured steps exceed their neighbours is subtracted, because the profiler lengthens every call. Extrapolated to the run
by phase.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on (from {LEAST_SHARE_INLINE:.0%} where the calling
thread executes the work itself, as PyTorch does on a CPU: there a gap between two calls is part of every call), with at
least {LEAST_LAUNCHES} launches a step: a single program has to be launched anyway.
{KNOWN_TOLD}.

**Remedy.** Issue fewer, larger pieces. JAX: put the whole step under one `jax.jit`, with the loop over small arrays
inside (`jax.tree.map`, `jax.vmap`, `jax.lax.scan`). PyTorch: `torch.compile(mode="reduce-overhead")` or
`torch.cuda.graphs`; fused and foreach optimizers; one call on a stacked tensor instead of a loop over tensors.

**Wrong when** the pieces depend on values that Python has to look at between them.

**Source.** Events of the training thread in the windows.
"""

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.statistics import median_ps
from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.estimates.run_time import RunTime
from phasepoint.findings.evidence.host_time import OWN_PIECE_PS, HostTime, read_host_time
from phasepoint.findings.evidence.over_run import WELL_KNOWN, confidence_of, without_slowdown, worth_telling
from phasepoint.findings.evidence.window_spans import LEAST_ROW
from phasepoint.findings.finding import Claim, Evidence, Finding
from phasepoint.findings.view import FindingsView
from phasepoint.stack.work.idle_account import FEW_LAUNCHES

LEAST_SHARE = 0.04
KNOWN_TOLD = WELL_KNOWN
LEAST_SHARE_INLINE = 0.12
LEAST_LAUNCHES = FEW_LAUNCHES
MOST_RATIO = 3.0
PIECE_TOLD = format_ps(OWN_PIECE_PS)
ROW_TOLD = str(LEAST_ROW)


def find(view: FindingsView) -> list[Finding]:
    """Idle time while work is launched."""
    view.need_estimate()
    host = view.once(read_host_time)
    launches = float(np.median(host.launches))
    if launches < LEAST_LAUNCHES:
        return []
    least = LEAST_SHARE_INLINE if host.is_inline else LEAST_SHARE
    lost = worth_telling(view, without_slowdown(view, host, _issuing(host)), least)
    return [] if lost is None else [_finding(view, host, lost, launches)]


def _issuing(host: HostTime) -> Int64s:
    """`[n]` time of each captured step that goes into issuing work, at most `MOST_RATIO` times the median."""
    if host.account is not None:
        return host.dispatch_ps
    time_ps = host.dispatch_ps + host.issue_ps if host.is_host_bound else host.dispatch_ps
    return np.minimum(time_ps, int(MOST_RATIO * median_ps(time_ps)))


def _title(host: HostTime, lost: RunTime, share: float, launches: float) -> str:
    count = format_count(round(launches))
    if host.account is None:
        return (
            f"the device waits {format_ps(lost.total_ps)} for the host to issue work, {format_ratio(share)} of the "
            f"run: {count} launches a step"
        )
    each_ps = lost.total_ps // max(int(host.launches.sum()), 1)
    return (
        f"{host.account.busy_text}; for {format_ps(lost.total_ps)}, {format_ratio(share)} of the run, it waits for the "
        f"host, which launches piece by piece: {count} times a step, with {format_ps(each_ps)} of idle before each"
    )


def _finding(view: FindingsView, host: HostTime, lost: RunTime, launches: float) -> Finding:
    share = lost.total_ps / view.clock.wall_ps
    return Finding(
        code="HOST-DISPATCH",
        title=_title(host, lost, share, launches),
        claim=Claim("idle" if host.account is None else "host", lost.by_step),
        low_ps=lost.low_ps,
        high_ps=lost.high_ps,
        phase=view.phase_of_most(lost.by_step),
        remedy=view.of_framework(
            torch='issue fewer, larger pieces: torch.compile(mode="reduce-overhead") or CUDA graphs around the step; '
            "fused or foreach optimizers, one call on a stacked tensor instead of a loop",
            jax="put the whole step under one jax.jit; jax.vmap or jax.tree.map inside it instead of loops over arrays",
        ),
        evidence=(
            Evidence(
                f"{format_count(round(launches))} launches in the median captured step",
                "spans",
                "select name, count(*) as launches, sum(dur_ps) as total_ps from spans where name like 'PjitFunction%' "
                "or name like '%Launch%' or name like 'aten::%' group by name order by launches desc",
            ),
        ),
        confidence=confidence_of(lost),
        wrong_if="Python has to look at values between the pieces",
    )
