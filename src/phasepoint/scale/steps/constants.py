"""From parts at the peak to seconds: a constant for each part, fitted on published or measured steps, near a prior.

A part is what a step would spend on something if the device did nothing else and reached its peak: so many flop over
the peak, so many bytes over the bandwidth. Its constant says how far the real thing stays behind, and should be the
same for all models of one framework on one device. With a handful of measured steps not every constant shows; those
that do not stay at what was assumed before any was seen.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from phasepoint.core.arrays import Floats

SHARPNESS = 4.0
"""Of the softer of two maxima, (a⁴ + b⁴)^¼: where device and host take equally long, a layer takes 19 % longer than
either. A choice, made on the 1,440 iterations of one node."""

PRIOR_WEIGHT = 0.07
"""Residuals of some 5 % against constants that are known to a factor of two, e^0.7: 0.05 / 0.7. Set beforehand."""


@dataclass(frozen=True)
class Part:
    """One part of a step.

    Attributes:
        name: of the part, as results show it.
        prior: what its constant is taken to be before a step was measured; 1 would be the peak.
        side: "device": work that hides the host's; "host": what starts it, seen where it takes longer; "beside": what
            neither hides.
        text: what it is.
    """

    name: str
    prior: float
    side: str
    text: str


Parts = Mapping[str, float]
"""Seconds at the peak by a part's name."""

Constants = Mapping[str, float]


def step_parts_s(parts: Parts, constants: Constants, table: Sequence[Part]) -> dict[str, float]:
    """Seconds of every part of a step; they add up to the step.

    Where device and host overlap, what the longer one hides is taken from both in proportion.

    Example:
        >>> sides = {"products": "device", "starts": "host", "links": "beside"}
        >>> table = [Part(name, 1.0, side, "") for name, side in sides.items()]
        >>> parts = step_parts_s({"products": 2.0, "starts": 1.0, "links": 0.5}, {"products": 1.5}, table)
        >>> {name: round(seconds, 2) for name, seconds in parts.items()}
        {'products': 2.26, 'starts': 0.75, 'links': 0.5}
    """
    whole = {row.name: constants.get(row.name, row.prior) * parts.get(row.name, 0.0) for row in table}
    sums = {side: sum(whole[row.name] for row in table if row.side == side) for side in ("device", "host", "beside")}
    both = sums["device"] + sums["host"]
    shared = (sums["device"] ** SHARPNESS + sums["host"] ** SHARPNESS) ** (1 / SHARPNESS)
    left = shared / both if both else 1.0
    return {row.name: whole[row.name] * (1.0 if row.side == "beside" else left) for row in table}


def step_s(parts: Parts, constants: Constants, table: Sequence[Part]) -> float:
    """Seconds of a step."""
    return sum(step_parts_s(parts, constants, table).values())


def fit_constants(
    rows: Sequence[Parts], seconds: Sequence[float], table: Sequence[Part], *, weights: Sequence[float] | None = None
) -> dict[str, float]:
    """Constants that fit measured steps: least squares of the logarithm, robust, with every constant near its prior.

    Args:
        rows: the parts of each step.
        seconds: what each took.
        table: the parts that there are.
        weights: of each step; alike by default.
    """
    from scipy.optimize import least_squares

    names = [row.name for row in table]
    sides = np.array([row.side for row in table])
    at_peak = np.array([[row.get(name, 0.0) for name in names] for row in rows])
    log_prior, log_s = np.log([row.prior for row in table]), np.log(seconds)
    scale = np.sqrt(np.ones(len(rows)) if weights is None else np.asarray(weights))

    def total(log_constants: Floats) -> Floats:
        parts = at_peak * np.exp(log_constants)
        device, host, beside = (parts[:, sides == side].sum(1) for side in ("device", "host", "beside"))
        return np.asarray((device**SHARPNESS + host**SHARPNESS) ** (1 / SHARPNESS) + beside)

    def residuals(log_constants: Floats) -> Floats:
        off = scale * (np.log(total(log_constants)) - log_s)
        return np.concatenate([off, PRIOR_WEIGHT * (log_constants - log_prior)])

    found = least_squares(residuals, log_prior, loss="soft_l1", f_scale=0.1).x
    return {name: float(f"{np.exp(value):.4g}") for name, value in zip(names, found, strict=True)}


@cache
def shipped_constants() -> Mapping[str, Mapping[str, object]]:
    """The constants that came with the package: by the name of a set, with `constants`, `source`, `points`, `error`."""
    read: Mapping[str, Mapping[str, object]] = json.loads(files(__package__).joinpath("constants.json").read_text())
    return read
