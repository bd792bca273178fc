"""`phasepoint replay` and its subcommands: checkpoints, replays and their faithfulness, what stands for a whole run."""

from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.console import busy, result_console, write_document, write_notes
from phasepoint.cli.opening import open_analysis, open_converted, refuse_shortfalls
from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Force, FromStart, Method, RunPath, Steps
from phasepoint.cli.ratios import ratio_option
from phasepoint.core.errors import NoDataError, PhasepointError, ReplayError, UsageError

if TYPE_CHECKING:
    from phasepoint.replay.fidelity.fidelity import Fidelity
    from phasepoint.replay.runner import ReplayOutcome
    from phasepoint.summary.analysis import Analysis


def replay(path: RunPath, *, method: Method = DEFAULT_METHOD, as_json: AsJson = False) -> None:
    """List the checkpoints of a run: what is left of each, what is in it, and which phases it leads to.

    Next: `phasepoint replay plan RUN --phase NAME`, then `phasepoint replay run RUN --phase NAME -- COMMAND`.
    """
    analysis = open_analysis(path, method)
    write_notes(analysis.run.problems)
    with busy("looking at checkpoints"):
        from phasepoint.replay.plan.plan import list_checkpoints

        listed = list_checkpoints(analysis)
    if as_json:
        from phasepoint.report.documents import checkpoints_document

        write_document("replay", checkpoints_document(listed))
        return
    from phasepoint.report.terminal.replay import render_checkpoints

    render_checkpoints(listed, result_console(), run=path)


AnyPhase = Annotated[
    str | None, typer.Option("--phase", metavar="NAME", help="The phase, by name or id; left out: a line for each.")
]


def plan(
    path: RunPath,
    *,
    phase: AnyPhase = None,
    steps: Steps = None,
    from_start: FromStart = False,
    method: Method = DEFAULT_METHOD,
    as_json: AsJson = False,
) -> None:
    """Say which checkpoint and which steps reach a phase again, what that costs and what it will tell."""
    analysis = open_analysis(path, method)
    write_notes(analysis.run.problems)
    with busy("looking at checkpoints"):
        from phasepoint.replay.checkpoints import index_checkpoints
        from phasepoint.replay.plan.plan import PhasePlan, plan_phases, plan_replay
        from phasepoint.replay.plan.planner import COMPARED_STEPS

        index = index_checkpoints(analysis)
        wanted = COMPARED_STEPS if steps is None else steps
        plans: tuple[PhasePlan, ...] = ()
        if phase is None:
            plans = plan_phases(analysis, index=index, from_start=from_start, steps=wanted)
        else:
            chosen = plan_replay(analysis, phase, index=index, from_start=from_start, steps=wanted)
    command = analysis.run.manifest.command
    if as_json:
        content = {"run": analysis.run.path, "plans": plans} if phase is None else chosen
        write_document("replay plan", content)
        return
    from phasepoint.report.terminal.replay import render_plan, render_plans

    if phase is None:
        render_plans(plans, result_console(), run=path)
    else:
        render_plan(chosen, result_console(), run=path, command=command)


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


