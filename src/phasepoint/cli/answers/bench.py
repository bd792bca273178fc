"""`phasepoint bench`: what ten models measured on a device say of all the others."""

from pathlib import Path
from typing import Annotated

import typer

from phasepoint.cli.console import result_console, write_document
from phasepoint.cli.opening import progress_bar
from phasepoint.cli.options import AsJson

Times = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder with Parquet files: device, model, samples_per_s, …")
]


def bench(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Say what models take on devices that few of them were measured on, and how far off that is."""
    if as_json:
        write_document("bench", {"commands": ["validate"]})
        return
    typer.echo(context.get_help())


def validate(folder: Times, *, as_json: AsJson = False) -> None:
    """Take each device of a file for a new one: ten models are measured on it, the rest is predicted and compared.

    A file has the columns device, model and samples_per_s; params_m, gmacs, macts_m, image_size, precision and
    compiled help where it has them.
    """
    from phasepoint.bench.fingerprint.validation import validate_devices

    with progress_bar("validating") as advance:
        answers = validate_devices(folder, advance)
    if as_json:
        write_document("bench validate", {"devices": answers})
        return
    from phasepoint.report.terminal.bench import render_devices

    render_devices(answers, result_console())
