"""Training the networks over graphs: what is made small, in which batches. Needs JAX and optax.

A loss is of errors of log times, or of wrong orders within a kernel. Over `numpy` or `jax.numpy`.

Source: Kaufman et al., MLSys 2021, section 3.3 (squared error of log times; pairwise rank losses, hinge and
logistic); Huber, "Robust estimation of a location parameter", 1964.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Float32s, Floats
from phasepoint.learn.models.model_file import Progress
from phasepoint.learn.models.network import (
    BATCH_NODES,
    GraphBatch,
    InputGraph,
    NetworkShape,
    batch_rows,
    bucket_graphs,
    create_parameters,
    network_log_times,
    predict_network,
    stack_graphs,
)
from phasepoint.learn.models.training import Trained, Trainer, Weights, import_optax, make_trainer, part_of, train

RANK_LOSSES = ("hinge", "logistic")
HUBER_STEP = 0.1
"""Log error above which the Huber loss grows linearly: about 10 %, the error aimed at."""


def squared_log_error(xp: Any, guess: Any, truth: Any, weight: Any) -> Any:
    """Weighted mean of (log guess − log truth)².

    Args:
        xp: `numpy` or `jax.numpy`.
        guess: log of predicted times, shape [n].
        truth: log of measured times, shape [n].
        weight: shape [n], at least 0; 0 leaves a row out.
    """
    return _mean(xp, (guess - truth) ** 2, weight)


def huber_log_error(xp: Any, guess: Any, truth: Any, weight: Any) -> Any:
    """As `squared_log_error`, but linear above `HUBER_STEP`: few kernels that nothing explains do not rule it."""
    size = xp.abs(guess - truth)
    return _mean(xp, xp.where(size < HUBER_STEP, size**2 / (2 * HUBER_STEP), size - HUBER_STEP / 2), weight)


def relative_error(xp: Any, guess: Any, truth: Any, weight: Any) -> Any:
    """Weighted mean of |guess / truth − 1|, which is what is reported, with a slope everywhere.

    Far below the truth the relative error is flat at 1, so the log error takes its place on that side; far above, it
    grows linearly in the log.
    """
    gap = guess - truth
    above = xp.where(gap < 1.0, xp.exp(xp.minimum(gap, 1.0)) - 1.0, xp.exp(1.0) * gap - 1.0)
    return _mean(xp, xp.sqrt(xp.where(gap > 0, above, gap) ** 2 + 1e-4), weight)


def rank_loss(xp: Any, scores: Any, truth: Any, groups: Any, *, kind: str = "hinge") -> Any:
    """Mean over pairs of one group of how far the slower one is not above the faster one.

    Args:
        xp: `numpy` or `jax.numpy`.
        scores: higher means slower, shape [n].
        truth: measured, any increasing function of time, shape [n].
        groups: whole numbers, shape [n]; pairs are made within one; below 0: in no pair.
        kind: `hinge` or `logistic`.

    Returns:
        0 where no group has two different times.
    """
    gap = scores[:, None] - scores[None, :]
    pair = (truth[:, None] > truth[None, :]) & (groups[:, None] == groups[None, :]) & (groups[:, None] >= 0)
    pair = pair.astype(scores.dtype)
    cost = xp.maximum(1.0 - gap, 0.0) if kind == "hinge" else xp.logaddexp(xp.zeros_like(gap), -gap)
    return (cost * pair).sum() / xp.maximum(pair.sum(), 1.0)


def _mean(xp: Any, values: Any, weight: Any) -> Any:
    return (values * weight).sum() / xp.maximum(weight.sum(), 1e-9)


LOSSES: Mapping[str, Callable[..., Any]] = {
    "squared": squared_log_error,
    "huber": huber_log_error,
    "relative": relative_error,
}
"""Losses of times, by name."""


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained.

    Attributes:
        loss: one of `LOSSES` for times, of `RANK_LOSSES` for orders.
        epochs: passes over the training rows.
        learning_rate: at the start; it falls along a cosine to a hundredth.
        weight_decay: of AdamW.
        clip: largest norm of a gradient.
        average: share of the old in the moving average of weights, per step.
        choices: how often in a training the averaged weights are tried on the calibration rows; the best are kept.
        batch_nodes: nodes in a batch.
    """

    loss: str = "relative"
    epochs: int = 30
    learning_rate: float = 2e-3
    weight_decay: float = 0.2
    clip: float = 1.0
    average: float = 0.99
    choices: int = 10
    batch_nodes: int = BATCH_NODES

    def __post_init__(self) -> None:
        if self.loss not in LOSSES and self.loss not in RANK_LOSSES:
            raise ValueError(f"no loss {self.loss!r}; there are {', '.join((*LOSSES, *RANK_LOSSES))}")


@dataclass(frozen=True)
class TrainingData:
    """What a network learns from.

    Attributes:
        graphs: n graphs, encoded.
        target: log of the measured times, [n].
        offset: what the network's number is added to, [n]: log of the analytic model's times, or a constant.
        weight: how much a row counts, [n].
        groups: rows of one number are compared with each other by a rank loss, [n]; below 0: with none.
        train: rows to learn from.
        choose: rows on which the best weights are chosen; none: the last ones are kept.
    """

    graphs: Sequence[InputGraph]
    target: Floats
    offset: Floats
    weight: Floats
    groups: npt.NDArray[np.int64]
    train: npt.NDArray[np.int64]
    choose: npt.NDArray[np.int64]


