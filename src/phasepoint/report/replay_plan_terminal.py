"""Plans of replays on a terminal: one in full, or a line for each phase."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.replay.plan import PhasePlan, ReplayPlan
from phasepoint.report.names import printable, shorten
from phasepoint.report.replay_commands import replay_command

_NAME_CHARACTERS = 32
_PATH_CHARACTERS = 56


def render_plan(plan: ReplayPlan, console: Console, *, run: str, command: Sequence[str]) -> None:
    """Print one plan, the command to copy last.

    Args:
        plan: what is planned.
        console: where to.
        run: path of the run as the user wrote it.
        command: words with which the job was started.
    """
    console.print(Text(plan_headline(plan), style="bold"))
    console.print()
    console.print(_facts(plan))
    console.print()
    console.print(_costs(plan))
    console.print()
    console.print("It will tell")
    for line in plan.tells:
        console.print(Text(f"  {printable(line)}"), soft_wrap=True)
    for note in plan.notes:
        console.print(Text(f"note: {printable(note)}"), soft_wrap=True)
    console.print()
    text = replay_command(run, plan.phase, command, from_start=plan.checkpoint is None)
    console.print(Text(text, style="bold"), soft_wrap=True)


def render_plans(plans: Sequence[PhasePlan], console: Console, *, run: str) -> None:
    """Print a line for each phase.

    Args:
        plans: of the run's phases.
        console: where to.
        run: path of the run as the user wrote it.
    """
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("phase", "id", "from", "steps", "captures", "cost", "of the run"):
        grid.add_column(name, justify="left" if name in ("phase", "from", "captures") else "right", no_wrap=True)
    for one in plans:
        if one.plan is not None:
            grid.add_row(*map(Text, _row(one.plan)))
    if grid.row_count:
        console.print(grid)
    for one in plans:
        if one.reason is not None:
            console.print(Text(f"no plan: {printable(one.reason)}"), soft_wrap=True)
    if grid.row_count:
        console.print(Text(f"\nin full: phasepoint replay plan {run} --phase NAME", style="dim"), soft_wrap=True)


def plan_headline(plan: ReplayPlan) -> str:
    """The plan in one sentence."""
    steps = format_counted(plan.forward_steps, "step")
    return (
        f"{printable(plan.phase)}: {steps} from {start_of(plan)}, {format_ps(plan.cost_ps)} instead of "
        f"{format_ps(plan.full_ps)} ({format_ratio(plan.ratio)})"
    )


def start_of(plan: ReplayPlan) -> str:
    """Where the replay starts, in a few words."""
    if plan.checkpoint is None:
        return "the start of the job"
    if plan.checkpoint_step is None:
        return "the checkpoint before the first step"
    return f"the checkpoint after step {plan.checkpoint_step}"


def _row(plan: ReplayPlan) -> tuple[str, ...]:
    start = "start" if plan.checkpoint is None else f"step {plan.first_step}"
    return (
        shorten(plan.phase, _NAME_CHARACTERS),
        str(plan.phase_id),
        start,
        format_count(plan.forward_steps),
        _range(plan.target_first, plan.target_last),
        format_ps(plan.cost_ps),
        format_ratio(plan.ratio),
    )


def _facts(plan: ReplayPlan) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    checkpoint = "–" if plan.checkpoint is None else printable(plan.checkpoint)
    window = "no window" if plan.window is None else f"as window {plan.window} did"
    for name, text in (
        ("checkpoint", checkpoint),
        ("runs", f"steps {_range(plan.first_step, plan.last_step)}"),
        ("captures", f"steps {_range(plan.target_first, plan.target_last)}, {window}"),
        ("compares", f"the time of {format_count(plan.compared_steps)} uncaptured steps of {printable(plan.phase)}"),
    ):
        grid.add_row(Text(name, style="dim"), Text(text))
    return grid


def _costs(plan: ReplayPlan) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    basis = dict(plan.basis)
    for name in ("startup", "compile", "restore", "skip", "forward", "outside"):
        grid.add_row(Text(name, style="dim"), format_ps(getattr(plan, f"{name}_ps")), Text(basis[name], style="dim"))
    grid.add_row(Text("cost", style="bold"), format_ps(plan.cost_ps), Text(f"{format_ratio(plan.ratio)} of the run"))
    return grid


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"
