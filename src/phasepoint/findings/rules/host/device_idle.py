"""The device stands idle while the training thread runs code of its own: neither computing nor launching anything.

**Formula.** In the captured steps: the device's idle stretches in which the training thread called nothing that the
profiler sees for {PIECE_TOLD} or more (Python, sleeping, files, other libraries), and the part of the idle time after a
wait for the device that could not be hidden behind the wait. Waiting for input, checkpoints and compiling belong to
other rules, and so do the idle times of SYNC-EVERY-STEP, HOST-DISPATCH and TINY-KERNELS. Extrapolated to the run by
phase.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on: other processes on the same cores
cause a few percent of idle time, which vary from window to window. {PIECE_TOLD} is ten times as long as a call.
{KNOWN_TOLD}.

**Remedy.** Find what the loop does between its steps (`py-spy dump`, `cProfile`) and move it to another thread or
process, or do it every so many steps: logging, plotting, metrics, writing files, augmentation. Let the host run ahead:
issue the next step before looking at the last one.

**Wrong when** only a part of the device's work is seen (another process computes on it, or the profiler saw only part
of it), or the code must run between two steps.

**Source.** Device and training thread in the windows.
"""

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.estimates.run_time import RunTime
from phasepoint.findings.evidence.host_time import OWN_PIECE_PS, read_host_time
from phasepoint.findings.evidence.over_run import WELL_KNOWN, confidence_of, worth_telling
from phasepoint.findings.finding import Claim, Evidence, Finding
from phasepoint.findings.view import FindingsView

LEAST_SHARE = 0.04
KNOWN_TOLD = WELL_KNOWN
PIECE_TOLD = format_ps(OWN_PIECE_PS)


def find(view: FindingsView) -> list[Finding]:
    """Idle time in the loop's own code."""
    view.need_steps()
    host = view.once(read_host_time)
    lost = worth_telling(view, host.rest_ps, LEAST_SHARE)
    return [] if lost is None else [_finding(view, lost, host.rest_ps)]


def _finding(view: FindingsView, lost: RunTime, idle_ps: Int64s) -> Finding:
    share, steps = lost.total_ps / view.clock.wall_ps, int((idle_ps > 0).sum())
    usual_ps = int(np.median(idle_ps))
    return Finding(
        code="DEVICE-IDLE",
        title=f"the device is idle for {format_ps(lost.total_ps)}, {format_ratio(share)} of the run, while the loop's "
        f"own code runs ({format_ps(usual_ps)} in the median step)",
        claim=Claim("idle", lost.by_step),
        low_ps=lost.low_ps,
        high_ps=lost.high_ps,
        phase=view.phase_of_most(lost.by_step),
        remedy="move what the loop does between its steps (logging, metrics, files, Python) to another thread or "
        "process, or do it every 50 steps; py-spy dump shows what it is; issue the next step before looking at the "
        "last one's result",
        evidence=(
            Evidence(
                f"{format_count(steps)} of {format_count(len(idle_ps))} captured steps have such idle time",
                "breakdowns",
                'select host, "window", step, device, wall_ps from breakdowns '
                "where category = 'idle' order by wall_ps desc",
            ),
        ),
        confidence=confidence_of(lost),
        wrong_if="the device works for somebody whom the profiler does not see, or the code must run between two steps",
    )
