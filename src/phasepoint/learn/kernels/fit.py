"""Fitting a model of kernels: the analytic model, networks and trees on what it misses, then calibration."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.learn.hlo_graph.graphs import (
    FEATURISER_VERSION,
    KINDS,
    NODE_FEATURES,
    OPCODES,
    EncodedGraph,
    KernelGraph,
)
from phasepoint.learn.kernels.model import (
    KernelModel,
    above_floor,
    encode_graphs,
    fit_scales,
    interval_scale,
    kind_rows,
    on_floor,
    pool_graphs,
    scale_graphs,
)
from phasepoint.learn.models.analytic import analytic_arrays, fit_analytic, predict_analytic
from phasepoint.learn.models.model_file import Progress
from phasepoint.learn.models.network import NetworkShape
from phasepoint.learn.models.network_training import TrainingData, TrainingSettings, train_ensemble
from phasepoint.learn.models.trees import pack_trees

COVERAGE = 0.9
"""Chance with which an interval is meant to hold the true time."""
LEAST_OF_KIND = 30
"""Calibration kernels of a kind from which it has a quantile of its own: 3 lie above the 90 % point."""

LONG_PS = 5e6
"""5 µs: kernels from here on count in full; shorter ones in proportion, for a program's time is the sum."""

LEAST_WEIGHT = 0.1
"""Of the shortest kernels, a choice: they count little, and not nothing."""
PLACE_DIMENSIONS = 10
"""Axes of the space of distances, a choice."""
MOST_POINTS = 4000
"""Training kernels that are kept for distances, a choice: 160 kB of the model's file."""
_LOW_SHARE, _BELOW = 0.02, 0.99
"""Share of kernels that may lie below the floor, and how far below the next it lies; choices."""
REACH = 0.3
"""How far (log) beyond the training kernels' ratios to the analytic model an answer may go."""


@dataclass(frozen=True)
class FitSettings:
    """How a model of kernels is fitted.

    Attributes:
        members: networks in the ensemble; 0: trees alone.
        hidden: width of a network.
        layers: rounds of message passing.
        aggregation: of a network.
        reduction: of a network.
        static_features: whether networks read the kernel's features.
        residual: whether ratios to the analytic model are learned, or times themselves.
        tree_rounds: boosted trees; 0: networks alone.
        tree_leaves: of each at most.
        training: of the networks.
    """

    members: int = 4
    hidden: int = 64
    layers: int = 2
    aggregation: str = "sage"
    reduction: str = "lstm"
    static_features: bool = True
    residual: bool = True
    tree_rounds: int = 500
    tree_leaves: int = 15
    training: TrainingSettings = field(default_factory=TrainingSettings)


EXACT = FitSettings(tree_rounds=1000, tree_leaves=31)
"""Of times without noise, which more can be learned from. On the calibration programs of two splits of a TPU v5p's
compiler's times the mean error fell from 12.0 to 11.1 % and from 13.8 to 13.3 % (492 programs, November 2026)."""


@dataclass(frozen=True)
class _Kernels:
    """What is fitted to: n kernels with logs of their times in ps, and which of them for what."""

    graphs: Sequence[KernelGraph]
    encoded: Sequence[EncodedGraph]
    target: Floats
    weight: Floats
    train: Int64s
    calibrate: Int64s


def kernel_weights(time_ps: npt.ArrayLike, floor_ps: float = 0.0) -> Floats:
    """How much each kernel counts in training: by its time, above a floor by the share that is to be learned."""
    time = np.asarray(time_ps, np.float64)
    return np.clip(time / LONG_PS if not floor_ps else (time - floor_ps) / time, LEAST_WEIGHT, 1.0)


def _floor(time_ps: Floats) -> float:
    """What every kernel takes, but for the few that hardly anything can be said of: a little less than most."""
    return _BELOW * float(np.quantile(time_ps, _LOW_SHARE))


