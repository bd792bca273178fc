"""Stretches of a session's time (checkpoints, evaluations) laid over its steps, and what of them lies between steps.

What is an evaluation: stretches that the job named so, and phases of steps that only go forward.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.intervals import covered_ps, subtract, union, unite
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.accounting import covered_time, recorder_work
from phasepoint.phases.clock.steps import RunClock, read_numbers, sum_ps


@dataclass(frozen=True, eq=False)
class HeldTime:
    """Time held by something.

    Attributes:
        by_step: `[n_steps]` ps of each row of the clock.
        outside_ps: between steps.
    """

    by_step: Int64s
    outside_ps: int

    @property
    def total_ps(self) -> int:
        """All of it."""
        return sum_ps(self.by_step) + self.outside_ps


def held_time(
    clock: RunClock,
    stretches: pa.Table,
    room_ps: Int64s,
    first: Sequence[pa.Table],
    *,
    skip_ps: Int64s | None = None,
) -> HeldTime:
    """The time that stretches cover, inside each step and outside all; what they cover twice counts once.

    Args:
        clock: the run's steps.
        stretches: `host`, `attempt`, `start_ps`, `dur_ps`.
        room_ps: `[n_steps]` what the account has for them of each step.
        first: likewise stretches whose time outside of steps is not theirs.
        skip_ps: `[n]` taken off the start of each stretch.
    """
    by_step, outside_ps = np.zeros(clock.n_steps, np.int64), 0
    skipped = np.zeros(stretches.num_rows, np.int64) if skip_ps is None else skip_ps
    stretches = stretches.append_column("skip_ps", pa.array(skipped))
    before = zip(*map(clock.split, first), strict=True)
    for session, mine, others in zip(clock.sessions, clock.split(stretches), before, strict=True):
        begin_ps, dur_ps, skip = (read_numbers(mine, name) for name in ("start_ps", "dur_ps", "skip_ps"))
        held = union(begin_ps + np.minimum(skip, dur_ps), begin_ps + dur_ps)
        start, dur = clock.start_ps[session.rows], clock.dur_ps[session.rows]
        by_step[session.rows] = np.minimum(covered_ps(held, start, start + dur), room_ps[session.rows])
        taken = unite([union(start, start + dur), *map(covered_time, others)])
        outside_ps += subtract(held, taken).total_ps
    return HeldTime(by_step, outside_ps)


EVALUATION_WORDS = ("eval", "valid", "test")
"""Parts of the names that jobs give their evaluations."""


@dataclass(frozen=True, eq=False)
class Evaluations:
    """A run's evaluations.

    Attributes:
        named: the rows of `hints` that name one.
        found: `[n_steps]` steps of phases that are known for one by what they run.
        held: their time, as far as nothing else in the account has it.
    """

    named: pa.Table
    found: Bools
    held: HeldTime


def read_evaluations(view: FindingsView) -> Evaluations:
    """What a run spent on evaluation."""
    hints, room_ps = view.table("hints"), view.step_parts.rest_ps
    names = pc.utf8_lower(hints.column("name").cast(pa.string()))
    is_named = pc.match_substring_regex(names, "|".join(EVALUATION_WORDS))
    named = hints.filter(is_named)
    found = np.isin(view.labels, [phase.id for phase in view.analysis.result.phases if phase.kind == "eval"])
    others = (recorder_work(view.table("gaps")), view.checkpoint_stretches)
    held = held_time(view.clock, named, room_ps, others)
    return Evaluations(named, found, HeldTime(np.where(found, room_ps, held.by_step), held.outside_ps))


def unnamed_time(view: FindingsView) -> Int64s:
    """`[n_steps]` what of each step neither the account nor the job has under a name: all that other causes share."""
    return view.step_parts.rest_ps - view.once(read_evaluations).held.by_step
