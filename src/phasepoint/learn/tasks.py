"""The tasks, one row each: how a model is trained for it and how it is evaluated. Modules are imported when used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from phasepoint.core.errors import UsageError


@dataclass(frozen=True)
class Task:
    """What can be learned and checked.

    Attributes:
        name: what the user types.
        module: holds `train(folder, *, seed, progress) -> Model` and
            `evaluate(model, folder, *, seed, progress) -> Evaluation`; `model` is None where the user says `builtin`.
        data: what the folder holds, in words.
        trains: whether it has `train`.
    """

    name: str
    module: str
    data: str
    trains: bool = True


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


def functions_of(task: Task) -> Mapping[str, Callable[..., Any]]:
    """`train` and `evaluate` of a task's module."""
    module = import_module(task.module)
    return {name: getattr(module, name) for name in ("train", "evaluate") if hasattr(module, name)}
