"""What became of a replay, on a terminal."""

from rich.console import Console
from rich.text import Text

from phasepoint.core.units import format_count, format_ps
from phasepoint.replay.runner import ReplayOutcome
from phasepoint.report.names import printable
from phasepoint.report.replay_fidelity_terminal import render_fidelity


def render_outcome(outcome: ReplayOutcome, console: Console) -> None:
    """Print what a replay did that was done.

    Args:
        outcome: of the replay.
        console: where to.
    """
    record = outcome.record
    steps = record.last_step - record.first_step + 1
    start = "the start of the job" if record.checkpoint is None else printable(record.checkpoint)
    text = (
        f"{printable(record.phase)}: {format_count(steps)} {'step' if steps == 1 else 'steps'} from {start} in "
        f"{format_ps(outcome.dur_ps)}"
    )
    console.print(Text(text, style="bold"), soft_wrap=True)
    captured = f"captured steps {record.target_first}–{record.target_last} of {record.first_step}–{record.last_step}"
    console.print(Text(f"{captured} into {printable(outcome.run)}"), soft_wrap=True)
    if outcome.fidelity is not None:
        console.print()
        render_fidelity(outcome.fidelity, console)
