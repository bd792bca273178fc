"""What a layer's ops would have taken had they changed as their like did in the rest of the network.

A recording runs on a machine that is faster or slower than at the last one: by several percent as a whole, and by more
for ops that wait for memory than for those that compute. So an op is held against ops of its kind in other layers (same
direction, name and shape), or, where there are fewer than three, against all. What is left is the layer's own change.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.stack.alignment import LEAST_OF_KIND, Alignment

MOST_WEIGHT = 0.05
"""Largest share of all time with which one op weighs in the median over all ops."""


@dataclass(frozen=True, eq=False)
class Change:
    """What changed between two sides.

    Attributes:
        common: log ratio of everything: the weighted median of the ops'.
        kinds: `[n_kinds]`, log ratio of each kind beyond `common`; NaN where the kind is in too few layers.
        ops: `[n_ops]`, log ratio of each op beyond what its kind did; NaN for ops of one side.
        layers: `[n_layers]`, log ratio of each layer beyond what its ops' kinds did; NaN for layers of one side.
        expected_ps: `[n_ops]`, what each op would take had it changed as its kind did.
    """

    common: float
    kinds: Floats
    ops: Floats
    layers: Floats
    expected_ps: Floats

    @property
    def logs(self) -> Floats:
        """`common`, `kinds`, `ops` and `layers`, one after another."""
        return np.concatenate([[self.common], self.kinds, self.ops, self.layers])


def change_between(alignment: Alignment, base_ps: Floats, run_ps: Floats) -> Change:
    """Tell what changed everywhere from what changed in one place.

    Args:
        alignment: of the ops.
        base_ps: `[n_ops]`, time per step in the base, 0 where it has no such op.
        run_ps: `[n_ops]`, likewise in the run.
    """
    both = (base_ps > 0) & (run_ps > 0)
    ratio = np.full(len(base_ps), np.nan)
    ratio[both] = np.log(run_ps[both] / base_ps[both])
    weight = np.minimum(base_ps, MOST_WEIGHT * base_ps.sum())
    common = weighted_median(ratio[both], weight[both]) if both.any() else 0.0
    code, found = alignment.kind_codes
    kinds = _kind_medians(ratio, np.where(both, code, -1), len(found))
    of_kind = np.where(np.isnan(kinds), common, kinds)[code] if len(code) else np.zeros(0)
    expected_ps = base_ps * np.exp(of_kind)
    with np.errstate(divide="ignore", invalid="ignore"):
        layers = np.log(alignment.inside @ run_ps) - np.log(alignment.inside @ expected_ps)
    return Change(common, kinds - common, ratio - of_kind, np.where(np.isfinite(layers), layers, np.nan), expected_ps)


def weighted_median(values: Floats, weights: Floats) -> float:
    """The value with half of the weight on either side; between two, the mean of both.

    Args:
        values: `[n]`, n ≥ 1.
        weights: `[n]`, not negative, not all 0.
    """
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order]) / weights.sum()
    low = int(np.searchsorted(below, 0.5 - 1e-12))
    high = int(np.searchsorted(below, 0.5 + 1e-12))
    return float(values[order[low]] + values[order[min(high, len(order) - 1)]]) / 2


def _kind_medians(ratio: Floats, code: Int64s, n_kinds: int) -> Floats:
    """Median log ratio of each kind, `[n_kinds]`; NaN where fewer than `LEAST_OF_KIND` ops have one."""
    order = np.lexsort((ratio, code))
    order = order[code[order] >= 0]
    n = np.bincount(code[order], minlength=n_kinds)
    first = np.cumsum(n) - n
    medians = np.full(n_kinds, np.nan)
    enough = n >= LEAST_OF_KIND
    ranked = ratio[order]
    medians[enough] = (ranked[(first + (n - 1) // 2)[enough]] + ranked[(first + n // 2)[enough]]) / 2
    return medians
