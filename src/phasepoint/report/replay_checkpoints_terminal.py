"""A run's checkpoints on a terminal: where each stands, what is left of it, what is in it, where it leads."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.units import format_bytes, format_ps
from phasepoint.replay.checkpoint_list import CheckpointList, ListedCheckpoint
from phasepoint.report.checkpoint_words import contents
from phasepoint.report.names import printable, shorten

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
