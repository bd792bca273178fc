"""Which tile of a TPU kernel is the fastest: TpuGraphs' measured tiles, a model of their cost, what its choices lose.

The measure is the paper's tile-size error, 100 × Σ (chosen − best) / Σ best over the kernels of a program ("A Learned
Performance Model for Tensor Processing Units", MLSys 2021, section 5), and beside it the mean over kernels of
(chosen − best) / best, which TpuGraphs' own evaluation prints.

Source of the files (kernels with measured tiles, programs with measured layouts): google-research-datasets/tpu_graphs,
`proto/tuning.proto`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError, SourceError
from phasepoint.core.units import PS_PER_NS, PS_PER_S
from phasepoint.hlo.module import Module, parse_module_proto
from phasepoint.hlo.schema import load_schema
from phasepoint.learn.choosing.tile_cost import COEFFICIENT_NAMES, TileTimes, fit_tile_cost, tile_time_s
from phasepoint.learn.hlo_graph.graphs import KernelGraph, graph_of_kernel
from phasepoint.learn.hlo_graph.kernels import kernels_of_module
from phasepoint.learn.hlo_graph.tiles import TILE_FEATURE_NAMES, TileSize, tile_features
from phasepoint.learn.models.model_file import Progress, StoredModel, read_model
from phasepoint.learn.tasks import Evaluation, EvaluationRow, choice_regret, kendall_tau, share_best


@dataclass(frozen=True)
class TunedRun:
    """One measured configuration.

    Attributes:
        tile: the tile; None where the run is of a whole program.
        time_ps: computing time; None where it failed or was not measured.
        is_default: whether the compiler would have taken it.
    """

    tile: TileSize | None
    time_ps: int | None
    is_default: bool


@dataclass(frozen=True)
class TunedModule:
    """A module with its measured configurations.

    Attributes:
        module: a kernel alone.
        runs: its configurations, in the file's order; at least one.
    """

    module: Module
    runs: tuple[TunedRun, ...]


def read_tuned_kernels(path: str | Path) -> tuple[TunedModule, ...]:
    """Kernels and their tiles from a file that holds a `TuningData` message (`op_tuning_data.pb`).

    Raises:
        SourceError: the file is missing, cut off, or holds a module that cannot be read or has no runs.
    """
    data = _parse(path)
    if not data.modules:
        raise SourceError(f"{path} holds no tuned module; a TuningData message of TpuGraphs is expected")
    return tuple(_module(one, path, place) for place, one in enumerate(data.modules))


def _parse(path: str | Path) -> Any:
    from google.protobuf.message import DecodeError

    proto = load_schema("tpu_graphs")["TuningData"]()
    try:
        proto.ParseFromString(Path(path).read_bytes())
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise SourceError(f"{path} is cut off or no TuningData message of TpuGraphs: {error}") from error
    return proto


def _module(proto: Any, path: str | Path, place: int) -> TunedModule:
    if not proto.module:
        raise SourceError(f"{path}, module {place}: there is no HLO in it")
    try:
        module = parse_module_proto(proto.module)
    except SourceError as error:
        raise SourceError(f"{path}, module {place}: {error}") from error
    if not proto.runs:
        raise SourceError(f"{path}, module {place} ({module.name}): it has no measured configurations")
    return TunedModule(module, tuple(_run(one) for one in proto.runs))


def _run(proto: Any) -> TunedRun:
    time_ns = proto.profile.compute_time_ns
    measured = time_ns > 0 and not proto.error
    return TunedRun(
        _tile(proto.op_config.tile_size_config) if proto.HasField("op_config") else None,
        time_ns * PS_PER_NS if measured else None,
        proto.is_default,
    )


def _tile(proto: Any) -> TileSize:
    return TileSize(
        tuple(proto.kernel_bounds),
        tuple(proto.output_bounds),
        tuple(proto.input_bounds),
        tuple(proto.iteration_bounds),
    )


KIND, TASK, BUILTIN = "tpu-tiles", "rank", "builtin:tpu-tiles"
FILE = "op_tuning_data.pb"


@dataclass(frozen=True, eq=False)
class TileKernel:
    """A kernel with its measured tiles.

    Attributes:
        name: of the kernel.
        graph: its features.
        config_features: of each tile, float32 [t, TILE_FEATURES], raw (`TILE_FEATURE_NAMES`).
        time_ps: measured, int64 [t].
        is_default: which tile the compiler would take, bool [t].
        notes: what is not known: runs that failed, tiles that the file does not tell apart.
    """

    name: str
    graph: KernelGraph
    config_features: npt.NDArray[np.float32]
    time_ps: npt.NDArray[np.int64]
    is_default: npt.NDArray[np.bool_]
    notes: tuple[str, ...] = ()

    @property
    def times(self) -> TileTimes:
        """The kernel for a fit."""
        return TileTimes(self.config_features, self.time_ps / PS_PER_S)


@dataclass(frozen=True)
class Choices:
    """One choice of a tile for each of some kernels.

    Attributes:
        chosen_ps: what the chosen tiles take, shape [k].
        best_ps: what the best take, shape [k].
    """

    chosen_ps: Floats
    best_ps: Floats

    @property
    def tile_size_error(self) -> float:
        """Σ (chosen − best) / Σ best, ratio."""
        return float((self.chosen_ps - self.best_ps).sum() / self.best_ps.sum())


def read_tile_kernels(path: str | Path) -> tuple[TileKernel, ...]:
    """Kernels with their tiles.

    Args:
        path: `op_tuning_data.pb`, or a folder that holds it.

    Raises:
        SourceError: the file is missing, damaged, or has no measured tiles.
        ModelError: a module in it does not start exactly one kernel.
    """
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    return tuple(_tile_kernel(one, file) for one in read_tuned_kernels(file))


def _tile_kernel(tuned: TunedModule, file: Path) -> TileKernel:
    found = kernels_of_module(tuned.module).kernels
    if len(found) != 1:
        raise ModelError(
            f"{file}: module {tuned.module.name} starts {len(found)} kernels; one with its tiles is expected"
        )
    graph = graph_of_kernel(found[0])
    measured = [(run.tile, run.time_ps, run.is_default) for run in tuned.runs if run.tile and run.time_ps]
    if not measured:
        raise ModelError(f"{file}: no tile of {tuned.module.name} has a measured time")
    nodes, flop = found[0].nodes, graph.feature("flop")
    rows = [tile_features(nodes, tile, flop=flop, is_default=default) for tile, _, default in measured]
    features = np.stack(rows)
    notes = []
    if len(measured) < len(tuned.runs):
        notes.append(f"{tuned.module.name}: {len(tuned.runs) - len(measured)} of {len(tuned.runs)} runs have no time")
    if not features[:, TILE_FEATURE_NAMES.index("bounds_known")].any():
        notes.append(f"{tuned.module.name}: the file does not say what its {len(measured)} tiles are")
    return TileKernel(
        tuned.module.name,
        graph,
        features,
        np.array([time_ps for _, time_ps, _ in measured], np.int64),
        np.array([default for _, _, default in measured], np.bool_),
        tuple(notes),
    )


def rank_tiles(kernel: TileKernel, coefficients: Floats) -> npt.NDArray[np.int64]:
    """Tiles of a kernel, the one that is expected to be the fastest first.

    Tiles that cannot be told apart stand in the order of the file, the compiler's own choice before them; so do tiles
    of which nothing is known, behind all others.
    """
    times = tile_time_s(kernel.config_features, coefficients)
    scores = np.round(np.log(np.where(np.isnan(times), np.inf, times)), 9)
    return np.lexsort((np.arange(len(scores)), ~kernel.is_default, scores))


def choices_of(kernels: Sequence[TileKernel], ranked: Sequence[npt.NDArray[np.int64]], *, first: int = 1) -> Choices:
    """What rankings cost if the first few of each are measured and the best of those is taken."""
    chosen = [kernel.time_ps[order[:first]].min() for kernel, order in zip(kernels, ranked, strict=True)]
    return Choices(np.array(chosen, np.float64), np.array([kernel.time_ps.min() for kernel in kernels], np.float64))


def default_choices(kernels: Sequence[TileKernel]) -> Choices:
    """The compiler's own choices; of a kernel without one, its first tile."""
    return choices_of(kernels, [np.lexsort((np.arange(len(one.time_ps)), ~one.is_default)) for one in kernels])


