"""Arguments and options that several commands share, declared once; what is read in the same way wherever it stands."""

import re
from pathlib import Path
from typing import Annotated

import typer

from phasepoint.core.errors import UsageError
from phasepoint.phases.detection import table

RunPath = Annotated[str, typer.Argument(metavar="RUN", help="The run: a folder, or a URL such as gs://… or s3://…")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead (layout: docs/cli.md).")]
*_OTHERS, _LAST = table.METHODS
DEFAULT_METHOD = table.DEFAULT_METHOD
Method = Annotated[
    str,
    typer.Option("--method", metavar="NAME", help=f"How phases are found: {', '.join(_OTHERS)} or {_LAST}."),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output where it exists already.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="PATH", help="Where to write.")]
Workers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=1, help="Processes on this machine; left out: as many as pay."),
]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="A Ray cluster instead: HOST:PORT of its head, or auto."),
]
Steps = Annotated[
    int | None, typer.Option("--steps", metavar="N", min=0, help="Steps to run without capture, to compare step times.")
]
FromStart = Annotated[bool, typer.Option("--from-start", help="Start the job from its beginning, restoring nothing.")]
Args = Annotated[
    str | None, typer.Option("--args", metavar="SHAPES", help="A function's arguments: 'f32[32,784] f32[784,10]'.")
]
ArgsFrom = Annotated[
    str | None,
    typer.Option("--args-from", metavar="NAME", help="Where the file holds the function's arguments, or makes them."),
]

_TIME = re.compile(r"([0-9.]+)\s*(s|m|min|h|d)")
_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(option: str, text: str) -> float:
    """A time with its unit, as `42.2min`, in seconds.

    Raises:
        UsageError: it is none.
    """
    match = _TIME.fullmatch(text.strip())
    try:
        return float(match[1]) * _UNITS_S[match[2]] if match is not None else float("")
    except ValueError as error:
        raise UsageError(
            f"{option} {text!r} is no time; expected a number with s, min, h or d, as in 42.2min"
        ) from error