def fit_kernel_model(
    graphs: Sequence[KernelGraph],
    time_ps: npt.ArrayLike,
    rows: tuple[Int64s, Int64s],
    *,
    seed: int,
    exact: bool = False,
    settings: FitSettings | None = None,
    progress: Progress | None = None,
) -> KernelModel:
    """A model of kernels and their measured times.

    Args:
        graphs: n kernels.
        time_ps: measured, shape [n], above 0.
        rows: those to learn from, and those on which members are weighed and the interval is calibrated.
        seed: of weights, batches and trees.
        exact: whether times are without noise, as those of a TPU's compiler: what all kernels take is left out then.
        settings: None: the defaults, or `EXACT`.
        progress: told of epochs done and of all.

    Raises:
        ModelError: there are too few kernels.
        MissingExtraError: JAX or optax is not installed and networks are wanted.
    """
    chosen = settings or (EXACT if exact else FitSettings())
    time = np.asarray(time_ps, np.float64)
    placed = any(graph.placement is not None for graph in graphs)
    floor_ps = _floor(time[rows[0]]) if exact and placed else 0.0
    encoded = encode_graphs(graphs, placed=placed)
    data = _Kernels(graphs, encoded, above_floor(np.log(time), floor_ps), kernel_weights(time, floor_ps), *rows)
    analytic = fit_analytic([graphs[row] for row in data.train], time[data.train])
    offset = np.log(np.maximum(predict_analytic(analytic, graphs)[0], 1.0))
    pooled = np.column_stack([pool_graphs(graphs, data.encoded), offset])
    offset = above_floor(offset, floor_ps)
    columns = np.flatnonzero(pooled[data.train].std(axis=0) > 0)
    pooled = pooled[:, columns]
    middle = np.median(data.target[data.train])
    base = offset if chosen.residual else np.full(len(graphs), middle)
    gap = (data.target - base)[data.train]
    arrays: dict[str, npt.NDArray[Any]] = {
        **analytic_arrays(analytic),
        **fit_scales([data.encoded[row] for row in data.train]),
        **_place(pooled, data),
        "columns": columns.astype(np.int32),
        "middle": np.array([middle]),
        **({"floor_ps": np.array([floor_ps])} if floor_ps else {}),
        "reach": np.array([gap.min() - REACH, gap.max() + REACH]),
    }
    network = _network_settings(chosen, data.encoded[0].kernel.size)
    arrays |= _fit_networks(data, base, network, chosen, arrays=arrays, seed=seed, progress=progress)
    arrays |= _fit_trees(pooled, base, data, chosen, seed)
    card = {
        "featuriser": FEATURISER_VERSION,
        "network": network.to_json(),
        "members": chosen.members,
        "residual": chosen.residual,
        "placed": placed,
        "training": {"loss": chosen.training.loss, "epochs": chosen.training.epochs, "trees": chosen.tree_rounds},
    }
    return _calibrated(KernelModel(arrays, card), data)


def _network_settings(settings: FitSettings, kernel_features: int) -> NetworkShape:
    return NetworkShape(
        len(OPCODES),
        NODE_FEATURES,
        kernel_features,
        hidden=settings.hidden,
        layers=settings.layers,
        aggregation=settings.aggregation,
        reduction=settings.reduction,
        static_features=settings.static_features,
    )


def _fit_networks(
    data: _Kernels,
    base: Floats,
    network: NetworkShape,
    settings: FitSettings,
    *,
    arrays: dict[str, npt.NDArray[Any]],
    seed: int,
    progress: Progress | None,
) -> dict[str, npt.NDArray[Any]]:
    """Weights of the members, to 16 bits: that is what is stored, so that is what is calibrated."""
    if not settings.members:
        return {}
    inputs = scale_graphs(data.graphs, data.encoded, arrays)
    alone = np.arange(len(inputs))
    learned = TrainingData(inputs, data.target, base, data.weight, alone, data.train, data.calibrate)
    trained = train_ensemble(
        learned, network, settings.training, members=settings.members, seed=seed, progress=progress
    )
    return {
        f"network{member}/{name}": value.astype(np.float16).astype(np.float32)
        for member, one in enumerate(trained)
        for name, value in one.weights.items()
    }