def leave_one_out(kernels: Sequence[TileKernel], progress: Progress | None = None) -> list[npt.NDArray[np.int64]]:
    """The ranking of each kernel's tiles by a model that saw all other kernels, and none that computes the same."""
    ranked = []
    for place, one in enumerate(kernels):
        others = [other.times for other in kernels if other.graph.fingerprint != one.graph.fingerprint]
        ranked.append(rank_tiles(one, fit_tile_cost(others)))
        if progress is not None:
            progress(place + 1, len(kernels))
    return ranked


def train(folder: str | Path, *, seed: int, progress: Progress) -> StoredModel:
    """Fit the cost of tiles to all kernels of a folder.

    Args:
        folder: that holds `op_tuning_data.pb`, or the file.
        seed: kept in the card; nothing is drawn at random.
        progress: told of kernels left out in turn, for the error that the card states.

    Raises:
        SourceError: the data cannot be read.
        ModelError: too few kernels.
    """
    kernels = read_tile_kernels(folder)
    coefficients = fit_tile_cost([one.times for one in kernels])
    held = choices_of(kernels, leave_one_out(kernels, progress))
    default = default_choices(kernels)
    card = {
        "corpus": f"TpuGraphs tiles: {len(kernels)} kernels, {sum(len(one.time_ps) for one in kernels)} measured tiles",
        "date": datetime.now(UTC).date().isoformat(),
        "device": "TPU v3",
        "seed": seed,
        "coefficients": dict(zip(COEFFICIENT_NAMES, coefficients.tolist(), strict=True)),
        "kernels": [one.graph.fingerprint for one in kernels],
        "errors": {
            "split": "leave one kernel out",
            "n": len(kernels),
            "tile_size_error": held.tile_size_error,
            "mean_regret": choice_regret(held.chosen_ps, held.best_ps),
            "default_tile_size_error": default.tile_size_error,
            "default_mean_regret": choice_regret(default.chosen_ps, default.best_ps),
        },
        "notes": [note for one in kernels for note in one.notes],
    }
    return StoredModel("tpu-tiles", KIND, {"coefficients": coefficients}, card)


