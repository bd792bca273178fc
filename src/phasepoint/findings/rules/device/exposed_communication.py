"""Collectives that no computation hides: the devices exchange data and compute nothing meanwhile.

**Formula.** In every step, the time in which a device exchanges data with others and computes nothing (`communication`
in the breakdown, in which computation comes first, so that hidden collectives count as `compute`), less the wait for
the last device to arrive. The last one to arrive does not wait. So in a step that several devices or hosts saw, the
shortest of their times for a collective is the time of the exchange. Of devices the lower quartile over all such steps
is used, because a thread that sleeps too long lengthens them too. No more than that counts of the exposed time.
Collectives that a thread of the host runs (gloo, MPI) count while the device neither computes nor moves data: in each
step the shortest time among the hosts, in steps that one host alone saw no more than the mean of these; where no step
was seen by two, the lower quartile. The lower end is what hiding wins: at most the time in which the step computes, and
of one of its collectives, on average the last, half: no computation is left to hide it behind, and gradients in
bfloat16 save half of its bytes. Or that half of all, where it is more.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on: the step's last collective stays exposed in every
job, and less than this is seldom worth another schedule. Where fewer than three windows by chance leave open whether
there is a third of it, the rule cannot judge.

**Remedy.** Start a collective as soon as its data is ready, in buckets, while the backward pass goes on. PyTorch:
`DistributedDataParallel(bucket_cap_mb=25, gradient_as_bucket_view=True)`, for FSDP `backward_prefetch=BACKWARD_PRE`,
`forward_prefetch=True`. JAX on GPU: `XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true`; on TPU asynchronous
collectives are on. Fewer bytes help too: gradients in bfloat16, accumulation over several batches
(`optax.MultiSteps`, `no_sync()`).

**Wrong when** only one device was seen and waits for a late one: then the other device causes the time (see STRAGGLER).
On CPUs, where the collective needs the cores that compute, hiding it wins less.

**Source.** Categories of a step: docs/estimates.md. Overlap by buckets: Li et al., PyTorch Distributed, VLDB 2020.
"""

import numpy as np

from phasepoint.core.statistics import quantile_ps
from phasepoint.core.units import format_ps, format_ratio
from phasepoint.estimates.captured import PARTS
from phasepoint.estimates.run_time import RunTime, estimate_time
from phasepoint.findings.evidence.device_ops import read_device_ops
from phasepoint.findings.evidence.over_run import reaches_share
from phasepoint.findings.evidence.ranks.host_waits import host_collectives
from phasepoint.findings.finding import Claim, Evidence, Finding
from phasepoint.findings.view import FindingsView

LEAST_SHARE = 0.02
UNDISTURBED = 0.25
"""Quantile of the shortest times of a collective that is taken for what the exchange takes."""

_QUERY = """select host, device, op, sum(count) as executions, sum(self_ps) as self_ps from ops
where op in ({ops}) and step is not null group by all order by self_ps desc"""


_QUERY_UNNAMED = """select host, "window", step, device, wall_ps from breakdowns
where category = 'communication' and wall_ps > 0 order by wall_ps desc"""


def find(view: FindingsView) -> list[Finding]:
    """Exposed collectives of the whole run."""
    view.need_windows()
    found, named, low_ps = _of_devices(view)
    of_host = host_collectives(view, UNDISTURBED)
    if of_host is not None and of_host[0].total_ps > found.total_ps:
        found, named = of_host
        low_ps = found.low_ps / 2
    total_ps, wall_ps = found.total_ps, view.clock.wall_ps
    if not reaches_share(view, found, LEAST_SHARE):
        return []
    listed = ", ".join("'" + op.replace("'", "''") + "'" for op in named)
    return [
        Finding(
            code="EXPOSED-COMMUNICATION",
            title=f"{format_ps(total_ps)} of collectives are not hidden, {format_ratio(total_ps / wall_ps)} of the run",
            claim=Claim("communication", found.by_step),
            low_ps=int(low_ps),
            high_ps=found.high_ps,
            phase=view.phase_of_most(found.by_step),
            layers=named,
            remedy=view.of_framework(
                torch="exchange gradients while the backward pass runs: DistributedDataParallel(bucket_cap_mb=25), "
                "FSDP backward_prefetch=BACKWARD_PRE",
                jax="let XLA hide collectives behind compute: --xla_gpu_enable_latency_hiding_scheduler=true on GPUs",
            )
            + "; exchange less: bfloat16 gradients, accumulation over several batches",
            evidence=(_evidence(named, listed),),
            confidence="medium",
            wrong_if="the collectives wait for a late device that was not captured, or (on CPUs) need the cores that "
            "compute",
        )
    ]


