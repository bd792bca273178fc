"""Chains of elementwise ops run as separate kernels: each writes to memory what the next one reads back.

**Formula.** They are found in two ways. Within a compiled program: an elementwise instruction whose result only other
elementwise instructions read, although they are not fused; the counted part of its time is the ratio of the bytes that
a fusion would not move (the result, written and read) to all bytes that it moves. Between separate kernels or programs,
one after another on a device: of a chain of n ops, 1/n of the time stays, and the rest is saved together with the gaps
between them (at most {MOST_GAP_US} µs each). An op that may be bound by arithmetic (exp, tanh) counts with the median
of the other ops of the chain. The lower end assumes that every op reads one more operand that no fusion saves (two
thirds), and excludes the gaps.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on; less is not worth compiling in another way. Ops
shorter than {LEAST_OP_US} µs take the time of their launch, not of their bytes (see TINY-KERNELS). Where fewer than
three windows by chance leave open whether there is a third of it, the rule cannot judge.

**Remedy.** Let a compiler make one kernel of the chain. PyTorch: `torch.compile(model)`, or the fused function if there
is one (`F.gelu`, `F.silu`, `F.layer_norm`, `Adam(fused=True)`). JAX: one `jax.jit` around the whole step instead of
single operations; no `optimization_barrier` or `block_until_ready` between them.

**Wrong when** the result between two ops is kept for the backward pass, so that it must be written anyway (a compiler
may recompute it instead); or if the ops follow each other by chance, on different arrays. The shapes of PyTorch's ops
are not known.

**Source.** Operational intensity: Williams, Waterman and Patterson, Roofline, CACM 2009: an elementwise op does about
one operation for 8 to 12 bytes, below what any device needs to be bound by arithmetic.
"""

from dataclasses import replace

import numpy as np

from phasepoint.core.units import PS_PER_US, format_ps, format_ratio
from phasepoint.estimates.run_time import RunTime
from phasepoint.findings.evidence.device_ops import read_device_ops, time_of_ops, time_of_steps
from phasepoint.findings.evidence.element_chains import (
    LEAST_OP_PS,
    MOST_GAP_PS,
    ElementChains,
    find_chains,
    needless_time,
)
from phasepoint.findings.evidence.over_run import reaches_share
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView

LEAST_SHARE = 0.02
SURE_OF_BYTES = 2 / 3
"""A chain's op that reads a second operand moves three arrays, of which fusion saves two."""

LEAST_OP_US = LEAST_OP_PS // PS_PER_US
MOST_GAP_US = MOST_GAP_PS // PS_PER_US

_QUERY = """select device, op, sum(count) as executions, sum(self_ps) as self_ps from ops
where op in ({ops}) and step is not null group by all order by self_ps desc"""


def find(view: FindingsView) -> list[Finding]:
    """Chains within programs, and chains of kernels or programs."""
    view.need_windows()
    if not view.once(read_device_ops).kinds:
        raise Unavailable("no op was captured on a device: record with the profiler of JAX or PyTorch at work")
    return [*_within_programs(view), *_between_kernels(view)]


def _within_programs(view: FindingsView) -> list[Finding]:
    ops = view.once(read_device_ops)
    wanted_ps = needless_time(view)
    found = time_of_ops(view, "compute", ops, wanted_ps)
    time_ps = np.bincount(ops.kind, wanted_ps, len(ops.kinds))
    names = [ops.kinds[i].op for i in np.argsort(-time_ps)[:8].tolist() if time_ps[i] > 0]
    layers = [ops.kinds[i].layer or ops.kinds[i].op for i in np.argsort(-time_ps)[:5].tolist() if time_ps[i] > 0]
    return _told(view, found, names, layers, "elementwise instructions that could be one fusion")


def _between_kernels(view: FindingsView) -> list[Finding]:
    chains: ElementChains = find_chains(view)
    found = time_of_steps(view, chains.index, chains.bytes_ps + chains.launch_ps)
    whole = float((chains.bytes_ps + chains.launch_ps).sum())
    sure = SURE_OF_BYTES * float(chains.bytes_ps.sum()) / whole if whole else 0.0
    names, found = list(chains.ops)[:8], replace(found, low_ps=int(found.low_ps * sure))
    return _told(view, found, names, names[:5], "elementwise ops one after another")


def _told(view: FindingsView, found: RunTime, ops: list[str], layers: list[str], what: str) -> list[Finding]:
    total_ps, wall_ps = found.total_ps, view.clock.wall_ps
    if not reaches_share(view, found, LEAST_SHARE):
        return []
    listed = ", ".join("'" + op.replace("'", "''") + "'" for op in ops)
    return [
        Finding(
            code="MEMORY-BOUND",
            title=f"{format_ps(total_ps)} go into arrays written between {what}, {format_ratio(total_ps / wall_ps)} of "
            "the run",
            claim=Claim("compute", found.by_step),
            low_ps=found.low_ps,
            high_ps=found.high_ps,
            phase=view.phase_of_most(found.by_step),
            layers=tuple(dict.fromkeys(layers)),
            remedy=view.of_framework(
                torch="make one kernel of the chain: torch.compile(model), or the fused function (F.gelu, "
                "F.layer_norm, Adam(fused=True))",
                jax="make one kernel of the chain: one jax.jit around the whole step, without optimization_barrier",
            ),
            evidence=(Evidence(f"{what}: {', '.join(ops[:5])}", "ops", _QUERY.format(ops=listed)),),
            confidence="medium",
            wrong_if="what is written between the ops must be kept for the backward pass, or they work on other arrays",
        )
    ]
