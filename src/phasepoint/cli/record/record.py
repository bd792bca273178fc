"""`phasepoint record` and `phasepoint demo`: train under the recorder."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from phasepoint.cli.console import result_console, write_document, write_text
from phasepoint.cli.opening import open_analysis
from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Force
from phasepoint.cli.ratios import ratio_option
from phasepoint.core.errors import NoDataError, OutputExistsError, UsageError


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


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Folder for the run and its report.")] = Path(
        "runs/demo"
    ),
    seconds: Annotated[float, typer.Option(help="About how long to train, at least 10.")] = 60.0,
    budget: Annotated[
        str, typer.Option(metavar="RATIO", help="Share of the job's time that recording may cost: 1% or 0.01.")
    ] = "1%",
    seed: Annotated[int, typer.Option(help="Seed of the network and of the recorder's sample.")] = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Train a small network for about a minute under the recorder, and explain its run.

    An evaluation, checkpoints, a stretch of slow input and a change of the batch size are planted in it; at the
    end the summary is held against them. Exit code 1 if it misses one.
    """
    from phasepoint.cli.answers.report import build_page
    from phasepoint.demo.planted import check_planted, read_truth, run_training
    from phasepoint.demo.schedule import LEAST_SECONDS
    from phasepoint.findings.judge import summarize_analysis
    from phasepoint.report import render_summary

    if seconds < LEAST_SECONDS:
        raise UsageError(f"--seconds {seconds:g}: the demo needs at least {LEAST_SECONDS} for all its events")
    share = ratio_option("--budget", budget, most=1)
    _make_room(out, force=force)
    sys.stderr.write(f"training for about {seconds:.0f} s under the recorder, into {out}\n")
    run_training(str(out), seconds=seconds, budget=share, seed=seed)
    analysis = open_analysis(str(out), DEFAULT_METHOD)
    summary, found = summarize_analysis(analysis)
    planted = check_planted(summary, read_truth(str(out)))
    page = out / "report.html"
    write_text(page, [build_page(analysis, summary, found)[0]], force=True)
    if as_json:
        write_document("demo", {"summary": summary, "planted": planted, "report": str(page)})
    else:
        render_summary(summary, result_console(), found)
        typer.echo("\nPlanted in the demo, and found in the summary:")
        for event in planted:
            mark = "found" if event.found else "MISSED"
            typer.echo(f"  {mark:6s}  {event.name:13s} {event.truth}\n          {event.found or ''}")
        typer.echo(f"\nwrote {page}\nnext: phasepoint replay plan {out} (which checkpoint leads to which phase)")
    missed = [event.name for event in planted if event.found is None]
    if missed:
        raise NoDataError(f"the summary does not name what was planted: {', '.join(missed)}")


def _make_room(out: Path, *, force: bool) -> None:
    """Remove an earlier demo and nothing else.

    Raises:
        OutputExistsError: there is an earlier demo and `force` is not given, or something that is no run.
    """
    from phasepoint.demo.planted import CHECKPOINTS_FOLDER, TRUTH_FILE
    from phasepoint.store.removal import remove_run

    if not out.exists():
        return
    if not (out / "run.json").exists() and any(out.iterdir()):
        raise OutputExistsError(f"{out}: exists and is no run; choose another folder with --out")
    if not force:
        raise OutputExistsError(f"{out}: exists already; give --force to replace it, or --out for another folder")
    remove_run(out, str(out), more=(CHECKPOINTS_FOLDER, TRUTH_FILE))
