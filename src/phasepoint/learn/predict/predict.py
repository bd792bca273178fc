"""How long programs take on a device: the one function that others call, and what the command prints.

What the user points `phasepoint predict` at: a function in a Python file, an HLO file, a recorded run.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phasepoint.core.errors import NoDataError, SourceError, UsageError
from phasepoint.hlo.module import Module
from phasepoint.learn.models.model_file import Model
from phasepoint.learn.predict.hlo import Program, program_of_module, read_hlo
from phasepoint.learn.predict.program import estimate_programs
from phasepoint.learn.predict.target import resolve_target
from phasepoint.learn.predict.types import KernelEstimate, Measured, ProgramEstimate

if TYPE_CHECKING:
    from phasepoint.store import Run

_PYTHON = re.compile(r"(?P<file>.+\.py):(?P<name>[^:/\\]+)")


def read_what(
    what: str,
    *,
    args: str | None = None,
    args_from: str | None = None,
    opened: "Callable[[str], Run] | None" = None,
) -> tuple[Program, ...]:
    """The programs that are meant.

    Args:
        what: `train.py:step`; a file of HLO; a run's folder or URL.
        args: shapes of the arguments, for a function.
        args_from: where in the same file its arguments are, for a function.
        opened: opens a run; the command line's converts its captures first. None reads what is converted.

    Raises:
        UsageError: it is nothing of these, or the options do not go with it.
        SourceError: a file is no HLO.
        NotARunError: a folder is no run.
        NoDataError: a run holds no programs, a program no instructions.
        MissingExtraError: JAX is needed and not there.
        ModelError: the user's function raises.
    """
    python = _PYTHON.fullmatch(what)
    if python is not None:
        from phasepoint.learn.predict.python import python_program

        return (python_program(Path(python["file"]), python["name"], args=args, args_from=args_from),)
    if what.endswith(".py"):
        raise UsageError(f"{what}: which function? Name it after a colon, as in {what}:step")
    if args is not None or args_from is not None:
        raise UsageError(f"--args and --args-from are for functions, as in train.py:step; {what!r} is none")
    if "://" in what or Path(what).is_dir():
        from phasepoint.learn.predict.run import run_programs
        from phasepoint.store import open_run

        return run_programs((opened or open_run)(what))
    return (read_file(Path(what)),)


def read_file(path: Path) -> Program:
    """The program in a file of HLO.

    Raises:
        UsageError: there is no such file.
        SourceError: it is no HLO.
        NoDataError: the program is empty.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(
            f"{path}: no such file; expected HLO (.txt, .hlo, .pb, .pb.gz), a run's folder, or FILE.py:FUNCTION"
        ) from error
    except IsADirectoryError as error:
        raise SourceError(f"{path}: is a folder; expected a file of HLO") from error
    if not data:
        raise NoDataError(f"{path}: the file is empty, so there is no program in it")
    return read_hlo(data, path.name)


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
    from phasepoint.learn.predict.hlo import compile_function

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

    return read_file(Path(one))
