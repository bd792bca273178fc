"""The one training loop: steps of an optimiser over batches, averaged weights, early choice. Needs JAX and optax.

A model brings its first weights, its loss and its batches. Whatever it draws, it draws from its seed: the same data and
seed give equal weights on the same machine and versions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from phasepoint.core.errors import MissingExtraError
from phasepoint.learn.models.model_file import Progress

Weights = Any
"""A tree of arrays."""

Loss = Callable[[Weights, Any], Any]
"""Weights and a batch → the number that training makes small; over `jax.numpy`."""


@dataclass(frozen=True)
class Trainer:
    """A loss and what makes it small, compiled once for all trainings that use it.

    Attributes:
        optimiser: of optax.
        step: state and batch → the state after a step, in place of the former. A state is weights, the optimiser's
            moments and the moving average of the weights (None without one).
        average: share of the old in the moving average, per step; None: the weights count as they are.
    """

    optimiser: Any
    step: Callable[[Any, Any], Any]
    average: float | None


@dataclass(frozen=True)
class Trained:
    """Weights as NumPy arrays, and their error on the data that they were chosen by (None where there was none)."""

    weights: Weights
    error: float | None


def import_optax() -> Any:
    """Optax, and with it JAX.

    Raises:
        MissingExtraError: one of them is not installed.
    """
    try:
        import jax  # noqa: F401
        import optax
    except ImportError as error:
        raise MissingExtraError("training needs JAX and optax: pip install 'phasepoint[jax]'") from error
    return optax


def make_trainer(loss: Loss, optimiser: Any, *, average: float | None = None) -> Trainer:
    """A trainer; arguments as its attributes."""
    import jax
    import optax

    def step(state: Any, batch: Any) -> Any:
        weights, moments, averaged = state
        change, moments = optimiser.update(jax.grad(loss)(weights, batch), moments, weights)
        weights = optax.apply_updates(weights, change)
        if average is not None:
            averaged = jax.tree.map(lambda old, new: average * old + (1.0 - average) * new, averaged, weights)
        return weights, moments, averaged

    return Trainer(optimiser, jax.jit(step, donate_argnums=0), average)


def train(
    trainer: Trainer,
    weights: Weights,
    batches: Callable[[], Iterable[Any]],
    *,
    epochs: int,
    error: Callable[[Weights], float] | None = None,
    choices: int = 1,
    progress: Progress | None = None,
) -> Trained:
    """Train one set of weights.

    Args:
        trainer: loss and optimiser.
        weights: to start from.
        batches: those of the next epoch; called once for each.
        epochs: passes over the data.
        error: of weights, on data that was held back: those of least error are taken. None: the last ones.
        choices: how often in a training the error is looked at; at its end in any case.
        progress: told of epochs done.
    """
    import jax

    weights = jax.tree.map(jax.numpy.asarray, weights)
    averaged = None if trainer.average is None else jax.tree.map(jax.numpy.copy, weights)
    state = weights, trainer.optimiser.init(weights), averaged
    every = max(1, epochs // max(choices, 1))
    best = Trained(None, None)
    for epoch in range(1, epochs + 1):
        for batch in batches():
            state = trainer.step(state, batch)
        if epoch == epochs or (error is not None and epoch % every == 0):
            now = jax.tree.map(np.array, state[0] if trainer.average is None else state[2])
            best = _better(best, now, error)
        if progress is not None:
            progress(epoch, epochs)
    return best


def _better(best: Trained, weights: Weights, error: Callable[[Weights], float] | None) -> Trained:
    """The weights of less error; the later ones where there is none, or it is no number."""
    if error is None:
        return Trained(weights, None)
    now = error(weights)
    return best if best.error is not None and best.error <= now else Trained(weights, now)


def part_of(progress: Progress | None, part: int, parts: int) -> Progress | None:
    """Progress of one of several trainings, told as that of all."""
    if progress is None:
        return None
    return lambda done, total: progress(part * total + done, parts * total)
