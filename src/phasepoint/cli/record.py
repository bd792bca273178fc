"""`phasepoint record`: run a command and record the training in it."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.options import AsJson

if TYPE_CHECKING:
    from phasepoint.recorder.launch import Launched

NO_LIMIT = "none"


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
    from phasepoint.core.errors import StoreError
    from phasepoint.recorder.autosteps import AutoOptions
    from phasepoint.recorder.launch import launch

    share = _parse_budget(budget)
    options = AutoOptions(_prepare(out, force=force), share, window_steps)
    launched = launch(command, options)
    try:
        _say(out, options.path, command, launched, as_json=as_json, quiet=quiet)
    except StoreError as error:  # the command has done its work: its exit code counts
        sys.stderr.write(f"note: {error}\n")
    raise typer.Exit(launched.exit_code)


def _parse_budget(text: str) -> float | None:
    """A ratio from 0 to 1, or None for no limit.

    Raises:
        UsageError: it is neither.
    """
    from phasepoint.cli.ratios import ratio_option

    return None if text.lower() == NO_LIMIT else ratio_option("--budget", text, most=1, or_else=NO_LIMIT)


def _prepare(out: str, *, force: bool) -> str:
    """Make sure that the run can be written before anything is started, and make a local path absolute.

    Raises:
        OutputExistsError: something that is no run is there.
        RecordError: the folder cannot be written.
    """
    from phasepoint.core.errors import OutputExistsError, RecordError

    if "://" in out:
        return out
    path = Path(out).absolute()
    if path.is_file() or (path.is_dir() and any(path.iterdir()) and not (path / "run.json").is_file()):
        raise OutputExistsError(f"{out}: exists and is no run; choose another place with --out")
    try:
        if force and path.is_dir():
            shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{error.filename or out}: {error.strerror}; choose another place with --out") from error
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise RecordError(f"{out}: no permission to write; choose another place with --out")
    return str(path)


def _say(out: str, path: str, command: list[str], launched: "Launched", *, as_json: bool, quiet: bool) -> None:
    """What was recorded: one line on stderr, a document on stdout with `--json`, and what is missing, on stderr."""
    from phasepoint.cli.console import write_notes
    from phasepoint.phases.recorded import count_recorded
    from phasepoint.store import create_run, open_run

    create_run(path, command=command)  # where no process made a step, there is none yet
    found = count_recorded(open_run(path))
    if as_json:
        from phasepoint.report.documents import to_json

        facts = {"steps": found.steps, "windows": found.windows, "hosts": found.processes}
        cost = {"cost_ps": found.cost.total_ps, "cost_ratio": found.cost.share, "not_enough": found.not_enough}
        ending = {"exit_code": launched.exit_code, "dur_ps": launched.dur_ps}
        typer.echo(to_json("record", {"run": out, **facts, **cost, **ending}))
    if not quiet:
        from phasepoint.report.wording import recorded_line

        sys.stderr.write(f"{recorded_line(found, out, launched.dur_ps)}\n")
        short = found.not_enough
        write_notes([f"{out}: {short.text}. {short.remedy}"] if short is not None else [])