def train_ensemble(
    data: TrainingData,
    network: NetworkShape,
    settings: TrainingSettings,
    *,
    members: int,
    seed: int,
    progress: Progress | None = None,
) -> tuple[Trained, ...]:
    """Networks that differ in their starting weights and in the order of batches.

    Raises:
        MissingExtraError: JAX or optax is not installed.
    """
    return tuple(
        train_network(data, network, settings, seed=seed * 1000 + member, progress=part_of(progress, member, members))
        for member in range(members)
    )


def train_network(
    data: TrainingData,
    network: NetworkShape,
    settings: TrainingSettings,
    *,
    seed: int,
    progress: Progress | None = None,
) -> Trained:
    """One network; its weights by name.

    Raises:
        MissingExtraError: JAX or optax is not installed.
    """
    import_optax()
    from jax.flatten_util import ravel_pytree

    batches = _Batches(data, settings.batch_nodes)
    trainer, named = _network_trainer(network, settings, max(batches.per_epoch * settings.epochs, 1))
    start, _ = ravel_pytree(create_parameters(network, seed=seed))
    draw = np.random.default_rng([seed, 1])
    trained = train(
        trainer,
        start,
        lambda: batches.shuffled(draw),
        epochs=settings.epochs,
        error=(lambda weights: _error(named(weights), data, network, settings)) if len(data.choose) else None,
        choices=settings.choices,
        progress=progress,
    )
    return Trained(named(trained.weights), trained.error)


def _error(weights: Weights, data: TrainingData, network: NetworkShape, settings: TrainingSettings) -> float:
    """On the rows that the best weights are chosen on."""
    said = network_log_times(weights, network, [data.graphs[row] for row in data.choose]) + data.offset[data.choose]
    truth, weight = data.target[data.choose], data.weight[data.choose]
    if settings.loss in RANK_LOSSES:
        return float(rank_loss(np, said, truth, data.groups[data.choose], kind=settings.loss))
    return float(np.average(np.abs(np.expm1(np.clip(said - truth, -20, 20))), weights=weight))


@lru_cache(maxsize=4)
def _network_trainer(
    network: NetworkShape, settings: TrainingSettings, steps: int
) -> tuple[Trainer, Callable[[Any], dict[str, Float32s]]]:
    """The trainer of all weights as one vector, and what makes named weights of the vector.

    Kept, so that the members of an ensemble are compiled once; one vector, because an update of many small arrays takes
    longest to compile.
    """
    import jax.numpy as jnp
    import optax
    from jax.flatten_util import ravel_pytree

    _, unravel = ravel_pytree(create_parameters(network, seed=0))
    schedule = optax.cosine_decay_schedule(settings.learning_rate, steps, alpha=0.01)
    optimiser = optax.chain(
        optax.clip_by_global_norm(settings.clip), optax.adamw(schedule, weight_decay=settings.weight_decay)
    )

    def loss(weights: Any, batch: tuple[GraphBatch, Mapping[str, Any]]) -> Any:
        graphs, rows = batch
        said = predict_network(jnp, unravel(weights), graphs, network) + rows["offset"]
        if settings.loss in RANK_LOSSES:
            return rank_loss(jnp, said, rows["target"], rows["groups"], kind=settings.loss)
        return LOSSES[settings.loss](jnp, said, rows["target"], rows["weight"])

    def named(weights: Any) -> dict[str, Float32s]:
        return {name: np.array(value) for name, value in unravel(weights).items()}

    return make_trainer(loss, optimiser, average=settings.average), named


class _Batches:
    """Training rows, padded once per bucket; every epoch cuts them into batches of a few fixed shapes."""

    def __init__(self, data: TrainingData, batch_nodes: int) -> None:
        graphs = [data.graphs[row] for row in data.train]
        self._parts: list[tuple[GraphBatch, dict[str, npt.NDArray[Any]], int]] = []
        for nodes, rows in bucket_graphs(graphs).items():
            at = data.train[rows]
            values = {
                "target": data.target[at].astype(np.float32),
                "offset": data.offset[at].astype(np.float32),
                "weight": data.weight[at].astype(np.float32),
                "groups": data.groups[at].astype(np.int32),
            }
            size = min(batch_rows(nodes, batch_nodes=batch_nodes), len(rows))
            self._parts.append((stack_graphs([graphs[row] for row in rows], nodes=nodes), values, size))
        self.per_epoch = sum(-(-len(values["target"]) // size) for _, values, size in self._parts)

    def shuffled(self, draw: np.random.Generator) -> Iterator[tuple[GraphBatch, dict[str, npt.NDArray[Any]]]]:
        """All rows once, batches in random order; rows of a group stay beside each other."""
        cuts: list[tuple[int, npt.NDArray[np.int64], int]] = []
        for part, (_, values, size) in enumerate(self._parts):
            order = _shuffled_groups(values["groups"], draw)
            cuts += [(part, order[start : start + size], size) for start in range(0, len(order), size)]
        for cut in draw.permutation(len(cuts)):
            part, rows, size = cuts[cut]
            graphs, values, _ = self._parts[part]
            fill = np.concatenate([rows, np.repeat(rows[:1], size - len(rows))])
            chosen = {name: column[fill] for name, column in values.items()}
            chosen["weight"][len(rows) :] = 0.0
            chosen["groups"][len(rows) :] = -1
            yield GraphBatch(*(array[fill] for array in graphs)), chosen


def _shuffled_groups(groups: npt.NDArray[Any], draw: np.random.Generator) -> npt.NDArray[np.int64]:
    """A random order of rows in which those of one group follow each other; rows of no group are single."""
    alone = np.where(groups < 0, groups.min(initial=0) - 1 - np.arange(len(groups)), groups)
    _, number = np.unique(alone, return_inverse=True)
    place = draw.permutation(int(number.max(initial=-1)) + 1)[number]
    return np.lexsort((draw.random(len(groups)), place))