def _evidence(named: tuple[str, ...], listed: str) -> Evidence:
    """The collectives with their ops; where the time was seen and no op of it, the time."""
    if not named:
        return Evidence("time in collectives that have no name", "breakdowns", _QUERY_UNNAMED)
    return Evidence(f"collectives, the largest first: {', '.join(named)}", "ops", _QUERY.format(ops=listed))


def _of_devices(view: FindingsView) -> tuple[RunTime, tuple[str, ...], float]:
    """Exposed collectives of the devices, their names, and the lower end of what can be won."""
    parts_ps = view.captured.parts_ps
    communication_ps, compute_ps = (parts_ps[:, PARTS.index(name)] for name in ("communication", "compute"))
    exchange_ps = np.asarray(communication_ps * _exchange_share(view), np.float64)
    found, hidden = (estimate_time(view.sampled, ps) for ps in (exchange_ps, np.minimum(exchange_ps, compute_ps)))
    low_ps = max(hidden.low_ps * (1 - 0.5 / max(_per_step(view), 1.0)), found.low_ps / 2)
    return found, _largest(view), low_ps


def _per_step(view: FindingsView) -> float:
    """Collectives that a device runs in a captured step that has any, on average."""
    ops = view.once(read_device_ops)
    mine = np.array([kind.category == "communication" for kind in ops.kinds], bool)[ops.kind]
    devices = {kind.device for kind in ops.kinds if kind.category == "communication"}
    steps = len(np.unique(ops.index[mine]))
    return float(ops.count[mine].sum()) / max(steps * len(devices), 1)


def _exchange_share(view: FindingsView) -> float:
    """Ratio of the exposed time that the exchange itself accounts for; 1 where no step was seen by two devices."""
    ops, captured = view.once(read_device_ops), view.captured
    mine = np.flatnonzero(np.array([kind.category == "communication" for kind in ops.kinds], bool)[ops.kind])
    names = sorted({kind.op for kind in ops.kinds})
    name = np.array([names.index(kind.op) for kind in ops.kinds], np.int64)[ops.kind[mine]] if len(mine) else mine
    index = ops.index[mine]
    pairs = np.column_stack([view.clock.step[captured.row[index]], name])
    meetings, met, devices = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    shortest = np.full(len(devices), np.iinfo(np.int64).max)
    np.minimum.at(shortest, met.ravel(), ops.self_ps[mine])
    several = devices[met.ravel()] > 1
    exchange_ps = 0.0
    for op in np.unique(name[several]).tolist():
        usual_ps = quantile_ps(shortest[(meetings[:, 1] == op) & (devices > 1)], UNDISTURBED)
        exchange_ps += usual_ps * len(np.unique(index[several & (name == op)]))
    exposed_ps = int(captured.parts_ps[np.unique(index[several]), PARTS.index("communication")].sum())
    return min(exchange_ps / exposed_ps, 1.0) if exposed_ps else 1.0


def _largest(view: FindingsView) -> tuple[str, ...]:
    """The five collectives with the most self time, by name."""
    ops = view.once(read_device_ops)
    self_ps: dict[str, int] = {}
    for kind, time_ps in zip(ops.kinds, ops.of_kinds(ops.self_ps).tolist(), strict=True):
        if kind.category == "communication":
            self_ps[kind.op] = self_ps.get(kind.op, 0) + time_ps
    return tuple(sorted(self_ps, key=lambda op: -self_ps[op])[:5])
