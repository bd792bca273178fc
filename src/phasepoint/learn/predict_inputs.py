"""What the user points `phasepoint predict` at: a function in a Python file, an HLO file, a recorded run."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from phasepoint.core.errors import NoDataError, SourceError, UsageError
from phasepoint.learn.predict_hlo import Program, read_hlo

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
        from phasepoint.learn.predict_python import python_program

        return (python_program(Path(python["file"]), python["name"], args=args, args_from=args_from),)
    if what.endswith(".py"):
        raise UsageError(f"{what}: which function? Name it after a colon, as in {what}:step")
    if args is not None or args_from is not None:
        raise UsageError(f"--args and --args-from are for functions, as in train.py:step; {what!r} is none")
    if "://" in what or Path(what).is_dir():
        from phasepoint.learn.predict_run import run_programs
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
