"""How long programs take on a device: the one function that others call, and what the command prints."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from phasepoint.learn.model_file import Model
from phasepoint.learn.predict_hlo import Program, program_of_module, read_hlo
from phasepoint.learn.predict_program import estimate_programs
from phasepoint.learn.predict_target import resolve_target
from phasepoint.learn.predict_types import KernelEstimate, Measured, ProgramEstimate
from phasepoint.sources.hlo_module import Module

__all__ = [
    "KernelEstimate",
    "Measured",
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
    model: Model | None = None,
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


def predict_function(function: Any, *args: Any, device: str, model: Model | None = None) -> ProgramEstimate:
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
    from phasepoint.learn.predict_compile import compile_function

    program = compile_function(function, args, getattr(function, "__name__", "function"))
    return predict_programs([program], device, model=model)[0]


def predict_programs(
    programs: Sequence[Program],
    device: str,
    *,
    model: Model | None = None,
    trip_count: int | None = None,
    progress: Progress | None = None,
) -> tuple[ProgramEstimate, ...]:
    """As `predict_kernel_times`, of programs that are read already; `progress(done, total)` counts kernels."""
    target = resolve_target(device)
    return estimate_programs(programs, target, model=model, trip_count=trip_count, progress=progress)


def _program(one: Module | bytes | str | Path) -> Program:
    if isinstance(one, Module):
        return program_of_module(one)
    if isinstance(one, bytes):
        return read_hlo(one)
    from phasepoint.learn.predict_inputs import read_file

    return read_file(Path(one))
