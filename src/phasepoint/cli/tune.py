"""`phasepoint tune`: what tuning came to, and the next run with what it found."""

from typing import Annotated

import typer

from phasepoint.cli.console import result_console, write_document, write_notes
from phasepoint.cli.opening import open_analysis, progress_bar
from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Force, FromStart, Method, RayAddress
from phasepoint.core.errors import ReplayError, UsageError

TunedRun = Annotated[
    str | None, typer.Argument(metavar="RUN", help="The run whose loaders were tuned: a folder, or a URL.")
]
ApplyRun = Annotated[
    str | None,
    typer.Option("--apply", metavar="RUN", help="Start COMMAND with what this run has found: --apply RUN -- COMMAND…"),
]
NewRun = Annotated[str | None, typer.Option("--out", metavar="NEW", help="With --apply: record COMMAND into this run.")]
JobWords = Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND…", help="With --apply: the job's command.")]


def tune(
    path: TunedRun = None,
    command: JobWords = None,
    *,
    apply: ApplyRun = None,
    out: NewRun = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Say what tuning expected, tried and won in a run, and what limits it now.

    The next run with what was found: phasepoint tune --apply RUN -- python train.py. On another machine than the one it
    was found on, a setting is tried again first. The exit code is then the command's own.
    """
    if apply is not None:
        words = [*([path] if path is not None else []), *(command or [])]
        raise typer.Exit(_apply(apply, words, out=out, force=force))
    if path is None:
        raise UsageError("no run was given: phasepoint tune RUN, or phasepoint tune --apply RUN -- COMMAND…")
    if command:
        raise UsageError(f"{command[0]!r} is one word too many; a command goes with --apply RUN")
    if out is not None or force:
        raise UsageError("--out and --force go with --apply RUN -- COMMAND…")
    from phasepoint.store import open_run
    from phasepoint.tune.outcome import read_outcomes

    run = open_run(path)
    outcomes = read_outcomes(run)
    write_notes(run.problems)
    if as_json:
        from phasepoint.report.documents import tune_document

        write_document("tune", tune_document(outcomes))
        return
    from phasepoint.report.terminal.tune import render_tuning

    render_tuning(outcomes, result_console(), run=path)


def _apply(path: str, words: list[str], *, out: str | None, force: bool) -> int:
    """Run a command with what a run has found, and give its exit code."""
    import os
    import subprocess

    from phasepoint.core.errors import RecordError
    from phasepoint.store import open_run
    from phasepoint.tune.apply import VARIABLE, this_machine
    from phasepoint.tune.knobs import describe_setting
    from phasepoint.tune.outcome import applied_from, read_outcomes

    if not words:
        raise UsageError(f"no command was given: phasepoint tune --apply {path} -- python train.py …")
    outcomes = read_outcomes(open_run(path))
    applied = applied_from(outcomes)
    chosen = "; ".join(f"{one.loader}: {describe_setting(one.chosen)}" for one in outcomes)
    here = this_machine()
    write_notes(
        [f"{chosen}" + ("" if applied.machine == here else f" (found on {applied.machine}: tried again first)")]
    )
    os.environ[VARIABLE] = applied.to_environ()
    if out is not None:
        from phasepoint.cli.record.record_run import RecordWords, record_command

        return record_command(RecordWords(out, tuple(words), force=force))
    try:
        return subprocess.run(words, check=False).returncode
    except OSError as error:
        raise RecordError(f"{words[0]}: cannot be started: {error.strerror or error}") from error


Space = Annotated[str, typer.Argument(metavar="SPACE", help="A TOML file of knobs (docs/tune.md).")]
SearchWords = Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND…", help="The job's command.")]
SearchedRun = Annotated[
    str, typer.Option("--run", metavar="RUN", help="A recording of the job, whose phase is run again for each setting.")
]
SearchedPhase = Annotated[
    str | None, typer.Option("--phase", metavar="NAME", help="The phase; left out: the one with the most time.")
]
SearchOut = Annotated[
    str | None, typer.Option("--out", metavar="FOLDER", help="Where results go; left out: RUN-search. It may be there.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of what is tried next.")]
StepsOfTrial = Annotated[int, typer.Option("--steps", metavar="N", min=10, help="Steps of a trial that are timed.")]


def search(
    space: Space,
    command: SearchWords = None,
    *,
    run: SearchedRun,
    phase: SearchedPhase = None,
    out: SearchOut = None,
    steps: StepsOfTrial = 40,
    from_start: FromStart = False,
    seed: Seed = 0,
    ray: RayAddress = None,
    method: Method = DEFAULT_METHOD,
    as_json: AsJson = False,
) -> None:
    """Try settings of a job by running one phase of it again: phasepoint tune search SPACE --run RUN -- python train.py

    Each is a replay (docs/replay.md) of a few dozen steps. What is named at the end was itself run, and was faster than
    the job as it is beyond doubt, in runs by turns. With --ray each machine of a cluster runs one at a time; run, space
    and FOLDER must be in a file system that all of them see.
    """
    from phasepoint.cli.replay import recorded_command
    from phasepoint.cli.search_replays import ReplayTask, measure_settings
    from phasepoint.core.workers import machines
    from phasepoint.tune.offline.search import search as search_space
    from phasepoint.tune.offline.space import read_space

    found = read_space(space)
    analysis = open_analysis(run, method)
    words = list(command) if command else recorded_command(analysis)
    if phase is None:
        phase = str(max(analysis.result.phases, key=lambda one: one.total_ps).id)
    folder = out or f"{run.rstrip('/')}-search"
    task = ReplayTask(run, method, phase, found, tuple(words), folder, steps, from_start)
    with machines(ray) as count, progress_bar("running settings") as advance:
        outcome = search_space(
            found,
            measure_settings(task, ray),
            folder,
            machines=count,
            seed=seed,
            tell=lambda _said, done, count: advance(done, count),
        )
    if as_json:
        from phasepoint.report.documents import search_document

        write_document("tune search", search_document(outcome))
    else:
        from phasepoint.report.terminal.tune import render_search

        render_search(outcome, result_console())
    if not outcome.could_run:
        raise typer.Exit(ReplayError.exit_code)
