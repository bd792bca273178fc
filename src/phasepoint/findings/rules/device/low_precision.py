"""Matrix products in a wide type where the device has a faster one.

**Formula.** For every product with f32 or f64 operands, time t, work F and bytes B: t less its time at the faster type
by the roofline, max(F / peak′, ½·B / bandwidth) / e, where e = F / (t · peak) is the share of its type's peak that it
reaches now. Only products bound by arithmetic count: F / peak ≥ B / bandwidth, and e at least {LEAST_EFFICIENCY:.0%}. A
product of f32 is assumed to run at the tf32 rate on devices that have one, as JAX does by default, so that the claim is
too small rather than too large. On a CPU an f64 product takes twice the time of an f32 one: half as many elements fit
into a register, and twice as many bytes are moved. Kernels of PyTorch are recognised by name (`sgemm`: f32 without
tensor cores); their work is not known, so half of the ratio of the peaks is assumed to be reachable.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on: a change of type requires checking the results.
Below {LEAST_EFFICIENCY:.0%} of the peak something else limits the product, and a faster type gains little. Where fewer
than three windows by chance leave open whether there is a third of it, the rule cannot judge.

**Remedy.** PyTorch: `torch.set_float32_matmul_precision("high")` (tf32, no other change), or
`torch.autocast(device, dtype=torch.bfloat16)`. JAX: parameters in f32, products in bfloat16 (flax:
`dtype=jnp.bfloat16`); no `jax_enable_x64` and no NumPy float64 arrays in the step.

**Wrong when** the training needs the precision: check the loss. If products were requested at a higher precision
(`jax.default_matmul_precision("highest")`) the gain is larger.

**Source.** Peaks: phasepoint/devices/specs.toml, each with its source. Roofline: Williams, Waterman and Patterson, CACM
2009.
"""

import re
from dataclasses import replace

import numpy as np

from phasepoint.core.units import PS_PER_S, format_ps, format_ratio
from phasepoint.devices import DeviceSpec, unknown_device_note
from phasepoint.estimates.run_time import RunTime
from phasepoint.findings.evidence.device_ops import OpKind, read_device_ops, time_of_ops
from phasepoint.findings.evidence.over_run import reaches_share
from phasepoint.findings.evidence.roofline import MatrixOp, device_name, matrix_ops, spec_of
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView

LEAST_SHARE = 0.02
LEAST_EFFICIENCY = 0.3

_FASTER = ("bf16", "f16", "tf32")
_F32_KERNEL = re.compile(r"sgemm|scudnn|_f32f32_f32f32_f32|simt_s?gemm", re.IGNORECASE)
_TENSOR_CORES = re.compile(r"tf32|tensorop|1688|16816|bf16|f16", re.IGNORECASE)

_QUERY = """select device, op, sum(count) as executions, sum(self_ps) as self_ps from ops
where op in ({ops}) and device <> 'host' and step is not null group by all order by self_ps desc"""


