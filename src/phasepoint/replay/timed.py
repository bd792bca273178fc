"""`time_replay`: one replay of a phase, for how long its steps take and what they log: what a search of settings needs.

Its own file: nothing is compared with the original, which a changed program need not resemble.
"""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from phasepoint.core.errors import PhasepointError
from phasepoint.core.units import PS_PER_NS, PS_PER_S
from phasepoint.recorder.process.launch import ENDING
from phasepoint.replay.change.clean_steps import read_made_replay
from phasepoint.replay.plan.plan import plan_replay
from phasepoint.replay.runner import ReplayLimits, run_replay
from phasepoint.store import open_run
from phasepoint.summary.analysis import Analysis

LEAST_CLEAN_STEPS = 5
"""A choice: the median of fewer says little."""

GRACE_S = 5.0
"""A choice: the times are written by then, and what a program does after its last step tells nothing. Some never end by
themselves: minGPT's trainer takes its loader from the start where it ends."""


@dataclass(frozen=True)
class TimedReplay:
    """What a replay's steps took.

    Attributes:
        step_ns: median of the steps that neither compile nor save nor stand beside a capture; None where it failed.
        steps: how many these are.
        dur_s: of the whole command.
        problem: why there is no time, in words.
        logged: values that the job logs, by name and step.
    """

    step_ns: float | None
    steps: int = 0
    dur_s: float = 0.0
    problem: str = ""
    logged: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def time_replay(
    analysis: Analysis,
    phase: str,
    command: Sequence[str],
    out: str,
    *,
    environ: Mapping[str, str],
    steps: int,
    from_start: bool = False,
    limit_s: float | None = None,
    hopeless_ns: int | None = None,
) -> TimedReplay:
    """Replay a phase with a command, into a folder that is replaced. A signal that ends it ends the caller, too.

    Args:
        analysis: of the original.
        phase: name or id.
        command: the program, perhaps with other arguments.
        out: folder of the replay's run.
        environ: environment of the command.
        steps: steps without capture that are timed.
        from_start: restore nothing.
        limit_s: how long it may take.
        hopeless_ns: where its first steps take longer, the others are not run.

    Raises:
        UsageError, NoDataError, ReplayError: no replay of this phase can be planned.
    """
    plan = plan_replay(analysis, phase, from_start=from_start, steps=steps, times_only=True)
    limits = ReplayLimits(limit_s, GRACE_S)
    outcome = run_replay(plan, command, out, force=True, limits=limits, environ=environ, hopeless_ns=hopeless_ns)
    for number in outcome.signals:
        if signal.Signals(number).name in ENDING:
            signal.raise_signal(number)  # meant for us as well: it is no fault of the setting
    dur_s = outcome.dur_ps / PS_PER_S
    if outcome.status in {"failed", "ignored"}:
        reason = outcome.record.reason or f"exit code {outcome.exit_code}"
        return TimedReplay(None, dur_s=dur_s, problem=f"the replay {outcome.status}: {reason}")
    try:
        made = read_made_replay(open_run(out))
    except PhasepointError as error:
        return TimedReplay(None, dur_s=dur_s, problem=str(error))
    times_ps = made.steps.own_ps[made.steps.clean]
    if len(times_ps) < LEAST_CLEAN_STEPS:
        return TimedReplay(None, dur_s=dur_s, problem=f"only {len(times_ps)} of its steps can be timed")
    logged: dict[str, dict[str, float]] = {}
    for row in made.tables["scalars"].to_pylist():
        if row["step"] is not None and row["value"] is not None:
            logged.setdefault(row["name"], {})[str(row["step"])] = row["value"]
    return TimedReplay(float(np.median(times_ps)) / PS_PER_NS, len(times_ps), dur_s, logged=logged)