def _fit_trees(
    pooled: npt.NDArray[Any], base: Floats, data: _Kernels, settings: FitSettings, seed: int
) -> dict[str, npt.NDArray[Any]]:
    if not settings.tree_rounds:
        return {}
    from sklearn.ensemble import HistGradientBoostingRegressor

    regressor = HistGradientBoostingRegressor(
        learning_rate=0.05,
        max_iter=settings.tree_rounds,
        max_leaf_nodes=settings.tree_leaves,
        min_samples_leaf=8,
        l2_regularization=1.0,
        max_features=0.3,
        early_stopping=False,
        random_state=seed,
    )
    train = data.train
    regressor.fit(pooled[train], (data.target - base)[train], sample_weight=data.weight[train])
    return {f"trees/{name}": array for name, array in pack_trees(regressor).items()}


def _place(pooled: npt.NDArray[Any], data: _Kernels) -> dict[str, npt.NDArray[Any]]:
    """The space in which distances are measured: the main axes of the training kernels' standardised features."""
    train = pooled[data.train].astype(np.float64)
    mean, spread = train.mean(axis=0), np.maximum(train.std(axis=0), 1e-6)
    standard = np.clip((train - mean) / spread, -8.0, 8.0)
    _, axes = np.linalg.eigh(np.cov(standard, rowvar=False))
    axes = axes[:, ::-1][:, :PLACE_DIMENSIONS]
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    kept = np.unique(np.linspace(0, len(train) - 1, min(MOST_POINTS, len(train))).astype(np.int64))
    kinds = kind_rows([data.graphs[row] for row in data.train])
    return {
        "place/mean": mean.astype(np.float32),
        "place/spread": spread.astype(np.float32),
        "place/axes": axes.astype(np.float32),
        "place/points": (standard[kept] @ axes).astype(np.float32),
        "place/kinds": kinds[kept].astype(np.int8),
        "place/unit": np.ones(1),
    }


def _calibrated(model: KernelModel, data: _Kernels) -> KernelModel:
    """With the shares of networks and trees, quantiles of the interval by kind, and the unit of distances."""
    graphs = [data.graphs[row] for row in data.calibrate]
    said, kinds = model.log_times(graphs), kind_rows(graphs)
    truth, weight = on_floor(data.target[data.calibrate], model.floor_ps), data.weight[data.calibrate]
    shares = np.linspace(0.0, 1.0, 11)
    errors = [
        np.average(np.abs(np.expm1(share * said.networks + (1 - share) * said.trees - truth)), weights=weight)
        for share in shares
    ]
    share = float(shares[int(np.argmin(errors))]) if graphs else 0.5
    model = model.with_arrays(blend=np.array([share]))
    unit = np.quantile(model.distance(said.place, kinds), 0.95) if graphs else 1.0
    score = np.abs(model.blended(said) - truth) / interval_scale(said.spread)
    every = _upper_quantile(score)
    quantile = np.full(len(KINDS), 1.5 * every)  # a kind that calibration has not seen
    for kind in range(len(KINDS)):
        of = score[kinds == kind]
        if len(of):
            quantile[kind] = _upper_quantile(of) if len(of) >= LEAST_OF_KIND else max(every, of.max())
    return replace(
        model.with_arrays(quantile=quantile, place__unit=np.array([max(float(unit), 1e-6)])),
        card={**model.card, "calibration": {"kernels": len(graphs), "coverage": COVERAGE, "networks_share": share}},
    )


def _upper_quantile(score: Floats) -> float:
    """The conformal quantile: of n scores the ⌈(n + 1) × 0.9⌉-th, the largest where that is beyond."""
    if not len(score):
        return 10.0
    place = min(int(np.ceil((len(score) + 1) * COVERAGE)), len(score)) - 1
    return float(np.sort(score)[place])