def evaluate(model: StoredModel | None, folder: str | Path, *, seed: int, progress: Progress) -> Evaluation:
    """Choose a tile for every kernel of a folder, and hold the choices against the best.

    A kernel that the model was fitted to is ranked by a model of the folder's other kernels instead.

    Args:
        model: None takes the shipped one.
        folder: that holds `op_tuning_data.pb`, or the file.
        seed: not used; nothing is drawn.
        progress: told of kernels done.

    Raises:
        SourceError: the data cannot be read.
        ModelError: the model is of another kind or damaged.
    """
    del seed
    used = read_model(BUILTIN, kind=KIND) if model is None else model
    coefficients = _coefficients(used)
    kernels = read_tile_kernels(folder)
    ranked, notes = _ranked(kernels, coefficients, frozenset(map(str, used.card.get("kernels") or ())), progress)
    rows = [_row(kernel, order) for kernel, order in zip(kernels, ranked, strict=True)]
    for first in (1, 5):
        label = "all" if first == 1 else f"all, best of the first {first}"
        rows += _summary(label, choices_of(kernels, ranked, first=first))
    rows += _summary("default", default_choices(kernels))
    told = [place for place, one in enumerate(kernels) if not any("does not say" in note for note in one.notes)]
    if told and len(told) < len(kernels):
        known = [kernels[place] for place in told]
        rows += _summary("all with known tiles", choices_of(known, [ranked[place] for place in told]))
        rows += _summary("default with known tiles", default_choices(known))
    notes += [note for one in kernels for note in one.notes]
    name = "builtin" if model is None else model.name
    return Evaluation(name, TASK, tuple(rows), tuple(notes))


def _ranked(
    kernels: Sequence[TileKernel], coefficients: Floats, seen: frozenset[str], progress: Progress
) -> tuple[list[npt.NDArray[np.int64]], list[str]]:
    ranked, held, kept = [], 0, 0
    for place, one in enumerate(kernels):
        used = coefficients
        if one.graph.fingerprint in seen:
            others = [other.times for other in kernels if other.graph.fingerprint != one.graph.fingerprint]
            try:
                used = fit_tile_cost(others)
                held += 1
            except ModelError:  # too few others: said below
                kept += 1
        ranked.append(rank_tiles(one, used))
        progress(place + 1, len(kernels))
    notes = []
    if held:
        notes.append(f"{held} kernels that the model was fitted to were each ranked by a fit to the others")
    if kept:
        notes.append(f"{kept} kernels were ranked by a model that was fitted to them: too few others are in the folder")
    return ranked, notes


def _row(kernel: TileKernel, order: npt.NDArray[np.int64]) -> EvaluationRow:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    choice = choices_of([kernel], [order])
    return EvaluationRow(
        kernel.name,
        len(order),
        tau=kendall_tau(place, kernel.time_ps),
        regret=choice_regret(choice.chosen_ps, choice.best_ps),
        top1=share_best(choice.chosen_ps, choice.best_ps),
    )


def _summary(label: str, choices: Choices) -> list[EvaluationRow]:
    n, top1 = len(choices.best_ps), share_best(choices.chosen_ps, choices.best_ps)
    mean = choice_regret(choices.chosen_ps, choices.best_ps)
    return [
        EvaluationRow(f"{label}: mean over kernels", n, regret=mean, top1=top1),
        EvaluationRow(f"{label}: tile-size error", n, regret=choices.tile_size_error, top1=top1),
    ]


def _coefficients(model: StoredModel) -> Floats:
    if model.kind != KIND:
        raise ModelError(
            f"{model.name} is a model of kind {model.kind!r}, not {KIND!r}; give a model of the task {TASK}"
        )
    coefficients = np.asarray(model.arrays.get("coefficients", ()), np.float64)
    if coefficients.shape != (len(COEFFICIENT_NAMES),) or not (coefficients > 0).all():
        raise ModelError(f"{model.name} has no usable coefficients; train the model anew")
    return coefficients
