"""What would have captured more of a run: advice that goes by the noted budget and by whether the job ended."""

from contextlib import suppress

from phasepoint.core.units import PS_PER_S, format_ratio
from phasepoint.phases.clock import RunClock
from phasepoint.phases.enough import newest_states
from phasepoint.store import Run

SHORT_PS = 120 * PS_PER_S
"""A job of less than two minutes may be captured without a limit: what that costs is over soon, and a budget of 1 %
of it, 1.2 s, is less than the windows that are wanted."""

USUAL_BUDGET = 0.01
_STEP_UP = 4
"""A larger budget is worth advising where it brings intervals half as wide: four times the windows."""


def noted_budget(run: Run) -> float | None:
    """The budget that the recorder noted; None for continuous capture, or where none was noted."""
    for shard in run.shards:
        with suppress(KeyError, ValueError):  # a run is untrusted input: what is no number is not known
            return float(shard.session.notes["budget"])
    return None


def advise_capture(run: Run, clock: RunClock) -> str:
    """How to capture more of such a job, without a full stop.

    Args:
        run: the run.
        clock: its steps and sessions.
    """
    budget = noted_budget(run)
    if budget == 0:
        return f"record with capture windows, which a budget of 0 forbids: record(…, budget={USUAL_BUDGET:g})"
    if "live" in newest_states(clock):
        return "leave the job running: windows come as time passes"
    larger = _STEP_UP * budget if budget else None
    if budget is None:
        return "record a longer job, with capture windows: record(…, budget=None) captures as much as it can"
    if larger is None or larger > 1 or clock.wall_ps < SHORT_PS:
        than = f"a larger budget than {format_ratio(budget)}"
        return f"record a longer job, or with {than}: record(…, budget=None) captures as much as it can"
    return f"record a longer job, or with a larger budget than {format_ratio(budget)}: record(…, budget={larger:g})"
