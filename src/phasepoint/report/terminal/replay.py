"""A run's checkpoints on a terminal: where each stands, what is left of it, what is in it, where it leads.

Plans of replays on a terminal: one in full, or a line for each phase.
"""

from collections.abc import Sequence
from functools import partial
from operator import itemgetter

from rich.console import Console
from rich.text import Text

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.replay.plan.plan import CheckpointList, ListedCheckpoint, PhasePlan, ReplayPlan
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.terminal import grid
from phasepoint.report.words.names import printable, shorten
from phasepoint.report.words.wording import contents, replay_command


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
    console.print(grid(_facts(plan)))
    console.print()
    console.print(grid(_costs(plan)))
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

    def start(plan: ReplayPlan) -> str:
        return "start" if plan.checkpoint is None else f"step {plan.first_step}"

    columns = (
        TableColumn("phase", lambda plan: plan.phase, width=32),
        TableColumn("id", lambda plan: str(plan.phase_id), is_figure=True),
        TableColumn("from", start),
        TableColumn("steps", lambda plan: plan.forward_steps, "count"),
        TableColumn("captures", lambda plan: _range(plan.target_first, plan.target_last)),
        TableColumn("cost", lambda plan: plan.cost_ps, "ps"),
        TableColumn("of the run", lambda plan: plan.ratio, "ratio"),
    )
    planned = [one.plan for one in plans if one.plan is not None]
    if planned:
        console.print(grid(Table(columns, planned)))
    for one in plans:
        if one.reason is not None:
            console.print(Text(f"no plan: {printable(one.reason)}"), soft_wrap=True)
    if planned:
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


def _facts(plan: ReplayPlan) -> Table:
    window = "no window" if plan.window is None else f"as window {plan.window} did"
    facts = (
        ("checkpoint", plan.checkpoint),
        ("runs", f"steps {_range(plan.first_step, plan.last_step)}"),
        ("captures", f"steps {_range(plan.target_first, plan.target_last)}, {window}"),
        ("compares", f"the time of {format_count(plan.compared_steps)} uncaptured steps of {plan.phase}"),
    )
    columns = (TableColumn("", lambda fact: Text(fact[0], "dim")), TableColumn("", lambda fact: fact[1], wraps=True))
    return Table(columns, facts)


def _costs(plan: ReplayPlan) -> Table:
    basis = dict(plan.basis)
    parts = ("startup", "compile", "restore", "skip", "forward", "outside")
    rows = [(Text(name, "dim"), getattr(plan, f"{name}_ps"), Text(printable(basis[name]), "dim")) for name in parts]
    rows.append((Text("cost", "bold"), plan.cost_ps, Text(f"{format_ratio(plan.ratio)} of the run")))
    columns = (
        TableColumn("", itemgetter(0)),
        TableColumn("", itemgetter(1), "ps"),
        TableColumn("", itemgetter(2), wraps=True),
    )
    return Table(columns, rows)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


MOST_ROWS = 60
"""Checkpoints shown; of more, the first and the last ones."""

_PATH_CHARACTERS = 100
"""Of a checkpoint's path: a choice, what a line of 120 holds beside step and framework."""

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
    half, shown = MOST_ROWS // 2, listed.checkpoints
    if len(shown) > MOST_ROWS:
        shown = (*shown[:half], *shown[-half:])
    console.print(grid(_checkpoints(shown)))
    if len(shown) < len(listed.checkpoints):
        left = len(listed.checkpoints) - len(shown)
        console.print(Text(f"… {left:,} more between them; --json lists all", style="dim"))
    console.print()
    for one in shown:
        console.print(_line(one), soft_wrap=True)
    for phase, reason in listed.unreached:
        console.print(Text(f"{printable(phase)} cannot be replayed: {printable(reason)}"), soft_wrap=True)
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


def _checkpoints(shown: tuple[ListedCheckpoint, ...]) -> Table:
    def waited(one: ListedCheckpoint) -> str:
        it = one.checkpoint
        if it.framework == "user":
            return "–"  # noted by the job, which measures nothing
        return f"{format_ps(it.dur_ps)}{' (async)' if it.asynchronous else ''}"

    def place(name: str, one: ListedCheckpoint) -> str:
        return str(getattr(one.checkpoint, name))

    several = [name for name in ("host", "attempt") if len({place(name, one) for one in shown}) > 1]
    columns = (
        *(TableColumn(name, partial(place, name), is_figure=True) for name in several),
        TableColumn("step", lambda one: "start" if one.checkpoint.step is None else one.checkpoint.step, "count"),
        TableColumn("at", lambda one: one.checkpoint.start_ps, "ps"),
        TableColumn("job waited", waited, "ps"),
        TableColumn("size", lambda one: one.checkpoint.size_bytes, "bytes"),
        TableColumn("state", lambda one: one.checkpoint.state),
        TableColumn("phase", lambda one: one.checkpoint.phase or "–", width=24),
        TableColumn("leads to", lambda one: ", ".join(one.leads_to), wraps=True),
    )
    return Table(columns, shown)


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
