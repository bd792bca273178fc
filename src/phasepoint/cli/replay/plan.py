"""`phasepoint replay`, the list of checkpoints, and `replay plan`."""

from typing import Annotated

import typer

from phasepoint.cli.console import busy, result_console, write_document, write_notes
from phasepoint.cli.opening import open_analysis
from phasepoint.cli.options import DEFAULT_METHOD, AsJson, FromStart, Method, RunPath, Steps


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


PhaseName = Annotated[
    str | None, typer.Option("--phase", metavar="NAME", help="The phase, by name or id; left out: a line for each.")
]


def plan(
    path: RunPath,
    *,
    phase: PhaseName = None,
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
