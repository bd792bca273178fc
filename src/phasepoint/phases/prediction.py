"""What the uncaptured steps of some strata went into, by the shares of each cell, and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.statistics import apportion, satterthwaite_freedom, t_quantile
from phasepoint.phases.captured import N_WORK, PARTS
from phasepoint.phases.cells import BASE, COMPILE, FAR, LONG, WAIT, Fit, exposed_part
from phasepoint.phases.sampling import CellShares, bounded_scatter
from phasepoint.phases.strata import Stratum

N_WAITS = len(PARTS) - N_WORK


@dataclass(frozen=True, eq=False)
class Prediction:
    """The uncaptured steps of every stratum.

    Attributes:
        parts_ps: `[n_strata, len(PARTS)]` integers that add up to each stratum's rest_ps.
        extra: `[n_strata, k]`.
        known: `[n_strata]`, False where no window says anything: those parts_ps are 0.
    """

    parts_ps: Int64s
    extra: Floats
    known: NDArray[np.bool_]


def predict_rest(fit: Fit, strata: Sequence[Stratum]) -> Prediction:
    """Shares times sizes, made integers that close on each stratum's time."""
    k = len(fit.spread) - N_WORK
    parts = np.zeros((len(strata), len(PARTS)), np.int64)
    extra, known = np.zeros((len(strata), k)), np.zeros(len(strata), bool)
    for index, stratum in enumerate(strata):
        base = fit.base[fit.group[index]]
        if base is None:
            continue
        known[index] = True
        sizes = fit.rest[index]
        work = base.ratio * sizes[BASE]
        for shares, cell in ((fit.long, LONG), (fit.far, FAR)):
            work = work + (shares or base).ratio * sizes[cell]
        waits = [exposed_part(fit.input) * sizes[WAIT], exposed_part(fit.compiling) * sizes[COMPILE]]
        exact = np.maximum(np.concatenate([work[:N_WORK], waits]), 0)
        parts[index] = apportion(stratum.rest_ps, exact) if exact.any() else 0
        extra[index] = np.maximum(work[N_WORK:], 0)
    return Prediction(parts, extra, known)


def step_parts(fit: Fit, stratum: Int64s, dur_ps: Int64s) -> Int64s:
    """What each step's time went into by the shares of its cells: `[n_steps, len(PARTS)]`, adding up to dur_ps.

    Args:
        fit: shares and sizes; at least one step was captured.
        stratum: `[n_steps]`.
        dur_ps: `[n_steps]`.
    """
    exact = np.zeros((len(dur_ps), len(PARTS)))
    for group, base in enumerate(fit.base):
        mine = np.flatnonzero(fit.group[stratum] == group)
        if base is None or not len(mine):
            continue
        for cell, shares in ((BASE, base), (LONG, fit.long or base), (FAR, fit.far or base)):
            exact[mine, :N_WORK] += fit.sizes[mine, cell, None] * shares.ratio[:N_WORK]
    exact[:, N_WORK] = exposed_part(fit.input) * fit.sizes[:, WAIT]
    exact[:, N_WORK + 1] = exposed_part(fit.compiling) * fit.sizes[:, COMPILE]
    exact = np.maximum(exact, 0)
    scale = dur_ps / np.maximum(exact.sum(axis=1), 1e-300)
    parts: Int64s = np.floor(exact * scale[:, None] * (1 - 1e-12)).astype(np.int64)
    parts[np.arange(len(parts)), exact.argmax(axis=1)] += dur_ps - parts.sum(axis=1)
    return parts


def half_widths(fit: Fit, members: Sequence[int], confidence: float, *, summed: Floats | None = None) -> list[int]:
    """Half the interval of each quantity over some strata, in ps, rounded up.

    Args:
        fit: shares and sizes.
        members: the strata.
        confidence: of the interval.
        summed: `[len(PARTS) + k]` zeros and ones: the sum of these quantities instead of each; its scatter is taken
            to be no more than that of its members together.
    """
    variances, freedoms = part_variances(fit, members)
    if not len(variances):
        return [0] * (N_WAITS + len(fit.spread))
    freedom = satterthwaite_freedom(variances, freedoms)
    deviation = np.sqrt(variances.sum(axis=0))
    reach = np.array([t_quantile(0.5 + confidence / 2, min(f, 1e9)) for f in freedom.tolist()])
    half = np.ceil(deviation * reach)
    if summed is not None:
        return [int(np.ceil(np.sqrt((half[summed > 0] ** 2).sum())))]
    return [int(width) for width in half.tolist()]


def part_variances(fit: Fit, members: Sequence[int]) -> tuple[Floats, Floats]:
    """One row of variances `[len(PARTS) + k]` per source of error, and their degrees of freedom.

    Args:
        fit: shares and sizes.
        members: the strata that are added up.
    """
    rows: list[Floats] = []
    freedoms: list[float] = []
    chosen = np.array(members, np.int64)
    composition = np.zeros(len(fit.spread))
    for group in np.unique(fit.group[chosen]).tolist():
        mine = chosen[fit.group[chosen] == group]
        base = fit.base[group]
        if base is None:
            continue
        sizes, squares = fit.rest[mine].sum(axis=0), fit.squares[mine].sum(axis=0)
        rows.append(_with_waits(base.variance(sizes[BASE], squares[BASE])))
        freedoms.append(base.freedom)
        lent = mine[fit.borrowed[mine]]
        if len(lent):
            rows.append(_with_waits(fit.spread * float((fit.rest[lent, BASE] ** 2).sum())))
            freedoms.append(np.inf)
        for shares, cell in ((fit.long, LONG), (fit.far, FAR)):
            if shares is None:
                unknown = CellShares(base.ratio, bounded_scatter(base.ratio, 1), 1.0, np.inf)
                rows.append(_with_waits(unknown.variance(sizes[cell], squares[cell])))
                freedoms.append(np.inf)
        composition = np.maximum(composition, base.ratio)
    sizes, squares = fit.rest[chosen].sum(axis=0), fit.squares[chosen].sum(axis=0)
    for shares, cell in ((fit.long, LONG), (fit.far, FAR)):
        if shares is not None:
            rows.append(_with_waits(shares.variance(sizes[cell], squares[cell])))
            freedoms.append(shares.freedom)
    for column, (shares, cell) in enumerate(((fit.input, WAIT), (fit.compiling, COMPILE))):
        if shares is not None:
            variance = float(shares.variance(sizes[cell], squares[cell])[0])
            # What is not exposed of a wait is work: the error moves from one to the other.
            row = _with_waits(composition**2 * variance)
            row[N_WORK + column] = variance
            rows.append(row)
            freedoms.append(shares.freedom)
    return np.array(rows), np.array(freedoms)


def _with_waits(work: Floats) -> Floats:
    """Work and extras with room for the waits between them, in the order of PARTS."""
    return np.insert(work, N_WORK, np.zeros(N_WAITS))
