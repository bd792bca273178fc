"""The host waits for the device in every step (it fetches or logs a result), so that the device then waits for it.

**Formula.** In the captured steps: idle stretches of the device in which a wait for it ended (`np.asarray` of an array,
`block_until_ready`, `.item()`, `cudaStreamSynchronize`, …), until the next work begins; at most as long as the host had
waited while the device worked, because without the wait the longer of the two sets the pace. Stretches are left out if
the next work had been launched before the wait ended: the queue was not empty, and the device was late. Extrapolated to
the run by phase.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on, if at least {LEAST_STEPS_SHARE:.0%} of the
captured steps lose {LEAST_OF_STEP:.0%} or more: launching a step after a wait takes some 0.1 to 0.3 ms anyway, and
occasional waits do not set the pace. {KNOWN_TOLD}.

**Remedy.** Leave results on the device and fetch them every 50 or 100 steps: `losses.append(loss)` and one
`jax.device_get(losses)`; PyTorch `total += loss.detach()` and `.item()` when it is logged. If every step must be
logged, fetch the result of the previous step. JAX: `jax.config.update("jax_transfer_guard", "log")` shows what fetches.

**Wrong when** the next step needs the result (a schedule on the loss, early stopping, a loss scale in Python), or if
the host works longer than the device, so that only part of it can be hidden; on a CPU both need the same cores.

**Source.** Events of the training thread in the windows; two neighbouring `PjRtBuffer::Await` are one
`block_until_ready` (seen in JAX 0.10, November 2026).
"""

import numpy as np

from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.estimates.run_time import RunTime
from phasepoint.findings.evidence.host_time import read_host_time
from phasepoint.findings.evidence.over_run import WELL_KNOWN, confidence_of, worth_telling
from phasepoint.findings.finding import Claim, Evidence, Finding
from phasepoint.findings.view import FindingsView

LEAST_SHARE = 0.06
KNOWN_TOLD = WELL_KNOWN
LEAST_STEPS_SHARE = 0.5
LEAST_OF_STEP = 0.02


def find(view: FindingsView) -> list[Finding]:
    """Waits for the device that let it run empty."""
    view.need_estimate()
    host = view.once(read_host_time)
    dur_ps = view.clock.dur_ps[host.row]
    if float(np.mean(host.sync_ps >= LEAST_OF_STEP * dur_ps)) < LEAST_STEPS_SHARE:
        return []
    lost = worth_telling(view, host.sync_ps, LEAST_SHARE)
    return [] if lost is None else [_finding(view, lost, int(host.waits.sum()), len(host.row))]


def _finding(view: FindingsView, lost: RunTime, waits: int, steps: int) -> Finding:
    share = lost.total_ps / view.clock.wall_ps
    return Finding(
        code="SYNC-EVERY-STEP",
        title=f"every step waits for the device's result; the device is then idle for {format_ps(lost.total_ps)}, "
        f"{format_ratio(share)} of the run",
        claim=Claim("idle", lost.by_step),
        low_ps=lost.low_ps,
        high_ps=lost.high_ps,
        phase=view.phase_of_most(lost.by_step),
        remedy=view.of_framework(
            torch="fetch results every 50 steps: keep loss.detach() on the device and call .item() only to log it",
            jax="fetch results every 50 steps: append losses to a list and call jax.device_get on it to log them; call "
            "block_until_ready only at the end",
        ),
        evidence=(
            Evidence(
                f"{format_count(waits)} waits in {format_count(steps)} captured steps",
                "spans",
                'select "window", step, name, start_ps, dur_ps from spans where '
                "name like '%asarray(jax.Array)%' or name like '%Await%' or name like '%ynchronize%' "
                "or name like 'aten::item' order by host, \"window\", start_ps",
            ),
        ),
        confidence=confidence_of(lost),
        wrong_if="the next step needs the result on the host, or host and device share the same cores",
    )
