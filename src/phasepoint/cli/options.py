"""Arguments and options that several commands share, declared once.

Ratios on the command line: one way to write them, whatever the option.
"""

from pathlib import Path
from typing import Annotated

import typer

from phasepoint.core.errors import UsageError
from phasepoint.core.units import parse_ratio


def ratio_option(option: str, text: str, *, most: float | None = None, or_else: str = "") -> float:
    """The ratio that an option was given: `1%`, `1 %` and `0.01` are the same.

    Args:
        option: its name, for the message.
        text: what was given.
        most: the largest ratio that makes sense.
        or_else: what else the option takes, for the message.

    Raises:
        UsageError: it is none, or too large.
    """
    also = f", or {or_else}" if or_else else ""
    try:
        ratio = parse_ratio(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}{also}") from error
    if most is not None and ratio > most:
        raise UsageError(f"{option} {text}: expected a share of at most {most:.0%}, such as 1% or 0.01{also}")
    return ratio


RunPath = Annotated[str, typer.Argument(metavar="RUN", help="The run: a folder, or a URL such as gs://… or s3://…")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead (layout: docs/cli.md).")]
Method = Annotated[
    str,
    typer.Option("--method", metavar="NAME", help="How phases are found: recurrent, ols, kmeans or dbscan."),
]
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

DEFAULT_METHOD = "recurrent"
