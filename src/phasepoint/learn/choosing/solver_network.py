"""The network that knows how long each solver of a convolution takes: layers with shortcuts, one output per solver.

Applied by NumPy; trained by JAX. A few networks are trained apart and their answers averaged.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phasepoint.learn.models.model_file import Progress
from phasepoint.learn.models.training import Trainer, import_optax, make_trainer, part_of, train

Layers = list[tuple[Any, Any]]


@dataclass(frozen=True)
class SolverTraining:
    """How networks are trained. The values were found by trial on a part of the two devices' measurements.

    Attributes:
        networks: trained apart, averaged.
        width: of the three hidden layers.
        epochs: times each problem is seen.
        batch: problems in a batch.
        learning_rate: at its highest, after a tenth of the steps.
        weight_decay: of AdamW.
        choice_weight: of the cross-entropy of the choice against the error of the times.
        regret_weight: of the expected regret of a choice drawn by the predicted times.
        most_regret: beyond it a choice counts no worse; measurements that were disturbed are slower by × 1000.
    """

    networks: int = 3
    width: int = 192
    epochs: int = 36
    batch: int = 512
    learning_rate: float = 3e-3
    weight_decay: float = 1e-3
    choice_weight: float = 0.2
    regret_weight: float = 0.3
    most_regret: float = 10.0


def apply_network(xp: Any, layers: Layers, x: Any) -> Any:
    """Outputs of a network, `[n, solvers]`.

    Args:
        xp: numpy or jax.numpy.
        layers: weights [in, out] and bias [out]; all but the first and the last have a shortcut.
        x: [n, features], standardised.
    """
    hidden = x
    for place, (weight, bias) in enumerate(layers[:-1]):
        inner = hidden @ weight + bias
        # x·sigmoid(x), by tanh, which does not overflow.
        active = inner * (0.5 + 0.5 * xp.tanh(0.5 * inner))
        hidden = active if place == 0 else hidden + active
    weight, bias = layers[-1]
    return hidden @ weight + bias


def network_arrays(networks: list[Layers]) -> dict[str, NDArray[np.float16]]:
    """Layers by name, in 16 bits: `w0_1` is the weight of the second layer of the first network."""
    return {
        f"{kind}{which}_{place}": np.asarray(array, np.float16)
        for which, layers in enumerate(networks)
        for place, pair in enumerate(layers)
        for kind, array in zip("wb", pair, strict=True)
    }


def networks_of(arrays: Mapping[str, NDArray[Any]]) -> list[Layers]:
    """The networks of a model's arrays, in 32 bits."""
    networks: list[Layers] = []
    while f"w{len(networks)}_0" in arrays:
        which = len(networks)
        layers: Layers = []
        while f"w{which}_{len(layers)}" in arrays:
            pair = tuple(arrays[f"{kind}{which}_{len(layers)}"].astype(np.float32) for kind in "wb")
            layers.append((pair[0], pair[1]))
        networks.append(layers)
    return networks


def train_networks(
    features: NDArray[np.float32],
    log_time: NDArray[np.float32],
    *,
    seed: int,
    settings: SolverTraining,
    progress: Progress,
) -> list[Layers]:
    """Train the networks of a device.

    Args:
        features: [n, features], standardised.
        log_time: [n, solvers], natural logarithms, NaN where a solver was not measured.
        seed: the same seed gives the same networks.
        settings: sizes and weights.
        progress: told of epochs done, of all networks' epochs.

    Raises:
        MissingExtraError: JAX or optax is not installed.
    """
    import_optax()
    batch = min(settings.batch, len(features))
    per_epoch = len(features) // batch
    trainer = _trainer(settings, settings.epochs * per_epoch)
    measured = np.isfinite(log_time)
    data = (features, np.where(measured, log_time, 0).astype(np.float32), measured.astype(np.float32))
    networks = []
    for which in range(settings.networks):
        random = np.random.default_rng((seed, which))

        def batches(random: np.random.Generator = random) -> Iterator[Any]:
            order = random.permutation(len(features))[: per_epoch * batch].reshape(per_epoch, batch)
            return (tuple(part[rows] for part in data) for rows in order)

        first = _first_layers(random, (features.shape[1], *[settings.width] * 3, log_time.shape[1]))
        part = part_of(progress, which, settings.networks)
        networks.append(train(trainer, first, batches, epochs=settings.epochs, progress=part).weights)
    return networks


@lru_cache(maxsize=4)
def _trainer(settings: SolverTraining, steps: int) -> Trainer:
    """Kept, so that all networks of a device are compiled once."""
    import optax

    schedule = optax.cosine_onecycle_schedule(steps + 1, settings.learning_rate, 0.1, 10.0, 100.0)
    return make_trainer(partial(_loss, settings), optax.adamw(schedule, weight_decay=settings.weight_decay))


def _first_layers(random: np.random.Generator, widths: tuple[int, ...]) -> Layers:
    """He's initialisation; the last layer starts near 0."""
    layers = []
    for place, (inputs, outputs) in enumerate(pairwise(widths)):
        scale = np.sqrt(2 / inputs) * (0.3 if place == len(widths) - 2 else 1.0)
        weight = random.normal(size=(inputs, outputs)) * scale
        layers.append((weight.astype(np.float32), np.zeros(outputs, np.float32)))
    return layers


def _loss(settings: SolverTraining, layers: Layers, batch: Any) -> Any:
    """Error of the times (Huber's, of logarithms), cross-entropy of the choice, and what the choice costs."""
    import jax
    import jax.numpy as jnp

    x, y, measured = batch
    out = apply_network(jnp, layers, x)
    off = jnp.abs(out - y) * measured
    error = jnp.where(off < 1, 0.5 * off * off, off - 0.5).sum(1) / measured.sum(1)
    # 5 % is a tie in the label; choices are drawn a little wider, so that the slope does not vanish.
    label = jax.nn.softmax(jnp.where(measured > 0, -y / 0.05, -1e9), axis=1)
    choice = jax.nn.log_softmax(jnp.where(measured > 0, -out / 0.15, -1e9), axis=1)
    entropy = -(label * jnp.where(measured > 0, choice, 0)).sum(1)
    least = jnp.where(measured > 0, y, 1e9).min(1, keepdims=True)
    regret = jnp.minimum(jnp.expm1(jnp.minimum((y - least) * measured, 10.0)), settings.most_regret)
    cost = (jnp.exp(choice) * measured * regret).sum(1)
    return (0.3 * error + settings.choice_weight * entropy + settings.regret_weight * cost).mean()