def find(view: FindingsView) -> list[Finding]:
    """Products of the whole run that a faster type would shorten."""
    view.need_windows()
    ops, products = view.once(read_device_ops), matrix_ops(view)
    saved = np.zeros(len(ops.kinds))
    for product in products:
        saved[product.index] = _saved_share(product)
    unjudged = [] if products else _by_kernel_name(view, saved)
    if not saved.any():
        _need_peaks(view, products, unjudged)
        return []
    found = time_of_ops(view, "compute", ops, saved[ops.kind] * ops.self_ps)
    if not products:  # by names alone
        found = replace(found, low_ps=found.low_ps // 2)
    return _told(view, found, saved * ops.of_kinds(ops.self_ps), [p for p in products if saved[p.index]])


def _saved_share(product: MatrixOp) -> float:
    """Ratio of the op's time that the faster type saves."""
    spec, kind = product.spec, product.element_type
    if product.kind.device.startswith("cpu"):
        return 0.5 if kind == "f64" else 0.0
    if spec is None or kind not in ("f32", "f64"):
        return 0.0
    rates = {name: rate.value for name, rate in spec.flop_per_s.items()}
    peak = rates.get("f64") if kind == "f64" else rates.get("tf32", rates.get("f32"))
    faster = _fastest(spec)
    if peak is None or faster <= peak:
        return 0.0
    efficiency = product.flop_per_s / peak
    if efficiency < LEAST_EFFICIENCY or product.flop / peak * PS_PER_S < product.memory_ps():
        return 0.0
    left_ps = max(product.flop / faster * PS_PER_S, product.memory_ps(0.5)) / min(efficiency, 1.0)
    return max(1 - left_ps / product.per_op_ps, 0.0)


def _fastest(spec: DeviceSpec) -> float:
    return max((spec.flop_per_s[name].value for name in _FASTER if name in spec.flop_per_s), default=0.0)


def _by_kernel_name(view: FindingsView, saved: np.ndarray) -> list[OpKind]:
    """Fill in the kernels whose names say f32 without tensor cores; those on devices without known peaks come back."""
    unknown = []
    for index, kind in enumerate(view.once(read_device_ops).kinds):
        if kind.level != "kernel" or not _F32_KERNEL.search(kind.op) or _TENSOR_CORES.search(kind.op):
            continue
        spec = spec_of(view, kind)
        f32 = spec.flop_per_s.get("f32") if spec is not None else None
        if spec is None or f32 is None:
            unknown.append(kind)
        else:
            faster = spec.flop_per_s["tf32"].value if "tf32" in spec.flop_per_s else _fastest(spec)
            saved[index] = max(1 - 2 * f32.value / max(faster, 1.0), 0.0)
    return unknown


def _need_peaks(view: FindingsView, products: list[MatrixOp], unjudged: list[OpKind]) -> None:
    """Raises `Unavailable` where nothing could be judged, with what it would take."""
    wide = [p.kind for p in products if p.element_type == "f32" and (p.spec is None or "f32" not in p.spec.flop_per_s)]
    for kind in (*unjudged, *wide):
        name = device_name(view, kind) or kind.device
        raise Unavailable(unknown_device_note(name) + " (f32 and a faster type)")
    if not products and not any(kind.level == "kernel" for kind in view.once(read_device_ops).kinds):
        raise Unavailable(
            "the capture tells no element types: PyTorch's operators on a CPU are recorded without shapes; record on a "
            "GPU, whose kernels' names tell the type, or with JAX"
        )


def _told(view: FindingsView, found: RunTime, time_ps: np.ndarray, products: list[MatrixOp]) -> list[Finding]:
    total_ps, wall_ps = found.total_ps, view.clock.wall_ps
    if not reaches_share(view, found, LEAST_SHARE):
        return []
    kinds = view.once(read_device_ops).kinds
    largest = [kinds[i] for i in np.argsort(-time_ps)[:8].tolist() if time_ps[i] > 0]
    listed = ", ".join("'" + kind.op.replace("'", "''") + "'" for kind in largest)
    types = "f64" if products and all(p.element_type == "f64" for p in products) else "f32"
    said, share = f"products in {types}: {', '.join(k.op for k in largest[:3])}", format_ratio(total_ps / wall_ps)
    return [
        Finding(
            code="LOW-PRECISION",
            title=f"{format_ps(total_ps)} could be won by a narrower type for {types} products, {share} of the run",
            claim=Claim("compute", found.by_step),
            low_ps=found.low_ps,
            high_ps=found.high_ps,
            phase=view.phase_of_most(found.by_step),
            layers=tuple(dict.fromkeys(kind.layer or kind.op for kind in largest[:5])),
            remedy=view.of_framework(
                torch="compute products in a narrower type: torch.set_float32_matmul_precision('high'), or "
                "torch.autocast(device, dtype=torch.bfloat16)",
                jax="compute products in a narrower type: dtype=jnp.bfloat16 in the layers; no jax_enable_x64, no "
                "float64 arrays",
            ),
            evidence=(Evidence(said, "ops", _QUERY.format(ops=listed)),),
            confidence="medium" if products else "low",
            wrong_if="the training needs the width of its type",
        )
    ]
