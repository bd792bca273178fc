"""Training of the model of operators: members that each leave one device out, and one that has seen all.

Physical times, weighed by a small network of the shape: written once, over NumPy and over jax.numpy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError
from phasepoint.learn.models.training import Trainer, import_optax, make_trainer, train
from phasepoint.learn.operators.features import GENERATIONS, TILES, WITH_GENERATION, features_of_work, traits_of_device
from phasepoint.learn.operators.work import PRODUCTS, OperatorTimes

HIDDEN = 24
"""Width of both hidden layers, a choice."""
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


STEPS = 1500
"""Of the optimiser, a choice: what the shipped model was trained with."""
_BATCH, _RATE, _DECAY = 512, 1e-2, 1e-3
_ROWS_PER_PART = 4000  # of one operator on one device: more bring no accuracy and cost time
_FLOOR_SHARE = {True: 1.0, False: 10.0}  # percentile taken for the dispatch, of products and of others (more are small)
_ODD = 0.15  # products: an error beyond this counts less and less
_SOFT = 1e-3  # others: below about 3 % an error counts with its square, above with its size
_START_S, _OFF = 8e-6, 10.0
_SCALARS = ("memory", "panel", "rows", "large", "energy", "lag", "start")


@dataclass(frozen=True)
class OperatorRows:
    """Measurements of one class, joined.

    Attributes:
        kind: the class.
        shape: float32 [n, inputs].
        terms: float32 [n, terms].
        log_time: float32 [n], natural logarithm of measured seconds.
        bound_s: float64 [n].
        op: [n], number in `ops`.
        device: [n], number in `devices`.
        ops: names.
        devices: names.
    """

    kind: str
    shape: npt.NDArray[np.float32]
    terms: npt.NDArray[np.float32]
    log_time: npt.NDArray[np.float32]
    bound_s: Floats
    op: npt.NDArray[np.int64]
    device: npt.NDArray[np.int64]
    ops: tuple[str, ...]
    devices: tuple[str, ...]


def rows_of_times(kind: str, times: Sequence[OperatorTimes], *, seed: int, most: int = _ROWS_PER_PART) -> OperatorRows:
    """Measurements of one class, at most so many of each operator and device, chosen by the seed."""
    parts = [part for part in times if part.kind == kind]
    ops = tuple(sorted({part.op for part in parts}))
    devices = tuple(sorted({part.spec.name for part in parts}))
    random = np.random.default_rng(seed)
    shape, terms, log_time, bound, op, device = [], [], [], [], [], []
    for part in parts:
        features = features_of_work(kind, part.work, traits_of_device(part.spec))
        kept = np.sort(random.permutation(len(part.time_s))[:most])
        shape.append(features.shape[kept])
        terms.append(features.terms[kept])
        bound.append(features.bound_s[kept])
        log_time.append(np.log(part.time_s[kept]))
        op.append(np.full(len(kept), ops.index(part.op)))
        device.append(np.full(len(kept), devices.index(part.spec.name)))
    return OperatorRows(
        kind,
        np.concatenate(shape),
        np.concatenate(terms),
        np.concatenate(log_time).astype(np.float32),
        np.concatenate(bound),
        np.concatenate(op),
        np.concatenate(device),
        ops,
        devices,
    )


def measured_floors(rows: OperatorRows) -> npt.NDArray[np.float64]:
    """What an operator takes at least, mostly its dispatch: logarithm of seconds, [ops, devices]; nan: not measured."""
    floors = np.full((len(rows.ops), len(rows.devices)), np.nan)
    for op in range(len(rows.ops)):
        for device in range(len(rows.devices)):
            of = rows.log_time[(rows.op == op) & (rows.device == device)]
            if len(of):
                floors[op, device] = np.percentile(of, _FLOOR_SHARE[rows.kind in PRODUCTS])
    return floors


def typical_floors(floors: npt.NDArray[np.float64], left_out: int | None) -> Floats:
    """What a new device gets, shape [ops]: the value of least mean relative error over known devices.

    A host says more of it than a GPU. The value is the median where each device weighs as one over its own.
    """
    kept = floors if left_out is None else np.delete(floors, left_out, axis=1)
    typical = np.full(len(kept), np.nan)
    for op, row in enumerate(kept):
        known = np.sort(row[np.isfinite(row)])
        if len(known):
            weight = np.cumsum(np.exp(-known))
            typical[op] = known[np.searchsorted(weight, weight[-1] / 2)]
    typical[np.isnan(typical)] = np.nanmedian(typical) if np.isfinite(typical).any() else np.log(_START_S)
    return typical


def train_members(
    rows: OperatorRows, left_out: Sequence[int | None], *, seed: int, steps: int = STEPS, blind: Sequence[bool] = ()
) -> dict[str, npt.NDArray[np.float32]]:
    """Train one network per entry of `left_out`, which names the device that it does not see.

    Args:
        rows: measurements of one class.
        left_out: numbers of devices, None for a member that sees all.
        seed: of the initial weights and the batches.
        steps: of the optimiser.
        blind: per entry, whether it does not see the generation either; none by default.

    Returns:
        By name, shape [members, …].

    Raises:
        MissingExtraError: JAX or optax is not installed.
    """
    import_optax()
    weights, seen = _start_weights(rows, left_out, seed), _seen(rows, left_out)
    floors = measured_floors(rows)[rows.op, rows.device].astype(np.float32)
    learned = _learned_inputs(rows, blind or [False] * len(left_out))
    chosen = np.random.default_rng(seed).integers(0, len(rows.log_time), (steps, _BATCH))

    def batches() -> Iterator[Any]:
        columns = (rows.shape, rows.terms, rows.log_time, floors)
        return ((*(column[of] for column in columns), seen[:, of], learned) for of in chosen)

    trained: dict[str, npt.NDArray[np.float32]] = train(_trainer(rows.kind, steps), weights, batches, epochs=1).weights
    return trained


def predicted_log_time(
    rows: OperatorRows, weights: Mapping[str, npt.NDArray[np.float32]], log_floor: Floats, chosen: Any = slice(None)
) -> Floats:
    """Logarithm of seconds of one member's answer for some rows, never below the bound."""
    features = (rows.shape[chosen].astype(np.float64), rows.terms[chosen].astype(np.float64))
    own = device_log_time(rows.kind, weights, features, np)
    joined = join_floor(own, float(weights["start"]), log_floor[rows.op[chosen]], np)
    return np.asarray(np.maximum(joined, np.log(rows.bound_s[chosen])))


