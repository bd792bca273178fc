"""`phasepoint replay run`."""

from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.console import busy, result_console, write_document, write_notes
from phasepoint.cli.opening import open_analysis, open_converted
from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Force, FromStart, Method, RunPath, Steps
from phasepoint.core.errors import PhasepointError, ReplayError, UsageError

if TYPE_CHECKING:
    from phasepoint.replay.runner import ReplayOutcome
    from phasepoint.summary.analysis import Analysis

Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND…", help="The job's command; left out: the one that the run was recorded with."),
]
PhaseName = Annotated[str, typer.Option("--phase", metavar="NAME", help="The phase, by name or id.")]
Out = Annotated[
    str | None, typer.Option("--out", metavar="REPLAY", help="Folder to write; left out: RUN-replay-PHASE.")
]
Limit = Annotated[
    float | None,
    typer.Option(
        "--limit", metavar="SECONDS", min=0.1, help="Most that the command may take; left out: 10 × the plan."
    ),
]


def run(
    path: RunPath,
    command: Command = None,
    *,
    phase: PhaseName,
    out: Out = None,
    steps: Steps = None,
    from_start: FromStart = False,
    limit: Limit = None,
    method: Method = DEFAULT_METHOD,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Start the job at a checkpoint, capture a phase and stop: phasepoint replay run RUN --phase P -- python train.py

    The program is the job's own; docs/replay.md says what it must do. The exit code is the command's own if that
    failed, and 17 where the program did not do what was asked.
    """
    analysis = open_analysis(path, method)
    with busy("planning"):
        from phasepoint.replay.plan.plan import plan_replay
        from phasepoint.replay.plan.planner import COMPARED_STEPS
        from phasepoint.replay.runner import ReplayLimits, run_replay

        plan = plan_replay(analysis, phase, from_start=from_start, steps=COMPARED_STEPS if steps is None else steps)
    words = list(command) if command else _recorded_command(analysis)
    write_notes(plan.notes)
    place = path.rstrip("/").rpartition("/")[2] if "://" in path else path.rstrip("/")
    out = out or f"{place}-replay-{_file_name(plan.phase)}"
    outcome = run_replay(plan, words, out, force=force, limits=ReplayLimits(limit))
    _say(_compared(analysis, outcome), as_json=as_json)
    _end(outcome)


def _end(outcome: "ReplayOutcome") -> None:
    """End with the command's own exit code if it failed by itself, and with our own if the replay did."""
    import sys

    own = 0 if outcome.was_ended else outcome.exit_code
    if outcome.status == "done":
        raise typer.Exit(own)
    said = f"{outcome.run}: the replay {_WORDS[outcome.status]}: {outcome.record.reason}"
    if own in (0, ReplayError.exit_code):
        raise ReplayError(said)
    sys.stderr.write(f"error: {said}\n")
    raise typer.Exit(own)


def _recorded_command(analysis: "Analysis") -> list[str]:
    """The command that the run was recorded with.

    Raises:
        UsageError: it is not known.
    """
    import shlex

    command = list(analysis.run.manifest.command)
    if not command:
        raise UsageError(
            f"{analysis.run.path}: its command was not recorded; write the job's after two dashes: -- python train.py"
        )
    write_notes([f"the command is that of the original: {shlex.join(command)}"])
    return command


def _file_name(phase: str) -> str:
    """A phase's name as part of a file's."""
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in phase).strip(".") or "phase"


def _compared(analysis: "Analysis", outcome: "ReplayOutcome") -> "ReplayOutcome":
    """The outcome with the comparison, where the replay was done; why there is none is a note."""
    from dataclasses import replace

    if outcome.status != "done":
        return outcome
    try:
        run = open_converted(outcome.run)
        with busy("comparing"):
            from phasepoint.replay.fidelity.fidelity import compare_replay

            return replace(outcome, fidelity=compare_replay(analysis, run, outcome.record))
    except PhasepointError as error:  # the replay is there; only nobody can say how faithful it is
        return replace(outcome, notes=(*outcome.notes, f"not compared with the original: {error}"))


def _say(outcome: "ReplayOutcome", *, as_json: bool) -> None:
    write_notes(outcome.notes)
    if as_json:
        write_document("replay run", outcome)
    elif outcome.status == "done":
        from phasepoint.report.terminal.replay_results import render_outcome

        render_outcome(outcome, result_console())


_WORDS = {"ignored": "was ignored", "failed": "failed", "ended-early": "ended early"}
