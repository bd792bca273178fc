"""The job waits for data: time between asking the loader for a batch and getting it in which the device did nothing.

**Formula.** In every step, the part of `input_ps` (measured by the step clock) in which the device was idle, estimated
from the windows (`docs/estimates.md`). If nothing was captured, the whole wait counts. If every step was captured and
the clock knows no waits (an imported trace), it is the idle time in which the launching thread was in its loader.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on; below that no loader is worth changing. A wait of
{HIDDEN_SHARE:.0%} or more that the device's work hides is told as such.

**Remedy.** Produce batches in other processes or threads and ahead of time. PyTorch: `DataLoader(num_workers=…,
prefetch_factor=4, persistent_workers=True, pin_memory=True)`. JAX: `grain` with worker processes, or `jax.device_put`
of the next batch before the step. If one stage is expensive (decoding, augmentation), cache its result or move it to
the device.

**Wrong when** the loader itself waits for the step before (it reads what the model wrote), so that it cannot run
ahead; or where the cores that would run the loader are busy with the training step: on a CPU the wait then becomes
compute.

**Source.** The step clock's definition of a wait: docs/how-it-works.md. TPUPoint (ISPASS 2021) found it to be the most
common limit.
"""

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.units import format_counted, format_ps, format_ratio
from phasepoint.estimates.captured import INPUT
from phasepoint.findings.evidence.host_time import read_idle_account
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import RunClock, sum_ps
from phasepoint.stack.work.idle_account import IdleAccount

LEAST_SHARE = 0.02
HIDDEN_SHARE = 0.05


def find(view: FindingsView) -> list[Finding]:
    """The exposed wait for input."""
    clock = view.clock
    view.need_estimate()
    account = None if clock.input_known else view.once(read_idle_account)
    if not clock.input_known and account is None:
        raise Unavailable(
            "the run holds no waits for input: iterate with `for batch in run.steps(loader)`, which times the loader"
        )
    claimed_ps = _exposed(view) if account is None else _in_loader(view, account)
    total_ps = sum_ps(claimed_ps)
    if total_ps < LEAST_SHARE * clock.wall_ps:
        waited_ps = sum_ps(clock.input_ps)
        if waited_ps >= HIDDEN_SHARE * max(clock.wall_ps, 1):
            raise Unavailable(
                f"the job waits {format_ps(waited_ps)} for data, {format_ratio(waited_ps / clock.wall_ps)} of the run, "
                "but in the captured steps the device works meanwhile: a faster loader would win nothing there"
            )
        return []
    low_ps, high_ps = (total_ps, total_ps) if account is not None else _interval(view, total_ps)
    share = total_ps / clock.wall_ps
    return [
        Finding(
            code="INPUT-STALL",
            title=f"the device waits {format_ps(total_ps)} for data, {format_ratio(share)} of the run",
            claim=Claim("input", claimed_ps),
            low_ps=low_ps,
            high_ps=high_ps,
            phase=view.phase_of_most(claimed_ps),
            remedy=view.of_framework(
                torch="give the loader worker processes: DataLoader(num_workers=4, prefetch_factor=4, "
                "persistent_workers=True)",
                jax="load the next batches while the device works: worker processes (grain), or a thread that calls "
                "jax.device_put ahead of the step",
            ),
            evidence=(_waits(clock) if account is None else _loader_spans(account),),
            confidence="high" if view.captured.row.size and 2 * low_ps > total_ps else "medium",
            wrong_if="the loader cannot run ahead of the step, or has no core of its own to run on",
        )
    ]


def _exposed(view: FindingsView) -> Int64s:
    """`[n_steps]` the part of each wait in which the device did nothing."""
    wait_ps = view.clock.input_ps
    if not view.captured.row.size:
        return wait_ps
    share = min(view.part(INPUT).total_ps / max(sum_ps(wait_ps), 1), 1.0)
    return np.asarray(np.floor(wait_ps * share), np.int64)


def _interval(view: FindingsView, total_ps: int) -> tuple[int, int]:
    """As far to both sides as that of the breakdown's part."""
    part = view.part(INPUT)
    return max(total_ps - (part.total_ps - part.low_ps), 0), total_ps + (part.high_ps - part.total_ps)


def _in_loader(view: FindingsView, account: IdleAccount) -> Int64s:
    """`[n_steps]` idle time in which the launching thread was in its loader."""
    waited_ps = np.zeros(view.clock.n_steps, np.int64)
    waited_ps[account.row] = account.of("input")
    return waited_ps


def _loader_spans(account: IdleAccount) -> Evidence:
    name, ps = account.during["input"][0]
    return Evidence(
        f"the device stood idle for {format_ps(ps)} during {name}",
        "spans",
        "select name, count(*) as calls, sum(dur_ps) as dur_ps from spans where device = 'host' and level = 'layer' "
        "group by name order by dur_ps desc limit 20",
    )


def _waits(clock: RunClock) -> Evidence:
    """The steps that waited for more than a fifth of their time; all that waited where none did for so long."""
    long = int((clock.input_ps > 0.2 * clock.dur_ps).sum())
    told = f"{format_counted(long, 'step')} waited for more than a fifth of the time"
    where = "input_ps > 0.2 * dur_ps" if long else "input_ps > 0"
    return Evidence(
        f"{told}, {format_ps(sum_ps(clock.input_ps))} in all",
        "steps",
        f"select step, input_ps, dur_ps from steps where {where} order by input_ps desc",
    )
