"""How long programs take on a device: what others call, and what the command prints."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from phasepoint.hlo.module import Module
from phasepoint.learn.models.model_file import StoredModel
from phasepoint.learn.predict.estimate import estimate_programs
from phasepoint.learn.predict.hlo import HloProgram, program_of_module, read_hlo
from phasepoint.learn.predict.programs import read_file
from phasepoint.learn.predict.types import KernelEstimate, MeasuredProgram, ProgramEstimate, resolve_target

__all__ = [
    "KernelEstimate",
    "MeasuredProgram",
    "ProgramEstimate",
    "predict_function",
    "predict_kernel_times",
    "predict_programs",
]

Progress = Callable[[int, int], None]


def predict_kernel_times(
    programs: Sequence[Module | bytes | str | Path],
    device: str,
    *,
    model: StoredModel | None = None,
    trip_count: int | None = None,
) -> tuple[ProgramEstimate, ...]:
    """How long optimised programs take on a device: each kernel and the whole, with intervals.

    Args:
        programs: modules, serialised protos, or paths of HLO files.
        device: `cpu`, or a product of `phasepoint devices`.
        model: a stored model; left out, those that came with the package.
        trip_count: iterations of loops whose number the compiler does not know.

    Returns:
        One estimate per program, in their order; its notes say what is outside the range of what was learned from.

    Raises:
        ModelError: the device or the model cannot be used.
        SourceError: a program cannot be read.
        NoDataError: a program is empty.
        MissingExtraError: HLO text, or a program that is not optimised, and no JAX.
    """
    return predict_programs([_program(one) for one in programs], device, model=model, trip_count=trip_count)


def predict_function(function: Any, *args: Any, device: str, model: StoredModel | None = None) -> ProgramEstimate:
    """How long a JAX function takes on a device.

    Args:
        function: jitted or plain, or what `lower()` or `compile()` gave.
        args: arrays or `jax.ShapeDtypeStruct`s; nothing is computed with them.
        device: as in `predict_kernel_times`.
        model: as there.

    Raises:
        MissingExtraError: there is no JAX.
        UsageError: arguments are missing.
        ModelError: the function raises while it is traced; the device or the model cannot be used.
    """
    from phasepoint.learn.predict.hlo import compile_function

    program = compile_function(function, args, getattr(function, "__name__", "function"))
    return predict_programs([program], device, model=model)[0]


def predict_programs(
    programs: Sequence[HloProgram],
    device: str,
    *,
    model: StoredModel | None = None,
    trip_count: int | None = None,
    progress: Progress | None = None,
) -> tuple[ProgramEstimate, ...]:
    """As `predict_kernel_times`, of programs that are read already; `progress(done, total)` counts kernels."""
    target = resolve_target(device)
    return estimate_programs(programs, target, model=model, trip_count=trip_count, progress=progress)


def _program(one: Module | bytes | str | Path) -> HloProgram:
    if isinstance(one, Module):
        return program_of_module(one)
    if isinstance(one, bytes):
        return read_hlo(one)

    return read_file(Path(one))
