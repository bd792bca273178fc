"""`phasepoint tune`: what tuning came to, and the next run with what it found."""

from typing import Annotated

import typer

from phasepoint.cli.console import result_console, write_document, write_notes
from phasepoint.cli.options import AsJson, Force
from phasepoint.core.errors import UsageError

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
