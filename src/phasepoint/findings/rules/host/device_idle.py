"""The device stands idle while the training thread runs code of its own: neither computing nor launching anything.

Where every step was captured (an imported trace): the device stands idle, for whatever reason no other rule tells.

**Formula.** In the captured steps: the device's idle stretches in which the training thread called nothing that the
profiler sees for {PIECE_TOLD} or more (Python, sleeping, files, other libraries), and the part of the idle time after a
wait for the device that could not be hidden behind the wait. Waiting for input, checkpoints and compiling belong to
other rules, and so do the idle times of SYNC-EVERY-STEP, HOST-DISPATCH and TINY-KERNELS. Extrapolated to the run by
phase. Where every step was captured and launches are in the trace: the time before a device's first execution, in ops
and calls in which the host stands still for {HELD_TOLD} or more, in nothing that the profiler sees for {PIECE_TOLD} or
more, in the device's queue for as long, after the last execution, and where the launch is not in the trace.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on: other processes on the same cores
cause a few percent of idle time, which vary from window to window. {PIECE_TOLD} is ten times as long as a call.
{KNOWN_TOLD}.

**Remedy.** Find what the loop does between its steps (`py-spy dump`, `cProfile`) and move it to another thread or
process, or do it every so many steps: logging, plotting, metrics, writing files, augmentation. Let the host run ahead:
issue the next step before looking at the last one.

**Wrong when** only a part of the device's work is seen (another process computes on it, or the profiler saw only part
of it), or the code must run between two steps.

**Source.** Device and training thread in the windows; `phasepoint stack RUN --analysis idle-causes` lists stretches.
"""

from collections.abc import Sequence

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.estimates.run_time import RunTime
from phasepoint.findings.evidence.host_time import OWN_PIECE_PS, HostTime, read_host_time
from phasepoint.findings.evidence.over_run import WELL_KNOWN, confidence_of, worth_telling
from phasepoint.findings.finding import Claim, Evidence, Finding
from phasepoint.findings.view import FindingsView
from phasepoint.stack.work.idle_account import HELD_PS, IdleAccount

LEAST_SHARE = 0.04
KNOWN_TOLD = WELL_KNOWN
PIECE_TOLD = format_ps(OWN_PIECE_PS)
HELD_TOLD = format_ps(HELD_PS)

_OWN_CODE = (
    "move what the loop does between its steps (logging, metrics, files, Python) to another thread or "
    "process, or do it every 50 steps; issue the next step before looking at the last one's result"
)
_FIRST_USE = (
    "do one step on dummy data before the loop, so that what loads, allocates or chooses on first use is over; trace "
    "later steps: torch.profiler.schedule(wait=5, warmup=2, active=3); for short jobs CUDA_MODULE_LOADING=EAGER, "
    "torch.backends.cudnn.benchmark = False; copy from pinned memory"
)
_TOLD = {
    "start": ("{ps} pass before its first kernel{names}: the program starts", _FIRST_USE),
    "held": ("{ps} pass in calls{names} that load, allocate, copy or choose", _FIRST_USE),
    "own": ("for {ps} the loop's own code runs", _OWN_CODE),
    "sync": ("for {ps} the host works after it waited for the device", _OWN_CODE),
    "dispatch": ("the host takes {ps} to prepare and launch work{names}", _OWN_CODE),
    "queue": (
        "work that was launched begins {ps} later, behind other queues or work that the trace does not show",
        "begin the trace after a synchronisation, and look at what else uses the device: other streams and processes",
    ),
    "end": ("{ps} pass after its last kernel", _OWN_CODE),
    "unknown": (
        "what the host did for {ps} is not in the trace",
        "record the host's side too: torch.profiler with CPU activities, nsys -t cuda,nvtx, rocprofv3 --runtime-trace",
    ),
}
"""Why the device is idle → how it is told, and what to do about it."""
_LEAST_TOLD = 0.2
"""Ratio of the idle time from which on a reason stands in the title beside the largest: a choice, for two at most."""


def find(view: FindingsView) -> list[Finding]:
    """Idle time in the loop's own code."""
    view.need_estimate()
    host = view.once(read_host_time)
    lost = worth_telling(view, host.rest_ps, LEAST_SHARE)
    return [] if lost is None else [_finding(view, host, lost, host.rest_ps)]


def _reasons(host: HostTime, account: IdleAccount) -> list[tuple[str, int]]:
    """Why the device is idle and for how long, the longest first; what other rules account for left out."""
    left = {why: int(account.of(why).sum()) for why in account.unexplained}
    left["sync"] = int((host.after_sync_ps - host.sync_ps).sum())
    return sorted(left.items(), key=lambda item: -item[1])


def _told(why: str, ps: int, during: Sequence[tuple[str, int]]) -> str:
    """The sentence of a reason, with the op or call that most of its time went on in, where there is such a one."""
    most = next((name for name, lasted in during if 2 * lasted >= ps), None)
    return _TOLD[why][0].format(ps=format_ps(ps), names=f" (most of it in {most})" if most else "")


def _finding(view: FindingsView, host: HostTime, lost: RunTime, idle_ps: Int64s) -> Finding:
    share, steps = lost.total_ps / view.clock.wall_ps, int((idle_ps > 0).sum())
    usual_ps = int(np.median(idle_ps))
    title = (
        f"the device is idle for {format_ps(lost.total_ps)}, {format_ratio(share)} of the run, while the loop's "
        f"own code runs ({format_ps(usual_ps)} in the median step)"
    )
    remedy = _OWN_CODE
    if (account := host.account) is not None:
        reasons = _reasons(host, account)
        told = [_told(why, ps, account.during[why]) for why, ps in reasons[:2] if ps >= _LEAST_TOLD * lost.total_ps]
        title, remedy = f"{account.busy_text}; {'; '.join(told)}", _TOLD[reasons[0][0]][1]
    return Finding(
        code="DEVICE-IDLE",
        title=title,
        claim=Claim("idle", lost.by_step),
        low_ps=lost.low_ps,
        high_ps=lost.high_ps,
        phase=view.phase_of_most(lost.by_step),
        remedy=remedy,
        evidence=(
            Evidence(
                f"{format_count(steps)} of {format_count(len(idle_ps))} captured steps have such idle time",
                "breakdowns",
                'select host, "window", step, device, wall_ps from breakdowns '
                "where category in ('idle', 'host') order by wall_ps desc",
            ),
        ),
        confidence=confidence_of(lost),
        wrong_if="the device works for somebody whom the profiler does not see, or the code must run between two steps",
    )
