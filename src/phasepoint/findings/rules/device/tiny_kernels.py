"""Time goes into starting tiny executions, not into their work.

**Formula.** In the captured steps: stretches of at least {ROW_TOLD} executions on the device of at most {TINY_TOLD}
each, none more than {NEAR_TOLD} after the one before, from the first one's start to the last one's end, less one
execution of each kind (the time of the same work done at once). What the training thread executes itself while it waits
for its input counts as INPUT-STALL. The time by which captured steps exceed their neighbours is subtracted, because the
profiler lengthens every execution. Extrapolated to the run by phase. If the device is idle for half of such stretches
or more, the host is slow: HOST-DISPATCH.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on. {TINY_TOLD}: starting a thunk, an ATen op or a
kernel costs 1 to 10 µs, so anything shorter is mostly the cost of starting. {ROW_TOLD} in a row: shorter rows occur in
any step. {KNOWN_TOLD}.

**Remedy.** Do the same work on larger arrays: batch the loop (`jax.vmap` instead of `jax.lax.map` or `scan`, or
`jax.lax.map(…, batch_size=…)`; PyTorch `torch.bmm`, `torch._foreach_*`, a stacked tensor), unroll short loops
(`jax.lax.scan(…, unroll=8)`), or fuse (`torch.compile`).

**Wrong when** each piece needs the result of the one before (a recurrence), so that they cannot be done at once.

**Source.** Device executions in the windows; costs of a start as measured with JAX 0.10 and PyTorch 2.13 on a CPU.
"""

import numpy as np

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.estimates.run_time import RunTime
from phasepoint.findings.evidence.host_time import HostTime, read_host_time
from phasepoint.findings.evidence.over_run import WELL_KNOWN, confidence_of, with_part_of_slowdown, worth_telling
from phasepoint.findings.evidence.window_spans import LEAST_ROW, NEAR_PS, TINY_PS
from phasepoint.findings.finding import Claim, Evidence, Finding
from phasepoint.findings.view import FindingsView

LEAST_SHARE = 0.04
KNOWN_TOLD = WELL_KNOWN
TINY_TOLD = format_ps(TINY_PS)
NEAR_TOLD = format_ps(NEAR_PS)
ROW_TOLD = str(LEAST_ROW)


def find(view: FindingsView) -> list[Finding]:
    """Stretches of tiny executions."""
    view.need_estimate()
    host = view.once(read_host_time)
    if host.is_host_bound:
        return []
    lost = worth_telling(view, with_part_of_slowdown(view, host, host.tiny_ps), LEAST_SHARE)
    return [] if lost is None else [_finding(view, host, lost)]


def _finding(view: FindingsView, host: HostTime, lost: RunTime) -> Finding:
    share, tiny = lost.total_ps / view.clock.wall_ps, round(float(np.median(host.tiny)))
    return Finding(
        code="TINY-KERNELS",
        title=f"{format_count(tiny)} tiny executions a step take {format_ps(lost.total_ps)}, {format_ratio(share)} of "
        f"the run (mostly {', '.join(host.tiny_names[:2])})",
        claim=Claim("host", lost.by_step),
        low_ps=lost.low_ps,
        high_ps=lost.high_ps,
        phase=view.phase_of_most(lost.by_step),
        layers=host.tiny_names,
        remedy=view.of_framework(
            torch="do the work in one batched call: torch.bmm, torch._foreach_* or torch.compile",
            jax="do the work on larger arrays at once: jax.vmap instead of lax.map or a Python loop; "
            "lax.scan(…, unroll=8)",
        ),
        evidence=(
            Evidence(
                f"{format_counted(tiny, 'execution')} of at most {TINY_TOLD} in the median captured step",
                "spans",
                "select name, count(*) as executions, sum(dur_ps) as total_ps from spans where device <> 'host' "
                f"and level in ('op', 'kernel') and dur_ps <= {TINY_PS} group by name order by executions desc",
            ),
        ),
        confidence=confidence_of(lost),
        wrong_if="each piece needs the result of the one before, so that they cannot be done at once",
    )
