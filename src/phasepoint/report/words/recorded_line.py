"""The line with which a recording ends. Imports nothing that reads or analyses a run: it ends every recorded job."""

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phasepoint.core.units import format_counted, format_ps, format_ratio
from phasepoint.report.words.names import printable

if TYPE_CHECKING:
    from phasepoint.summary.types import Recorded


@dataclass(frozen=True)
class Tally:
    """What a recording came to.

    Attributes:
        steps: steps, on all processes.
        windows: capture windows.
        processes: processes that wrote.
        machines: machines that they ran on.
        cost_share: what recording cost, as a ratio of the job's time; None where that is not known.
        budget: ratio the user allowed; None for continuous capture or where unknown.
    """

    steps: int
    windows: int
    processes: int
    machines: int
    cost_share: float | None
    budget: float | None


def tally_of(found: "Recorded") -> Tally:
    """The same of a run whose tables were counted."""
    cost = found.cost
    share = cost.share if cost.complete else None
    return Tally(found.steps, found.windows, found.processes, found.machines, share, cost.budget)


def recorded_line(tally: Tally, place: str, dur_ps: int) -> str:
    """`recorded: 120 steps, 7 windows, …`: one line, for people and for grep.

    Args:
        tally: what was recorded.
        place: path or URL of the run, as the user wrote it.
        dur_ps: how long the command ran.
    """
    spent = "cost not known" if tally.cost_share is None else f"cost {small_ratio(tally.cost_share)}"
    is_told = tally.budget is not None and tally.steps
    against = f" of the job's time (budget {small_ratio(tally.budget or 0)})" if is_told else ""
    parts = [
        f"recorded: {format_counted(tally.steps, 'step')}",
        format_counted(tally.windows, "window"),
        *([processes_text(tally.processes, tally.machines)] if tally.processes > 1 else []),
        f"{spent}{against}",
        f"in {format_ps(dur_ps)}, into {place}",
    ]
    return printable(f"{', '.join(parts)}; next: phasepoint summary {shlex.quote(place)}")


def processes_text(processes: int, machines: int) -> str:
    """`2 hosts`, or `2 processes on 1 host` where several ran on one machine."""
    if processes <= machines:
        return format_counted(processes, "host")
    return f"{format_counted(processes, 'process', 'processes')} on {format_counted(machines, 'host')}"


def small_ratio(ratio: float) -> str:
    """A ratio that is often far below one percent, with three figures: `0.0312 %`."""
    return f"{100 * ratio:.3g} %" if 0 < ratio < 0.01 else format_ratio(ratio)
