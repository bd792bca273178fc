"""Time goes into moving data instead of computing: copies, transposes, reshapes, infeed, outfeed, transfers.

**Formula.** Of the time that captured steps spend in data movement alone (`data_movement` in the breakdown), the share
of avoidable ops: copies, transposes and reshapes that run as ops of their own, and transfers between host and device
(infeed, outfeed, HtoD, DtoH). Necessary movement is not claimed: gathers, slices, concatenation, padding, filling, and
what a fusion moves while it computes. A copy that the compiler inserted (it has no name of the framework) counts on
accelerators, where another layout of the data avoids it; on a CPU it counts only in the upper end.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on: every program copies a little, and small copies by
the compiler stay below this. Where fewer than three windows by chance leave open whether there is a third of it, the
rule cannot judge.

**Remedy.** Keep one layout from end to end. JAX: let `dot_general` and `einsum` take the axes as they are instead of
`transpose`; channels last (`NHWC`) for convolutions; `donate_argnums` for what is updated. PyTorch:
`model.to(memory_format=torch.channels_last)`, `einsum` instead of `permute(…).contiguous()`, transfers from pinned
memory (`pin_memory=True`, `.to(device, non_blocking=True)`), and no copies back to the host in the loop.

**Wrong when** the copy pays for itself: a matrix product on the original layout would take longer than copy and product
together.

**Source.** TPUPoint (Wudenhe and Tseng, ISPASS 2021): infeed, outfeed, reshape and transpose among the most expensive
ops of every model they ran. Opcodes: openxla/xla, `xla/hlo/ir/hlo_opcode.h`; PyTorch's copies: `aten::copy_`.
"""

import re

import numpy as np

from phasepoint.core.units import format_ps, format_ratio
from phasepoint.findings.evidence.device_ops import OpKind, read_device_ops, time_of_ops
from phasepoint.findings.evidence.element_chains import is_view
from phasepoint.findings.evidence.graphs import Node, graph_of
from phasepoint.findings.evidence.over_run import confidence_of, reaches_share
from phasepoint.findings.finding import Claim, Evidence, Finding
from phasepoint.findings.view import FindingsView

LEAST_SHARE = 0.02

LAYOUT, TRANSFER, COMPILER = "copies, transposes and reshapes", "transfers", "copies put in by the compiler"
"""What a moving op is, where it need not be."""

_NEUTRAL = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "broadcast", "slice", "iota"})
_LAYOUT = frozenset({"copy", "transpose", "reshape", "reverse", "copy-start", "copy-done"})
_TRANSFER = frozenset({"infeed", "outfeed", "send", "recv"})
_LAYOUT_NAME = re.compile(
    r"(^|[:_])(copy_?|clone|contiguous|_to_copy|_reshape_copy|flip|roll|repeat|numpy_T)$|direct_copy|nchwtonhwc|nhwctonchw"
    r"|transpose|memcpy ?(dtod|d2d)|copybuffer",
    re.IGNORECASE,
)
_TRANSFER_NAME = re.compile(r"memcpy ?(htod|dtoh|h2d|d2h)|infeed|outfeed|pin_memory", re.IGNORECASE)

_QUERY = """select device, op, layer, sum(count) as executions, sum(self_ps) as self_ps from ops
where category = 'data_movement' and device <> 'host' and step is not null
group by all order by self_ps desc limit 20"""


