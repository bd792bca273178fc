"""What a replay will cost, part by part: measured in the run, and said where something else has to stand in."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from phasepoint.core.statistics import median_ps
from phasepoint.replay.checkpoints import IndexedCheckpoint
from phasepoint.replay.plan.starts import RestartPoint, SessionSteps


@dataclass(frozen=True)
class PlanCost:
    """The parts of a replay's cost; None for what the run does not tell. `cost_ps` adds up what it does.

    Attributes:
        startup_ps: from the start of the process (or, where that is not known, of the recording) to its first step.
        compile_ps: compiling again what the first steps compiled.
        restore_ps: reading the checkpoint.
        skip_ps: drawing the batches before the first step and throwing them away.
        forward_ps: the steps that are run, at their measured times.
        outside_ps: time between these steps that belongs to none.
        basis: (part, where its number comes from), in words.
    """

    startup_ps: int | None
    compile_ps: int | None
    restore_ps: int | None
    skip_ps: int | None
    forward_ps: int
    outside_ps: int
    basis: tuple[tuple[str, str], ...]

    @property
    def cost_ps(self) -> int:
        """The known parts added up."""
        known = (self.startup_ps, self.compile_ps, self.restore_ps, self.skip_ps, self.forward_ps, self.outside_ps)
        return sum(part for part in known if part is not None)


@dataclass(frozen=True, eq=False)
class CostBook:
    """What the costs of every replay of one process rest on.

    Attributes:
        steps: its steps.
        write_rate: time and bytes of a checkpoint that was written while the job waited, at the median rate of those;
            None where there is none with a size.
        lead: first steps of a program, in which it compiles.
        process_age_ps: how long the process had run when recording began; None where it is not known, or tells nothing.
    """

    steps: SessionSteps
    write_rate: tuple[int, int] | None
    lead: int
    process_age_ps: int | None

    def price(self, point: RestartPoint | None, first_step: int, last_step: int) -> PlanCost:
        """The cost of a replay from a checkpoint (None: from the start) that does `first_step`–`last_step`."""
        parts: dict[str, tuple[Any, str]] = {
            "startup": self._startup(),
            "compile": self._compile(first_step),
            "restore": self._restore(point),
            "skip": self._skip(point, first_step),
            "forward": self._forward(first_step, last_step),
            "outside": (
                self.steps.outside_between_ps(first_step, last_step),
                "time between these steps that belongs to none",
            ),
        }
        return PlanCost(
            **{f"{part}_ps": time_ps for part, (time_ps, _) in parts.items()},
            basis=tuple((part, words) for part, (_, words) in parts.items()),
        )

    def _startup(self) -> tuple[int | None, str]:
        if not self.steps.n_steps:
            return None, "not known: the session has no step"
        recorded_ps = int(self.steps.start_ps[0])
        if self.process_age_ps is None:
            return recorded_ps, "begin of the recording to its first step; imports before it are not in it"
        return self.process_age_ps + recorded_ps, "start of the process to its first step, imports and all"

    def _restore(self, point: RestartPoint | None) -> tuple[int | None, str]:
        if point is None:
            return 0, "nothing is restored"
        one = point.checkpoint
        if one.asynchronous is not True and one.dur_ps > 0:
            return one.dur_ps, "the time it took to write the checkpoint stands in for reading it"
        if one.size_bytes is not None and self.write_rate is not None:
            write_ps, size_bytes = self.write_rate
            return one.size_bytes * write_ps // size_bytes, (
                "its size at the rate of the checkpoints that the job waited for stands in for reading it"
            )
        if one.asynchronous is not True:
            return None, "not known: the time to write the checkpoint was not measured; not in the cost"
        return None, "not known: the checkpoint was written in the background; not in the cost"

    def _skip(self, point: RestartPoint | None, first_step: int) -> tuple[int | None, str]:
        before = self.steps.index_of(first_step)
        if not before:
            return 0, "no batch is skipped"
        if point is not None and point.checkpoint.iterator_state is not None:
            return 0, "the loader's state was recorded with the checkpoint"
        if point is not None and point.checkpoint.has_iterator:
            return 0, "the data iterator is in the checkpoint"
        if not self.steps.input_known:
            return None, f"not known: {before:,} batches are drawn and thrown away, but no wait for input was measured"
        return self.steps.input_before_ps(first_step), (
            f"{before:,} batches are drawn and thrown away, at their measured waits; "
            "a loader that worked ahead of the job takes longer"
        )

    def _compile(self, first_step: int) -> tuple[int | None, str]:
        if first_step <= (int(self.steps.step[0]) if self.steps.n_steps else 0):
            return 0, "in the steps themselves"
        if not self.steps.compile_known:
            return None, "not known: no compilation was measured; it is not in the cost"
        compiled_ps = int(self.steps.compile_ps[: self.lead].sum())
        return compiled_ps, f"what the first {self.lead} steps of the run compiled; a warm compilation cache saves it"

    def _forward(self, first_step: int, last_step: int) -> tuple[int, str]:
        measured_ps = self.steps.dur_between_ps(first_step, last_step)
        missing = self.steps.missing_between(first_step, last_step)
        if not missing:
            return measured_ps, "the steps' measured times"
        usual_ps = median_ps(self.steps.dur_ps)
        return measured_ps + missing * usual_ps, (
            f"the steps' measured times; {missing:,} of which nothing was recorded count as median steps"
        )


def write_rate(checkpoints: Iterable[IndexedCheckpoint]) -> tuple[int, int] | None:
    """Time (ps) and bytes of the checkpoint with the median rate; None without one that the job waited for."""
    known = [
        (one.dur_ps, one.size_bytes)
        for one in checkpoints
        if one.asynchronous is not True and one.dur_ps > 0 and one.size_bytes
    ]
    known.sort(key=lambda pair: Fraction(*pair))
    return known[(len(known) - 1) // 2] if known else None


def write_time_ps(checkpoints: Iterable[IndexedCheckpoint]) -> int | None:
    """Median time for which the job waited for a checkpoint, written in the background or not; None without one."""
    times = [one.dur_ps for one in checkpoints if one.dur_ps > 0]
    return median_ps(np.array(times, np.int64)) if times else None
