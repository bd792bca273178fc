"""From ten models measured on a device to all the others: a Gaussian process over what is known of each model.

Known of a model are its times on other devices, and its parameters, multiply-accumulates and activations. The ln of a
model's time on the new device is

    mean of the others + level + others · weights + sizes · slopes + family + something smooth + noise

with everything behind the mean drawn from normal distributions around 0. How wide these are is fitted on the other
devices, each of them taken for the new one (marginal likelihood); how far the intervals must reach, likewise. The ten
times of the new device then move the widths for its predictions, as far as they are likely to be other than on the
others; its intervals stay those of the others' widths, because ten times that are predicted well say little of the
rest.

Source: Rasmussen, Williams, "Gaussian Processes for Machine Learning", 2006, chapters 2 and 5.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Floats, Int64s

LEVEL = 0.9
"""Of intervals."""

LEVEL_SPREAD = 3.0
"""Standard deviation of the level, in ln: a device may be twenty times faster or slower than the mean of the others."""

TASK_MODELS = 160
"""Models of each device that widths are fitted on, drawn by chance: the likelihood costs the cube of their number."""

START = (0.3, 0.1, 0.1, 1.0, 0.05, 0.03)
"""Widths to start from: of weights, slopes, the smooth part, its length, families, noise. A choice; they are fitted."""

OWN_SPREAD = 1.0
"""Standard deviation of ln of a device's own widths around those of the others: a choice, a factor of e."""

PROBES = 10
"""Models that are measured on a new device."""


@dataclass(frozen=True)
class KnownModels:
    """What is known of each model before the new device. Arrays are [models, …].

    Attributes:
        log_times: on the other devices, ln of seconds for one sample: [models, devices].
        sizes: [models, sizes], ln of parameters, multiply-accumulates, activations and of the picture's side.
        families: a name for models of one kind.
        owners: [devices] the physical device of each column: one may have several (precisions, compiled or not).
    """

    log_times: Floats
    sizes: Floats
    families: Sequence[str]
    owners: Sequence[str]

    def without(self, owner: str) -> "KnownModels":
        """The same without the times on one device."""
        kept = [place for place, name in enumerate(self.owners) if name != owner]
        return KnownModels(self.log_times[:, kept], self.sizes, self.families, [self.owners[at] for at in kept])

    def rows(self, places: Int64s) -> "KnownModels":
        """The same of some models."""
        families = [self.families[int(place)] for place in places]
        return KnownModels(self.log_times[places], self.sizes[places], families, self.owners)


@dataclass(frozen=True)
class PredictedTimes:
    """ln of seconds of each model, and the ends of its 90 % interval. Arrays are [models]."""

    log_time: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Widths:
    """What was fitted on the other devices.

    Attributes:
        values: as `START`.
        reach: half-width of the interval, in standard deviations.
    """

    values: tuple[float, ...]
    reach: float


def family_of(model: str) -> str:
    """The kind of a model, by its name: what stands before its first number or part.

    Example:
        >>> [family_of(name) for name in ("resnet50.a1_in1k", "vit_base_patch16_224", "convnextv2_tiny")]
        ['resnet', 'vit', 'convnextv']
    """
    return re.split(r"[\d_.]", model, maxsplit=1)[0] or model


def scaled_sizes(log_sizes: Floats) -> Floats:
    """Sizes around 0 with a spread of 1, as `KnownModels` has them; those that are the same for all models are 0."""
    spread = log_sizes.std(0)
    return np.asarray((log_sizes - log_sizes.mean(0)) / np.where(spread > 0, spread, 1.0))


def fit_widths(known: KnownModels, *, seed: int = 0) -> Widths:
    """Widths that make the times on each other device likely, given those on the rest.

    With one other device there is nothing to fit them on, and `START` is taken.
    """
    from scipy.optimize import minimize

    chance = np.random.default_rng(seed)
    tasks = []
    for column, owner in enumerate(known.owners):
        rest = known.without(owner)
        if rest.owners:
            places = chance.permutation(len(known.families))[:TASK_MODELS]
            tasks.append((rest.rows(places), known.log_times[places, column]))
    if not tasks:
        return Widths(START, 1.645)  # of a normal distribution, 90 %

    def cost(log_widths: Floats) -> float:
        widths = np.exp(log_widths)
        near = float(((log_widths - np.log(START)) ** 2).sum()) / 8  # known to a factor of e²
        likely = [_log_likelihood(rest, log_times, widths) for rest, log_times in tasks]
        return near - sum(likely) / len(tasks)

    found = minimize(cost, np.log(START), method="L-BFGS-B", options={"maxiter": 40})
    widths = tuple(map(float, np.exp(found.x)))
    return Widths(widths, _reach(known, widths, chance))


def _reach(known: KnownModels, widths: tuple[float, ...], chance: np.random.Generator) -> float:
    """How many standard deviations hold 90 % of the models where each other device is taken for the new one."""
    scores = []
    for column, owner in enumerate(known.owners):
        rest = known.without(owner)
        if rest.owners:
            probes = choose_models(rest, widths, PROBES)
            others = np.setdiff1d(np.arange(len(known.families)), probes)
            mean, deviation = _predicted(rest, widths, probes, known.log_times[probes, column])
            scores.append(np.abs(known.log_times[others, column] - mean[others]) / deviation[others])
    return float(max(np.quantile(np.concatenate(scores), LEVEL), 1.0))


