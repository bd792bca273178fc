"""The tasks, one row each: how a model is trained for it and how it is evaluated. Modules are imported when used.

What an evaluation says, and the four measures it uses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import UsageError
from phasepoint.learn.models.model_file import Progress, StoredModel, read_model


@dataclass(frozen=True)
class EvaluationRow:
    """How well a model did on one group.

    Attributes:
        group: what was put to it: an operator class and device, a kernel, a split.
        n: measurements or problems compared.
        mape: mean absolute relative error of the predicted times, ratio; None where no time is predicted.
        tau: Kendall's tau-b between predicted and measured times; None where nothing is ranked.
        regret: how much slower the choice is than the best, mean ratio; None where nothing is chosen.
        top1: share of problems where the best was chosen; None where nothing is chosen.
    """

    group: str
    n: int
    mape: float | None = None
    tau: float | None = None
    regret: float | None = None
    top1: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of one model on one folder.

    Attributes:
        model: the model's name or path.
        task: what was asked: runtime, rank, gpu_ops, conv_solvers, tile_sweeps.
        rows: one per group.
        notes: what the reader must know: files left out, devices without a model, noise floor.
    """

    model: str
    task: str
    rows: tuple[EvaluationRow, ...]
    notes: tuple[str, ...] = ()


def mean_absolute_relative_error(predicted: Any, measured: Any) -> float | None:
    """Mean of |predicted − measured| / measured, None of nothing.

    Args:
        predicted: shape [n], any unit.
        measured: shape [n], the same unit, above 0.

    Raises:
        ValueError: a measured value is not above 0.
    """
    guess, truth = _pair(predicted, measured)
    if not len(truth):
        return None
    if (truth <= 0).any():
        raise ValueError("measured times must be above 0")
    return float(np.mean(np.abs(guess - truth) / truth))


def kendall_tau(predicted: Any, measured: Any) -> float | None:
    """Kendall's tau-b, which counts ties on either side out; None below two values or where one side is constant.

    Source: Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945).
    """
    from scipy.stats import kendalltau  # comes with scikit-learn

    guess, truth = _pair(predicted, measured)
    if len(truth) < 2 or np.ptp(guess) == 0 or np.ptp(truth) == 0:
        return None
    return float(kendalltau(guess, truth).statistic)


def choice_regret(chosen: Any, best: Any) -> float | None:
    """Mean of chosen / best − 1 over problems: 0 where always the best was taken; None of nothing."""
    taken, least = _pair(chosen, best)
    return float(np.mean(taken / least - 1.0)) if len(least) else None


def share_best(chosen: Any, best: Any) -> float | None:
    """Share of problems whose choice is as fast as the best, None of nothing."""
    taken, least = _pair(chosen, best)
    return float(np.mean(taken <= least)) if len(least) else None


def error_rows(groups: Sequence[str], predicted: Any, measured: Any) -> tuple[EvaluationRow, ...]:
    """One row per group, in order of first appearance: n, error and tau.

    Args:
        groups: shape [n].
        predicted: shape [n].
        measured: shape [n], above 0.
    """
    guess, truth = _pair(predicted, measured)
    names = np.asarray(groups, dtype=object)
    rows = []
    for group in dict.fromkeys(groups):
        of = names == group
        rows.append(
            EvaluationRow(
                group,
                int(of.sum()),
                mape=mean_absolute_relative_error(guess[of], truth[of]),
                tau=kendall_tau(guess[of], truth[of]),
            )
        )
    return tuple(rows)


def _pair(a: Any, b: Any) -> tuple[Floats, Floats]:
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if left.shape != right.shape or left.ndim != 1:
        raise ValueError(f"two lists of one length are compared, not shapes {left.shape} and {right.shape}")
    return left, right


BUILTIN = "builtin"


@dataclass(frozen=True)
class Task:
    """What can be learned and checked.

    Attributes:
        name: what the user types.
        module: holds `train(folder, *, seed, progress) -> StoredModel` and
            `evaluate(model, folder, *, seed, progress) -> Evaluation`; `model` is None where the user says `builtin`.
        data: what the folder holds, in words.
    """

    name: str
    module: str
    data: str


TASKS: tuple[Task, ...] = (
    Task("runtime", "phasepoint.learn.kernels.task", "a corpus made by `phasepoint learn collect`"),
    Task("rank", "phasepoint.learn.choosing.tpu_tiles", "op_tuning_data.pb of TpuGraphs (kernels with measured tiles)"),
    Task("gpu_ops", "phasepoint.learn.operators.task", "one parquet file per operator: device, latency_ms, dimensions"),
    Task("conv_solvers", "phasepoint.learn.choosing.solvers", "one parquet file per device: problem, solver, time_ms"),
    Task(
        "tile_sweeps",
        "phasepoint.learn.choosing.tile_sweeps",
        "one parquet file KERNEL_DEVICE: tile parameters, time_ms",
    ),
)


def find_task(name: str) -> Task:
    """The task of a name.

    Raises:
        UsageError: there is none.
    """
    for task in TASKS:
        if task.name == name:
            return task
    raise UsageError(f"there is no task {name!r}; there are {', '.join(task.name for task in TASKS)}")


def train_task(task: Task, folder: str | Path, *, seed: int = 0, progress: Progress | None = None) -> StoredModel:
    """Train a model for a task from a folder of its data.

    Raises:
        ModelError: the folder does not hold what the task needs.
        MissingExtraError: the task trains with JAX, and JAX is not there.
    """
    model: StoredModel = import_module(task.module).train(folder, seed=seed, progress=progress or _silent)
    return model


def evaluate_task(
    task: Task, model: str, folder: str | Path, *, seed: int = 0, progress: Progress | None = None
) -> Evaluation:
    """Hold a model against measurements.

    Args:
        task: what is asked.
        model: folder of a model, `builtin:NAME`, or `builtin`: those that came with the package, chosen by the task.
        folder: the measurements.
        seed: of what is drawn at random.
        progress: told how far the work is.

    Raises:
        ModelError: the model or the folder cannot be used; the message says which and why.
    """
    stored = None if model == BUILTIN else read_model(model)
    found: Evaluation = import_module(task.module).evaluate(stored, folder, seed=seed, progress=progress or _silent)
    return found


def _silent(_done: int, _total: int) -> None:
    """Progress that nobody looks at."""
