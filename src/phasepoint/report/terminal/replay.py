"""A run's checkpoints on a terminal: where each stands, what is left of it, what is in it, where it leads.

Plans of replays on a terminal: one in full, or a line for each phase.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.units import format_bytes, format_count, format_counted, format_ps, format_ratio
from phasepoint.replay.plan.plan import CheckpointList, ListedCheckpoint, PhasePlan, ReplayPlan
from phasepoint.report.words.names import printable, shorten
from phasepoint.report.words.wording import contents, replay_command

_PLAN_NAME_CHARACTERS = 32
_PLAN_PATH_CHARACTERS = 56


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
        shorten(plan.phase, _PLAN_NAME_CHARACTERS),
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


MOST_ROWS = 60
"""Checkpoints shown; of more, the first and the last ones."""

_NAME_CHARACTERS = 24
_PATH_CHARACTERS = 100

NONE_NOTED = """No checkpoint was noted in this run, so no phase can be reached but from the job's start.

These are noticed without a call while a recording runs: Orbax, Flax, torch.save, torch.distributed.checkpoint,
safetensors, and what the trainers of Transformers, Accelerate, Lightning and Keras save.
Others are noted by the job:

    if step % 1000 == 0:
        save(state, path)              # however the job saves
        run.checkpoint(path)           # run: what phasepoint.record gives
"""


def render_checkpoints(listed: CheckpointList, console: Console, *, run: str) -> None:
    """Print the list.

    Args:
        listed: what is listed.
        console: where to.
        run: path of the run as the user wrote it.
    """
    if not listed.checkpoints:
        console.print(Text(NONE_NOTED), end="", soft_wrap=True)
        return
    console.print(Text(headline(listed), style="bold"))
    console.print()
    shown = _shown(listed.checkpoints)
    console.print(_grid(shown))
    if len(shown) < len(listed.checkpoints):
        left = len(listed.checkpoints) - len(shown)
        console.print(Text(f"… {left:,} more between them; --json lists all", style="dim"))
    console.print()
    for one in shown:
        console.print(_line(one), soft_wrap=True)
    for phase, reason in listed.unreached:
        console.print(Text(f"no checkpoint leads to {printable(phase)}: {printable(reason)}"), soft_wrap=True)
    for note in listed.notes:
        console.print(Text(f"note: {printable(note)}"), soft_wrap=True)
    if any(one.leads_to for one in listed.checkpoints):
        console.print(Text(f"\nin full: phasepoint replay plan {run} --phase NAME", style="dim"), soft_wrap=True)


def headline(listed: CheckpointList) -> str:
    """How many there are, and of which state."""
    states = [one.checkpoint.state for one in listed.checkpoints]
    counted = ", ".join(f"{states.count(state):,} {_STATES[state]}" for state in _STATES if state in states)
    noun = "checkpoint" if len(states) == 1 else "checkpoints"
    return f"{len(states):,} {noun}: {counted}"


_STATES = {
    "whole": "whole",
    "incomplete": "incomplete",
    "corrupt": "corrupt",
    "missing": "missing",
    "unknown": "not to be judged from here",
}


def _grid(shown: tuple[ListedCheckpoint, ...]) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    hosts = len({one.checkpoint.host for one in shown}) > 1
    attempts = len({one.checkpoint.attempt for one in shown}) > 1
    names = ["step", "at", "job waited", "size", "state", "phase", "leads to"]
    names = [*(["host"] if hosts else []), *(["attempt"] if attempts else []), *names]
    for name in names:
        left = name in ("state", "phase", "leads to")
        grid.add_column(name, justify="left" if left else "right", no_wrap=name != "leads to")
    for one in shown:
        it = one.checkpoint
        cells = [*([str(it.host)] if hosts else []), *([str(it.attempt)] if attempts else [])]
        cells += ["start" if it.step is None else f"{it.step:,}", format_ps(it.start_ps), _waited(one)]
        cells += ["–" if it.size_bytes is None else format_bytes(it.size_bytes), it.state]
        cells += [shorten(it.phase or "–", _NAME_CHARACTERS), ", ".join(map(printable, one.leads_to))]
        grid.add_row(*map(Text, cells))
    return grid


def _waited(one: ListedCheckpoint) -> str:
    it = one.checkpoint
    if it.framework == "user":
        return "–"  # noted by the job, which measures nothing
    return f"{format_ps(it.dur_ps)}{' (async)' if it.asynchronous else ''}"


def _line(one: ListedCheckpoint) -> Text:
    """Its path, and what is in it, or why it is not whole."""
    it = one.checkpoint
    step = "start" if it.step is None else f"{it.step:,}"
    told = "; ".join(text for text in (it.problem and printable(it.problem), contents(it)) if text)
    return Text.assemble(
        (f"{step}  ", "bold"),
        shorten(it.path, _PATH_CHARACTERS),
        (f"  {it.framework}", "dim"),
        f": {told}" * bool(told),
    )


def _shown(checkpoints: tuple[ListedCheckpoint, ...]) -> tuple[ListedCheckpoint, ...]:
    if len(checkpoints) <= MOST_ROWS:
        return checkpoints
    half = MOST_ROWS // 2
    return (*checkpoints[:half], *checkpoints[-half:])