def choose_models(known: KnownModels, widths: Sequence[float] | Floats, count: int = PROBES) -> Int64s:
    """The models whose times on a new device tell most of all the others: each takes most of what is still unknown."""
    kernel = covariance(known, known, widths)
    noise = widths[-1] ** 2
    chosen: list[int] = []
    for _ in range(min(count, len(kernel))):
        told = (kernel**2).sum(1) / (np.diag(kernel) + noise)
        told[chosen] = -np.inf
        best = int(told.argmax())
        chosen.append(best)
        kernel = kernel - np.outer(kernel[:, best], kernel[best]) / (kernel[best, best] + noise)
    return np.array(chosen)


def predict_times(known: KnownModels, widths: Widths, probes: Int64s, log_times: Floats) -> PredictedTimes:
    """Times of all models on a new device.

    Args:
        known: of all models.
        widths: of the parts, `fit_widths`.
        probes: places of the models that were measured there.
        log_times: ln of the seconds that they took.
    """
    mean, deviation = _predicted(known, widths.values, probes, log_times)
    half = widths.reach * deviation
    return PredictedTimes(mean, mean - half, mean + half)


def own_widths(known: KnownModels, widths: tuple[float, ...], probes: Int64s, log_times: Floats) -> tuple[float, ...]:
    """Widths that the models measured on a device make likely, beginning from those of the other devices.

    Args:
        known: of all models.
        widths: of the parts, fitted on the others.
        probes: places of the models that were measured.
        log_times: ln of the seconds that they took.
    """
    from scipy.optimize import minimize

    measured, base = known.rows(probes), np.log(widths)

    def cost(log_widths: Floats) -> float:
        near = float(((log_widths - base) ** 2).sum()) / (2 * OWN_SPREAD**2)
        return near - _log_likelihood(measured, log_times, np.exp(log_widths))

    found = minimize(cost, base, method="L-BFGS-B", options={"maxiter": 40})
    return tuple(map(float, np.exp(found.x)))


def _predicted(
    known: KnownModels, widths: tuple[float, ...], probes: Int64s, log_times: Floats
) -> tuple[Floats, Floats]:
    """Means by the device's own widths, and deviations by those of the others."""
    own = own_widths(known, widths, probes, log_times)
    return _posterior(known, own, probes, log_times)[0], _posterior(known, widths, probes, log_times)[1]


def covariance(one: KnownModels, two: KnownModels, widths: Sequence[float] | Floats) -> Floats:
    """How the ln of times go together, [models of one, models of two]; noise left out."""
    weight, slope, smooth, length, family, _ = widths
    parts = [(a.log_times - a.log_times.mean(1, keepdims=True), a.sizes) for a in (one, two)]
    (times, sizes), (other_times, other_sizes) = parts
    away = np.concatenate([times, sizes], 1)[:, None] - np.concatenate([other_times, other_sizes], 1)[None]
    level = one.log_times.mean(1)[:, None] - two.log_times.mean(1)[None]
    squares = ((away**2).sum(2) + level**2) / length**2
    alike = np.array(one.families)[:, None] == np.array(two.families)[None]
    return np.asarray(
        LEVEL_SPREAD**2
        + weight**2 * times @ other_times.T
        + slope**2 * sizes @ other_sizes.T
        + smooth**2 * np.exp(-squares / 2)
        + family**2 * alike
    )


def _posterior(
    known: KnownModels, widths: Sequence[float] | Floats, probes: Int64s, log_times: Floats
) -> tuple[Floats, Floats]:
    from scipy.linalg import cho_factor, cho_solve

    measured = known.rows(probes)
    across = covariance(known, measured, widths)
    inside = covariance(measured, measured, widths) + widths[-1] ** 2 * np.eye(len(probes))
    factor = cho_factor(inside)
    mean = known.log_times.mean(1) + across @ cho_solve(factor, log_times - measured.log_times.mean(1))
    own = _own_variance(known, widths)
    left = own - (across * cho_solve(factor, across.T).T).sum(1) + widths[-1] ** 2
    return mean, np.sqrt(np.maximum(left, widths[-1] ** 2))


def _own_variance(known: KnownModels, widths: Sequence[float] | Floats) -> Floats:
    """The diagonal of `covariance`."""
    weight, slope, smooth, _, family, _ = widths
    times = known.log_times - known.log_times.mean(1, keepdims=True)
    return np.asarray(
        LEVEL_SPREAD**2 + weight**2 * (times**2).sum(1) + slope**2 * (known.sizes**2).sum(1) + smooth**2 + family**2
    )


def _log_likelihood(known: KnownModels, log_times: Floats, widths: Sequence[float] | Floats) -> float:
    from scipy.linalg import cho_factor, cho_solve

    kernel = covariance(known, known, widths) + widths[-1] ** 2 * np.eye(len(log_times))
    rest = log_times - known.log_times.mean(1)
    factor, _ = cho_factor(kernel)
    solved = cho_solve((factor, False), rest)
    return float(-0.5 * rest @ solved - np.log(np.diag(factor)).sum()) / len(log_times) * 10
