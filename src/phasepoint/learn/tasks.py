"""The tasks, one row each: how a model is trained for it and how it is evaluated. Modules are imported when used."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from phasepoint.core.errors import UsageError
from phasepoint.learn.evaluation import Evaluation
from phasepoint.learn.model_file import Model, Progress, read_model

BUILTIN = "builtin"


@dataclass(frozen=True)
class Task:
    """What can be learned and checked.

    Attributes:
        name: what the user types.
        module: holds `train(folder, *, seed, progress) -> Model` and
            `evaluate(model, folder, *, seed, progress) -> Evaluation`; `model` is None where the user says `builtin`.
        data: what the folder holds, in words.
    """

    name: str
    module: str
    data: str


TASKS: tuple[Task, ...] = (
    Task("runtime", "phasepoint.learn.kernel_tasks", "a corpus made by `phasepoint learn collect`"),
    Task("rank", "phasepoint.learn.tpu_tiles", "op_tuning_data.pb of TpuGraphs (kernels with measured tiles)"),
    Task("gpu_ops", "phasepoint.learn.operators", "one parquet file per operator: device, latency_ms, dimensions"),
    Task("conv_solvers", "phasepoint.learn.solvers", "one parquet file per device: problem, solver, time_ms"),
    Task("tile_sweeps", "phasepoint.learn.tile_sweeps", "one parquet file KERNEL_DEVICE: tile parameters, time_ms"),
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


def train_task(task: Task, folder: str | Path, *, seed: int = 0, progress: Progress | None = None) -> Model:
    """Train a model for a task from a folder of its data.

    Raises:
        ModelError: the folder does not hold what the task needs.
        MissingExtraError: the task trains with JAX, and JAX is not there.
    """
    model: Model = import_module(task.module).train(folder, seed=seed, progress=progress or _silent)
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
