"""The strata of a run, one phase on one host, and how small ones are joined with those most like them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import median
from phasepoint.estimates.captured import Captured
from phasepoint.phases.clock.steps import StepSeries, sum_ps

LEAST_WINDOWS = 3
"""A stratum with fewer windows joins the one most like it."""


@dataclass(frozen=True)
class Stratum:
    """What the clock knows of a stratum, in exact integers.

    Attributes:
        host: rank.
        phase: phase id.
        total_ps: time of its steps.
        rest_ps: time of those that no window saw.
        median_ps: median step time.
        input_share: part of its time that waited for input.
    """

    host: int
    phase: int
    total_ps: int
    rest_ps: int
    median_ps: float
    input_share: float


@dataclass(frozen=True, eq=False)
class Sampled:
    """A run seen through its windows.

    Attributes:
        steps: of the run.
        captured: the captured steps.
        strata: what the clock knows of each.
        stratum: `[n_steps]`, of every step.
        cluster: `[n_captured]`, number of the window (on its host and attempt) that saw each, from 0.
    """

    steps: StepSeries
    captured: Captured
    strata: tuple[Stratum, ...]
    stratum: Int64s
    cluster: Int64s

    @property
    def of_captured(self) -> Int64s:
        """Stratum of every captured step."""
        return self.stratum[self.captured.row]


def assign_strata(steps: StepSeries, labels: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Stratum of every step `[n_steps]`, and host and phase of every stratum `[n_strata]`."""
    hosts, host = renumber(steps.host)
    phases, phase = renumber(labels)
    n = max(len(phases), 1)
    pairs, stratum = renumber(host * n + phase)
    return stratum, hosts[pairs // n], phases[pairs % n]


def describe_strata(
    steps: StepSeries, seen: Bools, stratum: Int64s, hosts: Int64s, phases: Int64s
) -> tuple[Stratum, ...]:
    """What the clock knows of every stratum."""
    found = []
    for index, (host, phase) in enumerate(zip(hosts.tolist(), phases.tolist(), strict=True)):
        mine = stratum == index
        total_ps = sum_ps(steps.dur_ps[mine])
        waiting = sum_ps(steps.input_ps[mine]) / max(total_ps, 1)
        middle = median(steps.dur_ps[mine])
        found.append(Stratum(host, phase, total_ps, sum_ps(steps.dur_ps[mine & ~seen]), middle, waiting))
    return tuple(found)


def group_strata(strata: Sequence[Stratum], of_captured: Int64s, cluster: Int64s) -> tuple[Int64s, Bools]:
    """Groups of strata with enough windows each: small strata join the one most like them, the smallest first.

    Args:
        strata: of the run.
        of_captured: `[n_captured]`, stratum of each captured step.
        cluster: `[n_captured]`, its window.

    Returns:
        Group of each stratum `[n_strata]`, from 0, and whether it had too few windows of its own.
    """
    n = len(strata)
    windows: list[set[int]] = [set(cluster[of_captured == i].tolist()) for i in range(n)]
    group = np.arange(n)
    borrowed = np.array([len(mine) < LEAST_WINDOWS for mine in windows], bool)
    alive = set(range(n))
    while len(alive) > 1:
        small = [i for i in alive if len(windows[i]) < LEAST_WINDOWS]
        if not small:
            break
        index = min(small, key=lambda i: (strata[i].total_ps, i))
        target = min(alive - {index}, key=lambda i: (distance(strata[index], strata[i]), i))
        group[group == index] = target
        windows[target] |= windows[index]
        alive.remove(index)
    return np.unique(group, return_inverse=True)[1], borrowed


def distance(a: Stratum, b: Stratum) -> float:
    """How unlike two strata are: by step time and by the part of it that waits for input; 0 for the same phase.

    Only what the clock knows of every step goes in, since one of the two has no captured steps to speak of.
    """
    if a.phase == b.phase:
        return 0.0
    length = np.log(max(a.median_ps, 1.0)) - np.log(max(b.median_ps, 1.0))
    return 0.01 + abs(float(length)) + abs(a.input_share - b.input_share)
