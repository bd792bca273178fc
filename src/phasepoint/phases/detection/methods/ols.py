"""Online linear scan: neighbouring steps with much the same ops are one phase.

Source: Wudenhe & Tseng, "TPUPoint: Automatic Characterization of Hardware-Accelerated Machine-Learning Behavior
for Cloud Computing", ISPASS 2021: similarity |A ∩ B| / min(|A|, |B|) of the op sets of neighbouring steps, same phase
at 70 % and above. It is blind to durations, to an op set inside its neighbour's, and to a phase that comes back.
"""

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.phases.detection.result import Labelling
from phasepoint.phases.detection.vectors import DistinctSteps, OpVectors

SIMILARITY = 0.70
"""Least similarity of neighbouring steps of one phase; the paper's threshold."""


class OnlineScan:
    """The scan itself, one step at a time, holding one op set: fit for a live run."""

    def __init__(self, threshold: float = SIMILARITY) -> None:
        """Start before the first step; `threshold` is the least similarity, 0–1."""
        self._threshold = threshold
        self._last: frozenset[int] | None = None
        self.phase = 0

    def push(self, ops: frozenset[int]) -> int:
        """Phase number of the next step, given the codes of its ops."""
        if self._last is not None and ops is not self._last and similarity(self._last, ops) < self._threshold:
            self.phase += 1
        self._last = ops
        return self.phase


def similarity(a: frozenset[int], b: frozenset[int]) -> float:
    """|A ∩ B| / min(|A|, |B|), 0–1; 1 for two empty sets, 0 where only one is empty."""
    smaller = min(len(a), len(b))
    if smaller == 0:
        return float(len(a) == len(b))
    return len(a & b) / smaller


def label(series: DistinctSteps, vectors: OpVectors | None) -> Labelling:
    """Label the run by an online linear scan over its captured steps; the others inherit the phase before them."""
    if vectors is None:
        note = "no step was captured: op sets are unknown, so the whole run is one phase to this method"
        return Labelling(np.zeros(series.n_steps, np.int64), (note,))
    scan = OnlineScan()
    captured = np.fromiter((scan.push(ops) for ops in _op_sets(vectors)), np.int64, vectors.n_captured)
    before = np.searchsorted(vectors.index, np.arange(series.n_steps), side="right") - 1
    labels: Int64s = captured[np.maximum(before, 0)]
    missing = series.n_steps - vectors.n_captured
    notes = (f"{missing} steps were not captured and inherit the phase before them",) if missing else ()
    return Labelling(labels, notes)


def _op_sets(vectors: OpVectors) -> list[frozenset[int]]:
    """Op sets of the captured steps; equal neighbours share one object, which makes the scan cheap."""
    op, start = vectors.op, vectors.start
    sets: list[frozenset[int]] = []
    last_codes: bytes | None = None
    for i in range(vectors.n_captured):
        codes = op[start[i] : start[i + 1]].tobytes()
        sets.append(sets[-1] if codes == last_codes else frozenset(np.frombuffer(codes, np.int64).tolist()))
        last_codes = codes
    return sets
