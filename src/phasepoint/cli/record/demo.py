"""`phasepoint demo`: train a real network under the recorder and hold the summary against what was planted."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Force

if TYPE_CHECKING:
    from phasepoint.demo.planted import Planted
    from phasepoint.findings.finding import Findings
    from phasepoint.summary.analysis import Analysis
    from phasepoint.summary.types import RunSummary

LEAST_SECONDS = 10


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
    from phasepoint.cli.console import result_console
    from phasepoint.cli.opening import open_analysis
    from phasepoint.cli.ratios import ratio_option
    from phasepoint.core.errors import NoDataError, UsageError
    from phasepoint.demo.launch import run_training
    from phasepoint.demo.planted import check_planted, read_truth
    from phasepoint.findings.judge import judge_analysis
    from phasepoint.report import render_summary, to_json
    from phasepoint.summary.summary import summarize

    if seconds < LEAST_SECONDS:
        raise UsageError(f"--seconds {seconds:g}: the demo needs at least {LEAST_SECONDS} for all its events")
    share = ratio_option("--budget", budget, most=1)
    _make_room(out, force=force)
    sys.stderr.write(f"training for about {seconds:.0f} s under the recorder, into {out}\n")
    run_training(str(out), seconds=seconds, budget=share, seed=seed)
    analysis = open_analysis(str(out), DEFAULT_METHOD)
    summary, found = summarize(analysis), judge_analysis(analysis)
    planted = check_planted(summary, read_truth(str(out)))
    page = _write_report(analysis, summary, found, out / "report.html")
    if as_json:
        typer.echo(to_json("demo", {"summary": summary, "planted": planted, "report": str(page)}))
    else:
        render_summary(summary, result_console(), found)
        _show_planted(planted)
        typer.echo(f"\nwrote {page}\nnext: phasepoint replay plan {out} (which checkpoint leads to which phase)")
    missed = [event.name for event in planted if event.found is None]
    if missed:
        raise NoDataError(f"the summary does not name what was planted: {', '.join(missed)}")


def _make_room(out: Path, *, force: bool) -> None:
    """Remove an earlier demo; a folder that holds anything else is never touched.

    Raises:
        OutputExistsError: there is an earlier demo and `force` is not given, or something that is no run.
    """
    from phasepoint.core.errors import OutputExistsError

    if not out.exists():
        return
    if not (out / "run.json").exists() and any(out.iterdir()):
        raise OutputExistsError(f"{out}: exists and is no run; choose another folder with --out")
    if not force:
        raise OutputExistsError(f"{out}: exists already; give --force to replace it, or --out for another folder")
    shutil.rmtree(out)


def _write_report(analysis: "Analysis", summary: "RunSummary", found: "Findings", path: Path) -> Path:
    from phasepoint.cli.answers.report import build_page
    from phasepoint.cli.console import write_text

    page, _ = build_page(analysis, summary, found)
    write_text(path, [page], force=True)
    return path


def _show_planted(planted: "Sequence[Planted]") -> None:
    typer.echo("\nPlanted in the demo, and found in the summary:")
    for event in planted:
        mark, words = ("found", event.found) if event.found else ("MISSED", "")
        typer.echo(f"  {mark:6s}  {event.name:13s} {event.truth}\n          {words}")