def find(view: FindingsView) -> list[Finding]:
    """Data movement that need not be, of the whole run."""
    view.need_windows()
    ops = view.once(read_device_ops)
    why = [_why(view, kind) for kind in ops.kinds]
    sure = np.array([reason in (LAYOUT, TRANSFER) for reason in why], bool)[ops.kind]
    possible = np.array([reason is not None for reason in why], bool)[ops.kind]
    claimed = time_of_ops(view, "data_movement", ops, np.where(sure, ops.self_ps, 0).astype(np.float64))
    total_ps, wall_ps = claimed.total_ps, view.clock.wall_ps
    if not reaches_share(view, claimed, LEAST_SHARE):
        return []
    most = time_of_ops(view, "data_movement", ops, np.where(possible, ops.self_ps, 0).astype(np.float64))
    time_ps = dict(zip(ops.kinds, ops.of_kinds(ops.self_ps).tolist(), strict=True))
    largest = sorted((k for k, reason in zip(ops.kinds, why, strict=True) if reason), key=lambda k: -time_ps[k])[:5]
    reasons = {reason: sum(time_ps[k] for k, r in zip(ops.kinds, why, strict=True) if r == reason) for reason in why}
    told = [f"{reason} {format_ps(ps)}" for reason, ps in sorted(reasons.items(), key=lambda x: -x[1]) if reason]
    share = format_ratio(total_ps / wall_ps)
    return [
        Finding(
            code="DATA-MOVEMENT",
            title=f"{format_ps(total_ps)} go into moving data that need not move, {share} of the run",
            claim=Claim("data_movement", claimed.by_step),
            low_ps=claimed.low_ps,
            high_ps=max(most.high_ps, claimed.high_ps),
            phase=view.phase_of_most(claimed.by_step),
            layers=tuple(dict.fromkeys(_place(view, kind) for kind in largest)),
            remedy=_remedy(view, max(reasons, key=lambda r: reasons[r] if r else -1)),
            evidence=(Evidence(f"in the captured steps: {'; '.join(told)}", "ops", _QUERY),),
            confidence=confidence_of(claimed),
            wrong_if="the copy pays for itself: the op that follows would be slower on the data as it was",
        )
    ]


def _why(view: FindingsView, kind: OpKind) -> str | None:
    """Why an op's time could go; None for work that a program cannot do without."""
    if kind.category != "data_movement":
        return None
    graph = graph_of(view, kind)
    node = graph.nodes.get(kind.op) if graph is not None else None
    if graph is None or node is None:
        return _why_by_name(kind.op)
    inside = [one for one in graph.inside(node) if one.opcode not in _NEUTRAL]
    if any(one.opcode in _TRANSFER for one in inside):
        return TRANSFER
    if not inside or any(one.opcode not in _LAYOUT for one in inside):
        return None
    own = not kind.device.startswith("cpu") or any(_asked_for(one) for one in (node, *inside))
    return LAYOUT if own else COMPILER


def _why_by_name(op: str) -> str | None:
    """Why the time of an op without a program could go: PyTorch's operators and kernels tell it by their names."""
    if _TRANSFER_NAME.search(op):
        return TRANSFER
    return LAYOUT if _LAYOUT_NAME.search(op) and not is_view(op) else None


def _asked_for(node: Node) -> bool:
    """Whether the program itself says so: what a compiler puts in has no name of the framework's."""
    return node.op_name is not None


def _place(view: FindingsView, kind: OpKind) -> str:
    """Where an op comes from: its layer, else the line of the source, else its own name."""
    graph = graph_of(view, kind)
    node = graph.nodes.get(kind.op) if graph is not None else None
    return kind.layer or (node.source if node is not None else None) or kind.op


def _remedy(view: FindingsView, reason: str | None) -> str:
    if reason == TRANSFER:
        return view.of_framework(
            torch="copy batches ahead of the step: DataLoader(pin_memory=True) and .to(device, non_blocking=True); "
            "fetch nothing back in the loop",
            jax="put the next batch on the device ahead of the step (jax.device_put); fetch nothing back in the loop",
        )
    return view.of_framework(
        torch="keep one layout from end to end: channels last for convolutions (torch.channels_last), no permute with "
        "contiguous(); torch.einsum over the axes as they are",
        jax="keep one layout from end to end: einsum or dot_general over the axes as they are, NHWC for convolutions; "
        "donate_argnums for what is updated",
    )
