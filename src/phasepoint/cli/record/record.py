"""`phasepoint record`: run a command and record the training in it."""

from typing import Annotated

import typer

from phasepoint.cli.options import AsJson


def record(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="The command to run and its arguments.")],
    out: Annotated[str, typer.Option("--out", metavar="RUN", help="Folder or URL of the run.")],
    budget: Annotated[
        str, typer.Option(metavar="RATIO", help="Share of the job's time that recording may cost, or none.")
    ] = "0.01",
    window_steps: Annotated[int, typer.Option(help="Steps in a capture window.", min=1)] = 5,
    force: Annotated[bool, typer.Option("--force", help="Remove the run that is there and begin anew.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No closing line on stderr.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a command and record the training in it: phasepoint record --out RUN -- python train.py

    Every process of the command that makes training steps with PyTorch or JAX writes a shard of the run. A run that
    is there already gets another attempt, as when a job is started again. The exit code is the command's own.
    """
    from phasepoint.cli.record.record_run import RecordWords, record_command

    words = RecordWords(out, tuple(command), budget, window_steps, force, quiet, as_json)
    raise typer.Exit(record_command(words))
