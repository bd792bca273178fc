"""Physical times, weighed by a small network of the shape: written once, over NumPy and over jax.numpy."""

from collections.abc import Mapping
from typing import Any

from phasepoint.learn.operator_features import TILES
from phasepoint.learn.operator_work import PRODUCTS

HIDDEN = 24
_LIMIT = 4.0  # of a learned factor, natural logarithm
_T = len(TILES)
SOME_DEVICES = {"rows": 5 * _T + 2, "large": 5 * _T + 3}
"""Scalars of terms of products that only some devices have, and the terms' columns."""


def outputs_of_class(kind: str) -> int:
    """Numbers that the network gives for one operator of a class."""
    return _T + 5 if kind in PRODUCTS else 3


def network_outputs(weights: Mapping[str, Any], shape: Any, xp: Any) -> Any:
    """Two hidden layers. Shapes: weights of one member, `shape` [n, inputs] → [n, outputs]."""
    hidden = xp.tanh(shape @ weights["w1"] + weights["b1"])
    hidden = xp.tanh(hidden @ weights["w2"] + weights["b2"])
    return xp.clip(hidden @ weights["w3"] + weights["b3"], -_LIMIT, _LIMIT)


def device_log_time(kind: str, weights: Mapping[str, Any], features: tuple[Any, Any], xp: Any) -> Any:
    """Logarithm of the seconds that the device is at work, without what the framework needs to dispatch.

    Args:
        kind: class of the operators.
        weights: of one member.
        features: shape [n, inputs] and terms [n, terms] (`operator_features.Features`).
        xp: numpy or jax.numpy.

    Returns:
        Shape [n], natural logarithm of seconds, without the start of a kernel (`weights["start"]`).
    """
    shape, terms = features
    out = network_outputs(weights, shape, xp)
    if kind in PRODUCTS:
        return _product_time(weights, out, terms, xp)
    memory = terms[:, 0] + weights["memory"] + out[:, 0]
    compute = xp.logaddexp(terms[:, 1] + out[:, 1], terms[:, 2] + out[:, 2])
    return _join((memory, compute), 3.0, xp)


def _product_time(weights: Mapping[str, Any], out: Any, terms: Any, xp: Any) -> Any:
    chance = out[:, :_T] - _log_sum(out[:, :_T], xp)[:, None]
    compute = terms[:, :_T] + out[:, _T, None]
    store = terms[:, _T : 2 * _T] + out[:, _T + 1, None]
    latency = terms[:, 2 * _T : 3 * _T] + out[:, _T + 2, None]
    over = terms[:, 3 * _T : 4 * _T] + out[:, _T + 3, None]
    each = _join((xp.logaddexp(compute, store), xp.logaddexp(latency, over)), 4.0, xp)
    again = xp.logaddexp(terms[:, 5 * _T + 2] + weights["rows"], terms[:, 5 * _T + 3] + weights["large"])
    tiles = xp.logaddexp(_log_sum(chance + each, xp), again)
    energy = _log_sum(chance + terms[:, 4 * _T : 5 * _T], xp) + weights["energy"]
    memory = xp.logaddexp(
        terms[:, 5 * _T] + weights["memory"] + out[:, _T + 4], terms[:, 5 * _T + 1] + weights["panel"]
    )
    # a board lowers its clock only after a while: work below a millisecond is held back less
    energy = energy - xp.exp(weights["lag"]) * xp.logaddexp(0.0, -(energy - xp.log(1e-3)))
    return _join((_join((tiles, memory), 4.0, xp), energy), 8.0, xp)


def join_floor(log_time: Any, start: Any, log_floor: Any, xp: Any) -> Any:
    """Device time with the start of a kernel, never below what dispatching an operator takes."""
    return _join((xp.logaddexp(log_time, start), log_floor), 6.0, xp)


def _join(times: tuple[Any, Any], power: float, xp: Any) -> Any:
    return xp.logaddexp(power * times[0], power * times[1]) / power


def _log_sum(values: Any, xp: Any) -> Any:
    top = values.max(axis=1)
    return top + xp.log(xp.exp(values - top[:, None]).sum(axis=1))