def member_of(weights: Mapping[str, npt.NDArray[np.float32]], number: int) -> dict[str, npt.NDArray[np.float32]]:
    """One member's weights."""
    return {name: value[number] for name, value in weights.items()}


def _start_weights(rows: OperatorRows, left_out: Sequence[int | None], seed: int) -> dict[str, npt.NDArray[np.float32]]:
    members = len(left_out)
    random = np.random.default_rng(seed)
    sizes = (rows.shape.shape[1], HIDDEN, HIDDEN, outputs_of_class(rows.kind))
    weights: dict[str, Any] = {}
    for layer, (ins, outs) in enumerate(pairwise(sizes), start=1):
        scale = (0.1 if layer == 3 else 1.0) / np.sqrt(ins)
        weights[f"w{layer}"] = random.normal(size=(members, ins, outs)) * scale
        weights[f"b{layer}"] = np.zeros((members, outs))
    if rows.kind in WITH_GENERATION:
        weights["w1"][:, -GENERATIONS:] = 0.0  # a generation that a member never sees must not change what it says
    first = {
        "memory": 0.2,
        "panel": -2.0,
        "rows": 1.8,
        "large": 1.3,
        "energy": 0.0,
        "lag": -1.5,
        "start": np.log(_START_S),
    }
    weights.update({name: np.full(members, first[name]) for name in _SCALARS})
    if rows.kind in PRODUCTS:
        _without_unseen(weights, rows, left_out)
    else:
        weights["b3"] += np.array([0.0, -1.0, -1.0])
    return {name: np.asarray(value, np.float32) for name, value in weights.items()}


def _without_unseen(weights: Mapping[str, Any], rows: OperatorRows, left_out: Sequence[int | None]) -> None:
    """A term that no device of a member has is off: where it starts would be what it says of a left-out device."""
    for name, column in SOME_DEVICES.items():
        has = np.unique(rows.device[rows.terms[:, column] > rows.terms[:, column].min()])
        for member, out in enumerate(left_out):
            if not set(has) - {out}:
                weights[name][member] = -_OFF


def _learned_inputs(rows: OperatorRows, blind: Sequence[bool]) -> npt.NDArray[np.float32]:
    """1 where a member learns weights of an input, shape [members, inputs]; those of others stay 0."""
    learned = np.ones((len(blind), rows.shape.shape[1]), np.float32)
    if rows.kind in WITH_GENERATION:
        learned[np.asarray(blind, bool), -GENERATIONS:] = 0.0
    return learned


def _seen(rows: OperatorRows, left_out: Sequence[int | None]) -> npt.NDArray[np.float32]:
    """How much each row counts for each member, [members, n]: each operator on each device as much as any other."""
    count = np.bincount(rows.device * len(rows.ops) + rows.op, minlength=len(rows.ops) * len(rows.devices))
    weight = 1.0 / count[rows.device * len(rows.ops) + rows.op]
    weight = weight / weight.mean()
    seen = np.stack([weight * (rows.device != out) if out is not None else weight for out in left_out])
    if not (seen.sum(axis=1) > 0).all():
        raise ModelError(f"{rows.kind}: one device alone cannot be left out; at least two are needed")
    return seen.astype(np.float32)


@cache
def _trainer(kind: str, steps: int) -> Trainer:
    """The trainer of all members at once, compiled once per class and shape of its data."""
    import jax
    import jax.numpy as jnp
    import optax

    schedule = optax.cosine_decay_schedule(_RATE, steps)
    optimiser = optax.adamw(schedule, weight_decay=_DECAY, mask=lambda tree: {name: name[0] == "w" for name in tree})

    def loss_of_member(weights: Any, seen: Any, learned: Any, columns: Any) -> Any:
        shape, terms, log_time, floor = columns
        weights = {**weights, "w1": weights["w1"] * learned[:, None]}
        own = device_log_time(kind, weights, (shape, terms), jnp)
        error = join_floor(own, weights["start"], floor, jnp) - log_time
        # what no law of the others explains (P4's largest products) must not bend the law
        cost = jnp.log1p((error / _ODD) ** 2) if kind in WITH_GENERATION else jnp.sqrt(error * error + _SOFT)
        return jnp.sum(seen * cost) / (jnp.sum(seen) + 1e-6)

    def loss(weights: Any, batch: Any) -> Any:
        *columns, seen, learned = batch
        return jax.vmap(loss_of_member, in_axes=(0, 0, 0, None))(weights, seen, learned, columns).sum()

    return make_trainer(loss, optimiser)
