"""The recordings of both sides of a comparison, on one list of ops: times per step, and how single steps scatter."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.stack.diff.alignment import Alignment, align
from phasepoint.stack.diff.noise import Locations, contiguous_groups, locate
from phasepoint.stack.diff.step_samples import StepSamples

_LEAST_BLOCKS = 6
"""Fewer windows than this say nothing of their scatter; then the steps are the blocks, as in an imported trace."""

_MOST_SAMPLES = 1_000
"""Captured steps that the scatter is taken from."""

_REFERENCE_OPS = 64
"""Largest ops whose median tells how fast a step was as a whole."""

_OFTEN = 0.8
"""Share of steps in which something must be for its scatter to say something."""

_IQR_TO_SIGMA = 1 / 1.349
"""Standard deviation over interquartile range of a normal distribution."""

_LEAST_SCATTER = 0.01
"""A choice: no op is taken to be steadier than 1 % from step to step, however few of its steps were seen."""


@dataclass(frozen=True, eq=False)
class SideRecording:
    """One recording on the common list of ops.

    Attributes:
        samples: where it comes from.
        ops: time per captured step of each op.
        steps: time per step of one row: all steps of the run.
        mean_steps: its mean; one row.
        outside: time per captured step in which no op runs; one row.
        categories: time per captured step of each category.
        op_scatter: `[n_ops]`, standard deviation of a single step's log time, beyond what the whole step did.
        layer_scatter: `[n_layers]`, likewise.
        kind_scatter: `[n_kinds]`, likewise.
        outside_scatter: likewise of `outside`; NaN where ops run at once on several threads and leave none.
        step_scatter: of the log duration of a single step.
        executions: `[n_ops]`, of a captured step, in the mean.
    """

    samples: StepSamples
    ops: Locations
    steps: Locations
    mean_steps: Locations
    outside: Locations
    categories: Locations
    op_scatter: Floats
    layer_scatter: Floats
    kind_scatter: Floats
    outside_scatter: float
    step_scatter: float
    executions: Floats


@dataclass(frozen=True, eq=False)
class Sides:
    """Both sides.

    Attributes:
        alignment: of all ops.
        base: recordings of the base.
        run: recordings that are compared with it.
    """

    alignment: Alignment
    base: tuple[SideRecording, ...]
    run: tuple[SideRecording, ...]

    @property
    def spread(self) -> float:
        """The root of 1/n_base + 1/n_run: what a recording's noise does to the difference of the sides."""
        return float((1 / len(self.base) + 1 / len(self.run)) ** 0.5)


def read_sides(base: Sequence[StepSamples], run: Sequence[StepSamples]) -> Sides:
    """Put the recordings of both sides on one list of ops."""
    alignment = align([one.keys for one in base], [one.keys for one in run])
    recordings = tuple(
        _recording(one, alignment, place) for one, place in zip((*base, *run), alignment.places, strict=True)
    )
    return Sides(alignment, recordings[: len(base)], recordings[len(base) :])


def _recording(samples: StepSamples, alignment: Alignment, place: Int64s) -> SideRecording:
    n = len(samples.step_ps)
    values = np.zeros((len(alignment.keys), n), np.int64)
    np.add.at(values, place, samples.self_ps)
    executions = np.bincount(place, weights=samples.executions, minlength=len(values)) / n
    n_windows = int(samples.window.max(initial=-1)) + 1
    group = contiguous_groups(samples.window if n_windows >= _LEAST_BLOCKS else np.arange(n))
    clock_group = contiguous_groups(np.arange(len(samples.clock_ps)))
    outside_ps = np.maximum(samples.step_ps - samples.self_ps.sum(axis=0), 0)[None, :]
    often_outside = (outside_ps > 0).mean() > _OFTEN
    ops = locate(values, group)
    kept = values[:, :: max(n // _MOST_SAMPLES, 1)].astype(np.float64)
    common = _step_factors(kept, ops.whole_ps)
    code, found = alignment.kind_codes
    kinds = np.zeros((len(found), kept.shape[1]))
    np.add.at(kinds, code, kept)
    return SideRecording(
        samples=samples,
        ops=ops,
        steps=locate(samples.clock_ps[None, :], clock_group),
        mean_steps=_mean(samples.clock_ps, clock_group),
        outside=locate(outside_ps, group),
        categories=locate(samples.categories_ps, group),
        op_scatter=_scatter(kept, common),
        layer_scatter=_scatter(_layer_sums(kept, alignment), common),
        kind_scatter=_scatter(kinds, common),
        outside_scatter=float(_scatter(outside_ps.astype(np.float64), 0.0)[0]) if often_outside else np.nan,
        step_scatter=float(_scatter(samples.clock_ps[None, :].astype(np.float64), 0.0)[0]),
        executions=executions,
    )


def _mean(clock_ps: Int64s, group: Int64s) -> Locations:
    """The mean, with and without each group, as the location of one row."""
    total, n = int(clock_ps.sum()), len(clock_ps)
    sums, sizes = np.bincount(group, weights=clock_ps), np.bincount(group)
    without = (total - sums) / np.maximum(n - sizes, 1)
    return Locations(np.array([total / n]), without[:, None] if len(sums) > 1 else np.empty((0, 1)))


def _step_factors(values: Floats, whole_ps: Floats) -> Floats:
    """Log of how long each step took as a whole, `[n]`: the median over its largest ops."""
    often = (values > 0).mean(axis=1) > _OFTEN
    largest = np.argsort(-whole_ps * often, kind="stable")[:_REFERENCE_OPS]
    largest = largest[(whole_ps > 0)[largest] & often[largest]]
    if not len(largest):
        return np.zeros(values.shape[1])
    ratios = _logs(values[largest]) - np.log(whole_ps[largest])[:, None]
    known = np.isfinite(ratios).any(axis=0)  # not in a step of another kind, in which none of them ran
    factors = np.zeros(values.shape[1])
    factors[known] = np.nanmedian(ratios[:, known], axis=0)
    return factors


def _scatter(values: Floats, common: Floats | float) -> Floats:
    """Robust standard deviation of the rows' logs beyond `common`; the least there may be where too few are known."""
    residual = _logs(values) - common
    known = np.isfinite(residual).sum(axis=1) >= 4
    scatter = np.full(len(values), _LEAST_SCATTER)
    if known.any():
        low, high = np.nanquantile(residual[known], (0.25, 0.75), axis=1)
        scatter[known] = np.maximum((high - low) * _IQR_TO_SIGMA, _LEAST_SCATTER)
    return scatter


def _logs(values: Floats) -> Floats:
    return np.log(values, out=np.full(values.shape, np.nan), where=values > 0)


def _layer_sums(values: Floats, alignment: Alignment) -> Floats:
    """`[n_layers, n]`: values of all ops of each layer and below."""
    sums = np.zeros((len(alignment.layers), values.shape[1]))
    for i, inside in enumerate(alignment.inside):
        sums[i] = values[inside].sum(axis=0)
    return sums