Unsafe = Annotated[
    bool, typer.Option("--unsafe", help="Run the program also where nothing can keep it from the original's files.")
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
    unsafe: Unsafe = False,
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
    words = list(command) if command else recorded_command(analysis)
    write_notes(plan.notes)
    place = path.rstrip("/").rpartition("/")[2] if "://" in path else path.rstrip("/")
    out = out or f"{place}-replay-{_file_name(plan.phase)}"
    outcome = run_replay(plan, words, out, force=force, limits=ReplayLimits(limit), unsafe=unsafe)
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


def recorded_command(analysis: "Analysis") -> list[str]:
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


_CANNOT_JUDGE = ("no-steps", "not-written")
"""What makes a comparison worthless; to be short and to be ended are a replay's nature, and its figures tell."""

ReplayPath = Annotated[str, typer.Argument(metavar="REPLAY", help="What `phasepoint replay run` wrote.")]
Strict = Annotated[bool, typer.Option("--strict", help="End with exit code 17 if the replay is not faithful.")]


def check(
    path: RunPath,
    replay: ReplayPath,
    *,
    method: Method = DEFAULT_METHOD,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Hold a replay against the run that it replays: ops, step times, programs, loss, devices.

    Says "faithful", or what is other: data, shapes, program, device, versions, a slower machine.
    """
    found = _compare(path, replay, method, strict=strict)
    write_notes(found.notes)
    if as_json:
        write_document("replay check", found)
    else:
        from phasepoint.report.terminal.replay_results import render_fidelity

        render_fidelity(found, result_console())
    if strict and not found.faithful:
        what = ", ".join(one.code for one in found.differences) or "nothing could be compared"
        raise ReplayError(f"{replay}: {found.verdict}: {what}; expected a faithful replay (--strict)")


def _compare(path: str, replay: str, method: str, *, strict: bool) -> "Fidelity":
    original = open_analysis(path, method)
    run = open_converted(replay)
    with busy("comparing"):
        from phasepoint.replay.fidelity.fidelity import compare_replay
        from phasepoint.replay.folder import read_replay

        record = read_replay(run.path)
        if record is None:
            raise NoDataError(
                f"{run.path}: is no replay: replay.json is missing; expected what `phasepoint replay run` wrote. "
                "Any two runs are compared by `phasepoint diff`"
            )
        if strict:
            from phasepoint.summary.enough import shortfall_of

            short = [(path, original.shortfall), (replay, shortfall_of(run))]
            refuse_shortfalls("--strict", [one for one in short if one[1] is not None and one[1].code in _CANNOT_JUDGE])
        return compare_replay(original, run, record)


Change = Annotated[
    list[str] | None,
    typer.Option("--change", metavar="REPLAY", help="A replay of one phase with the change; may be repeated."),
]
Baseline = Annotated[
    list[str] | None,
    typer.Option("--baseline", metavar="REPLAY", help="A replay without it, made at the same time; may be repeated."),
]
Like = Annotated[
    str | None, typer.Option("--like", metavar="PHASE,…", help="Phases taken to change as the replayed one does.")
]
Batch = Annotated[
    str | None, typer.Option("--batch", metavar="OLD:NEW", help="Batch sizes, where the change is one: 32:64.")
]
Devices = Annotated[int | None, typer.Option("--devices", metavar="N", help="Devices that are paid for.")]
Price = Annotated[float | None, typer.Option("--price-per-hour", metavar="X", help="Of one device: 3.90.")]


def estimate(
    run: RunPath,
    *,
    change: Change = None,
    baseline: Baseline = None,
    like: Like = None,
    batch: Batch = None,
    devices: Devices = None,
    price_per_hour: Price = None,
    method: Method = DEFAULT_METHOD,
    as_json: AsJson = False,
) -> None:
    """Say what the whole run would take and cost if a phase went as in its replay.

    The replay was made with other flags, another batch, or on another device; phases that were not replayed are kept.
    Without --change: the run's own time and cost.
    """
    if baseline and not change:
        raise UsageError("--baseline needs --change: it stands for the original beside a replay with a change")
    steps_ratio = 1.0 if batch is None else _steps_ratio(batch)
    phases = [] if like is None else [name.strip() for name in like.split(",") if name.strip()]
    analysis = open_analysis(run, method)
    replays = [[open_converted(path) for path in paths or []] for paths in (change, baseline)]
    with busy("estimating"):
        from phasepoint.replay.change.estimate import estimate_change

        found = estimate_change(
            analysis,
            replays[0],
            baselines=replays[1],
            like=phases,
            steps_ratio=steps_ratio,
            devices=devices,
            price_per_hour=price_per_hour,
        )
    write_notes([*analysis.run.problems, *found.notes])
    write_notes(note for one in found.exchanges for note in one.notes)
    if as_json:
        write_document("replay estimate", found)
    else:
        from phasepoint.report.terminal.replay_results import render_estimate

        render_estimate(found, result_console())


def _steps_ratio(text: str) -> float:
    """`32:64` as 0.5."""
    try:
        old, new = (int(part) for part in text.split(":"))
    except ValueError:
        old = new = 0
    if old < 1 or new < 1:
        raise UsageError(f"--batch {text}: expected two sizes, old:new, such as 32:64")
    return old / new


Budget = Annotated[str, typer.Option(metavar="SHARE", help="Steps that may be used: 5% or 0.05 of the run's.")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Of the choice: another seed, other windows.")]
Top = Annotated[int, typer.Option(metavar="N", min=1, help="Windows shown.")]


def compact(
    path: RunPath,
    *,
    budget: Budget = "5%",
    seed: Seed = 0,
    method: Method = DEFAULT_METHOD,
    top: Top = 20,
    as_json: AsJson = False,
) -> None:
    """Choose the windows that stand for a run, and say what they alone tell of the whole: phasepoint replay compact RUN

    Time and categories with 95 % intervals, beside what was recorded.
    """
    from phasepoint.replay.compact.compact import compact_run

    share = _share(budget)
    analysis = open_analysis(path, method)
    with busy("choosing windows"):
        found = compact_run(analysis, budget=share, seed=seed)
    write_notes((*analysis.run.problems, *found.notes))
    if as_json:
        from phasepoint.report.documents import compact_document

        write_document("replay compact", compact_document(found))
        return
    from phasepoint.report.terminal.replay_results import render_compact

    render_compact(found, result_console(), top=top)


def _share(text: str) -> float:
    """`5%` or `0.05` as 0.05."""
    share = ratio_option("--budget", text, most=1)
    if not share:
        raise UsageError(f"--budget {text}: expected a share of the run's steps above 0, such as 5% or 0.05")
    return share
