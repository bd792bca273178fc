"""Matrix products whose dimensions do not fill the device's tile: it computes with padding.

**Formula.** A product of B × M × N × K is computed as if M were a multiple of the tile's rows and N and K of its
columns (or M and N the other way round, whichever pads less). The share of padding in that work is the share of the
op's time that could be saved, if the padded work explains the time: at the peak rate of the element type it takes at
least {LEAST_EXPLAINED:.0%} of it, and more than the time in which the memory moves the op's bytes.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on, for ops with at least {LEAST_PADDING:.0%} of
padding: any model with an odd dimension somewhere loses up to that. Where fewer than three windows by chance leave open
whether there is a third of it, the rule cannot judge.

**Remedy.** Choose dimensions that are multiples of the tile: pad a vocabulary or the number of classes up, take head
sizes of 128 (256 on TPU v6e and later), batches of multiples of 8 for each device; join small products into one
(`einsum` with a batch dimension, one projection for query, key and value).

**Wrong when** the compiler packs several small products into one tile, or splits the dimension in another way; or if
the padding is part of the model and another size would compute more.

**Source.** Tiles: phasepoint/devices/specs.toml, each with its source: for TPUs the sublanes and the columns of the
matrix unit, for GPUs the smallest instruction of the tensor cores. The libraries of a GPU use larger tiles, so the loss
there may be larger than the claim.
"""

import numpy as np

from phasepoint.core.units import PS_PER_S, format_ps, format_ratio
from phasepoint.findings.evidence.device_ops import read_device_ops, time_of_ops
from phasepoint.findings.evidence.over_run import reaches_share
from phasepoint.findings.evidence.roofline import MatrixOp, device_name, matrix_ops
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView

LEAST_SHARE = 0.02
LEAST_PADDING = 0.1
LEAST_EXPLAINED = 0.3

_QUERY = """select device, op, sum(count) as executions, sum(self_ps) as self_ps from ops
where op in ({ops}) and device <> 'host' and step is not null group by all order by self_ps desc"""


def find(view: FindingsView) -> list[Finding]:
    """Products of the whole run that compute with padding."""
    view.need_windows()
    products = [product for product in matrix_ops(view) if product.dims is not None]
    if not products:
        raise Unavailable("the capture holds no shapes of matrix products: they come with JAX's compiled programs")
    if not any(product.spec is not None and product.spec.tile is not None for product in products):
        name = device_name(view, products[0].kind) or products[0].kind.device
        raise Unavailable(
            f"no tile is known for device {name!r}; add it, with its source, to phasepoint/devices/specs.toml"
        )
    ops = view.once(read_device_ops)
    padding = np.zeros(len(ops.kinds))
    for product in products:
        padding[product.index] = _padding(product)
    found = time_of_ops(view, "compute", ops, padding[ops.kind] * ops.self_ps)
    total_ps, wall_ps = found.total_ps, view.clock.wall_ps
    if not reaches_share(view, found, LEAST_SHARE):
        return []
    largest = sorted(
        (p for p in products if padding[p.index]),
        key=lambda p: -padding[p.index] * int(ops.self_ps[ops.kind == p.index].sum()),
    )[:5]
    padded = "; ".join(f"{p.kind.op}: {padding[p.index]:.0%} padding" for p in largest)
    listed = ", ".join("'" + product.kind.op.replace("'", "''") + "'" for product in largest)
    return [
        Finding(
            code="POOR-TILING",
            title=f"{format_ps(total_ps)} of products are padding, {format_ratio(total_ps / wall_ps)} of the run",
            claim=Claim("compute", found.by_step),
            low_ps=int(found.low_ps * LEAST_EXPLAINED),
            high_ps=found.high_ps,
            phase=view.phase_of_most(found.by_step),
            layers=tuple(dict.fromkeys(product.kind.layer or product.kind.op for product in largest)),
            remedy=f"make dimensions multiples of the tile: {'; '.join(_advice(product) for product in largest[:3])}",
            evidence=(Evidence(padded, "ops", _QUERY.format(ops=listed)),),
            confidence="medium",
            wrong_if="the compiler packs several small products into one tile, or splits the dimension in another way",
        )
    ]


def _padding(product: MatrixOp) -> float:
    """Ratio of the op's time that goes into padding, 0 where the padded work does not explain the time."""
    spec, dims = product.spec, product.dims
    if spec is None or spec.tile is None or dims is None:
        return 0.0
    rate = spec.flop_per_s.get(product.element_type) or spec.flop_per_s.get("bf16")
    if rate is None:
        return 0.0
    batch, m, n, k = dims
    rows, columns = spec.tile.rows, spec.tile.columns
    lying, standing = (_up(a, rows) * _up(b, columns) for a, b in ((m, n), (n, m)))
    padded_flop = 2 * batch * min(lying, standing) * _up(k, columns)
    padded_ps = padded_flop / rate.value * PS_PER_S
    share = 1 - product.flop / padded_flop
    if share < LEAST_PADDING or padded_ps < max(product.memory_ps(), LEAST_EXPLAINED * product.per_op_ps):
        return 0.0
    return share


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _advice(product: MatrixOp) -> str:
    """`dot.1 (64 × 100 × 100): tile 8 × 128`."""
    spec, dims = product.spec, product.dims or (0, 0, 0, 0)
    tile = f"{spec.tile.rows} × {spec.tile.columns}" if spec is not None and spec.tile is not None else "unknown"
    return f"{product.kind.op} ({' × '.join(map(str, dims[1:]))}): tile {tile}"
