"""From a step to the whole run: everything that a run takes beside its steps, each part by itself.

Checkpoints and failures: a job that saves for C seconds every τ, and loses a machine every M on average, spends C / τ
of its time on saving, and loses τ / 2 and a restart R at each failure. The best τ is √(2 C M).

Source: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974; J. T. Daly,
"A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006, equation 20.
"""

import math
from dataclasses import dataclass, fields, replace

from phasepoint.core.errors import UsageError

SECONDS_AN_HOUR, SECONDS_A_DAY = 3600.0, 86_400.0
"""Of an hour and a day."""

HOST_FAILS_S = 264 * SECONDS_A_DAY
"""Between two failures of one host: 2,048 hosts of eight H100 were interrupted 419 times in 54 days ("The Llama 3 Herd
of Models", 2024, table 5). Of hosts of TPUs nothing is published; a caller who knows better says so."""


@dataclass(frozen=True)
class RunParts:
    """What a run takes, seconds of the clock; they add up to it.

    Attributes:
        starting: of the program, before its first step: machines, data, compilation.
        steps: training.
        evaluation: beside training.
        saving: checkpoints that the job waits for.
        lost: work that failures undo, and restarts.
    """

    starting: float
    steps: float
    evaluation: float
    saving: float
    lost: float

    @property
    def scored(self) -> float:
        """What MLPerf Training counts: from the first sample read to the last evaluation."""
        return self.steps + self.evaluation

    @property
    def wall(self) -> float:
        """All of it."""
        return float(sum(getattr(self, field.name) for field in fields(self)))


@dataclass(frozen=True)
class Hazards:
    """What makes a run longer than its steps.

    Attributes:
        save_s: that the job waits for a checkpoint.
        restart_s: from a failure to the first step after it.
        fails_s: mean time between failures of one host, seconds; infinite where nothing fails.
        hosts: of the job; any that fails ends it.
    """

    save_s: float = 0.0
    restart_s: float = 0.0
    fails_s: float = math.inf
    hosts: int = 1

    @property
    def system_fails_s(self) -> float:
        """Mean time between failures of any host."""
        return self.fails_s / self.hosts


def best_interval_s(hazards: Hazards) -> float:
    """The time between two checkpoints at which least is lost (Young, 1974); infinite where nothing fails.

    Example:
        >>> round(best_interval_s(Hazards(save_s=30.0, fails_s=264 * SECONDS_A_DAY, hosts=2048)))
        817
    """
    return math.sqrt(2 * hazards.save_s * hazards.system_fails_s)


def whole_run(
    work_s: float,
    *,
    hazards: Hazards,
    starting_s: float = 0.0,
    evaluation_s: float = 0.0,
    interval_s: float | None = None,
) -> RunParts:
    """All parts of a run.

    Args:
        work_s: seconds of its steps.
        hazards: checkpoints and failures.
        starting_s: before its first step.
        evaluation_s: beside its steps.
        interval_s: between two checkpoints; the best one where None.

    Raises:
        UsageError: failures come faster than the job gets on.
    """
    useful_s = work_s + evaluation_s
    interval_s = best_interval_s(hazards) if interval_s is None else interval_s
    if not math.isfinite(interval_s):
        return RunParts(starting_s, work_s, evaluation_s, 0.0, 0.0)
    saves = hazards.save_s / interval_s if interval_s > 0 else 0.0
    # Of every second, what failures undo: half an interval with its checkpoint, and the restart, every system_fails_s.
    undone = ((interval_s + hazards.save_s) / 2 + hazards.restart_s) / hazards.system_fails_s
    if undone >= 1:
        raise UsageError(
            f"{hazards.hosts:,} hosts fail every {hazards.system_fails_s:,.0f} s, and each failure costs "
            f"{undone * hazards.system_fails_s:,.0f} s: such a job never ends; save or restart faster, or use fewer"
        )
    saving_s = useful_s * saves
    return RunParts(starting_s, work_s, evaluation_s, saving_s, (useful_s + saving_s) * undone / (1 - undone))


@dataclass(frozen=True)
class RunAsked:
    """The run that a step is part of.

    Attributes:
        samples: to train on.
        starting_s: before its first step.
        hazards: checkpoints and failures; the number of hosts is filled in.
        price: of a chip for an hour; None where that is not asked for.
        evaluation_s: all evaluations together.
    """

    samples: float
    starting_s: float
    hazards: Hazards
    price: float | None = None
    evaluation_s: float = 0.0

    def with_steps(self, step_s: float, batch: int, hosts: int) -> RunParts:
        """All parts of the run with a step."""
        steps = math.ceil(self.samples / batch)
        hazards = replace(self.hazards, hosts=hosts)
        return whole_run(steps * step_s, hazards=hazards, starting_s=self.starting_s, evaluation_s=self.evaluation_s)

    def cost(self, parts: RunParts, chips: int) -> float | None:
        """Of the run, in the price's currency."""
        return None if self.price is None else self.price * chips * parts.wall / SECONDS_AN_HOUR
