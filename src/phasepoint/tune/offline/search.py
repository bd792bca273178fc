"""Search among settings of a program: the most promising is run next, and the best is confirmed against the job as it
is, by turns, with the certificate of a live trial.

What is returned was itself run. A search that was cut off goes on from what stands in its file.
"""

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np

from phasepoint.core.errors import StoreError
from phasepoint.tune.certificate import Certificate, Gain
from phasepoint.tune.journal import TuneVerdict
from phasepoint.tune.knobs import Setting, describe_setting
from phasepoint.tune.offline.proposal import propose_setting
from phasepoint.tune.offline.space import SearchSpace

CONFIRMED_PAIRS = 8
"""Runs of each side at most, once the search has ended; five that agree are enough."""

LEAST_GAIN = 0.01
"""A choice: what wins less in the search is not worth confirming."""

FUTILE_PAIRS = 3
"""A confirmation ends where the job as it is was faster in the median of so many."""

_FAILED = 4.0
"""A choice: a setting that fails counts as so many times slower than the job as it is, so that its like are avoided."""

RESULTS_NAME = "trials.jsonl"


@dataclass(frozen=True)
class Measured:
    """What a run of a setting gave.

    Attributes:
        step_ns: typical time of a step; None where it failed.
        steps: how many steps that stands on.
        dur_s: of the whole run.
        problem: why it failed.
        logged: what it logs, by name and step; None where it logs nothing.
    """

    step_ns: float | None
    steps: int = 0
    dur_s: float = 0.0
    problem: str = ""
    logged: dict[str, dict[str, float]] | None = None


@dataclass(frozen=True)
class SearchTrial:
    """A setting that was run.

    Attributes:
        setting: it.
        measured: what came of it.
        gain: against the job as it is, per sample; None where it failed.
    """

    setting: Setting
    measured: Measured
    gain: float | None


@dataclass(frozen=True)
class SearchOutcome:
    """What a search came to.

    Attributes:
        verdict: tuned, nothing to tune or undecided.
        reason: in one sentence.
        as_written: the job as it is.
        chosen: the setting to use.
        gain: of it against the job as it is, per sample; None where nothing was confirmed.
        pairs: runs by turns that confirmed it.
        difference: largest relative difference of what the job logs, where numerics may change.
        trials: in their order.
        spent_s: time of all runs.
        settings: in the space.
    """

    verdict: TuneVerdict
    reason: str
    as_written: Setting
    chosen: Setting
    gain: Gain | None
    pairs: int
    difference: float | None
    trials: tuple[SearchTrial, ...]
    spent_s: float
    settings: int

    @property
    def could_run(self) -> bool:
        """Whether the job as it is ran, without which nothing can be said."""
        return any(one.gain is not None for one in self.trials if one.setting == self.as_written)


@dataclass(frozen=True)
class Bounds:
    """Beyond which a run cannot win, and ends.

    Attributes:
        run_s: of the whole command.
        step_ns: of a step with as many samples as the job as it is has.
    """

    run_s: float
    step_ns: float


Measure = Callable[[Sequence[Sequence[Setting]], Bounds | None], list[list[Measured]]]
"""Runs groups of settings, each group on one machine, one after the other; with bounds, once something is known."""

EARLY_STOP = 3.0
"""A run may take so many times what the job as it is took."""

HOPELESS = 1.5
"""A choice: whose first steps take so many times as long as the fastest's does not win with those that follow."""


def search(
    space: SearchSpace,
    measure: Measure,
    folder: str | Path,
    *,
    machines: int = 1,
    seed: int = 0,
    tell: Callable[[str, int, int], None] = lambda _words, _done, _all: None,
) -> SearchOutcome:
    """Search a space.

    Args:
        space: what may be tried.
        measure: runs settings.
        folder: where results go; those that are there are not run again.
        machines: that run a setting each at a time.
        seed: of what is proposed, and of the order of runs that confirm.
        tell: called with what is run, runs done, and runs in all.

    Raises:
        StoreError: results cannot be read or written.
    """
    results = _Results(Path(folder))
    base = results.get(space.as_written)
    if base is None or base.step_ns is None:  # what failed may have been mended since
        base = results.add(space.as_written, measure([[space.as_written]], None)[0][0])
    if base.step_ns is None:
        reason = f"the job as it is could not be run: {base.problem}; mend it and give the same command again"
        return _outcome(space, results, TuneVerdict.UNDECIDED, reason, space.as_written)
    base_ns = base.step_ns
    budget = min(space.trials, space.size)
    chance = np.random.default_rng(seed)
    while len(results.rows) < budget:
        settings = _propose(space, results, min(machines, budget - len(results.rows)), chance, base_ns)
        tell("; ".join(map(describe_setting, settings)), len(results.rows), budget)
        fastest_ns = min(_cost(space, one, found) for one, found in results.rows)
        bounds = Bounds(EARLY_STOP * base.dur_s, HOPELESS * fastest_ns)
        groups = measure([[setting] for setting in settings], bounds)
        for setting, (found,) in zip(settings, groups, strict=True):
            results.add(setting, found)
    ranked = sorted((_cost(space, one, found), number) for number, (one, found) in enumerate(results.rows))
    best = results.rows[ranked[0][1]][0]
    if best == space.as_written or _cost(space, best, results.get(best)) > base_ns / (1 + LEAST_GAIN):
        return _outcome(space, results, TuneVerdict.NOTHING, "no setting that was run is faster", space.as_written)
    return _confirm(space, measure, results, best, seed=seed, tell=tell)


def _confirm(
    space: SearchSpace, measure: Measure, results: "_Results", best: Setting, *, seed: int, tell: Callable[..., None]
) -> SearchOutcome:
    """Run the best and the job as it is by turns, in an order drawn by chance."""
    certificate, chance = Certificate(), random.Random(seed)
    for pair in range(CONFIRMED_PAIRS):
        tell(f"confirming {describe_setting(best)}", pair, CONFIRMED_PAIRS)
        order = [best, space.as_written] if chance.getrandbits(1) else [space.as_written, best]
        (group,) = measure([order], None)
        cost = {
            json.dumps(setting): _cost(space, setting, results.spend(found))
            for setting, found in zip(order, group, strict=True)
        }
        old, new = cost[json.dumps(space.as_written)], cost[json.dumps(best)]
        if not math.isfinite(old) or not math.isfinite(new):
            return _outcome(
                space, results, TuneVerdict.UNDECIDED, "a run that should confirm it failed", space.as_written
            )
        certificate.add(math.log(old / new))
        if certificate.is_better:
            break
        if len(certificate.log_ratios) >= FUTILE_PAIRS and median(certificate.log_ratios) <= 0:
            break
    gain, pairs = certificate.gain(), len(certificate.log_ratios)
    if certificate.is_better:
        reason = f"{describe_setting(best)}: faster beyond doubt in {pairs} pairs of runs"
        return _outcome(space, results, TuneVerdict.TUNED, reason, best, gain=gain, pairs=pairs)
    reason = f"{describe_setting(best)} was the fastest that was run, but not beyond doubt in {pairs} pairs of runs"
    return _outcome(space, results, TuneVerdict.UNDECIDED, reason, space.as_written, gain=gain, pairs=pairs)


def _cost(space: SearchSpace, setting: Setting, found: Measured | None) -> float:
    """Time of as many samples as a step of the job as it is has; infinite where it failed."""
    if found is None or found.step_ns is None:
        return math.inf
    return found.step_ns / space.samples(setting)


def _propose(
    space: SearchSpace, results: "_Results", count: int, chance: np.random.Generator, base_cost: float
) -> list[Setting]:
    """Settings that were not run yet, for so many machines; fewer where none are left."""
    known = [
        (setting, math.log(min(_cost(space, setting, found) / base_cost, _FAILED))) for setting, found in results.rows
    ]
    middle = median(cost for _, cost in known)
    settings: list[Setting] = []
    left = [one for one in _all(space) if results.get(one) is None]
    while left and len(settings) < count:
        chosen = propose_setting(space.as_written, known, left, chance)
        settings.append(chosen)
        known.append((chosen, middle))  # so that the next machine looks elsewhere
        left.remove(chosen)
    return settings


def _all(space: SearchSpace) -> list[Setting]:
    names = [knob.name for knob in space.knobs]
    return [dict(zip(names, values, strict=True)) for values in product(*(knob.values for knob in space.knobs))]


class _Results:
    """What was run, in a file that a search which was cut off goes on from."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS_NAME
        self.rows: list[tuple[Setting, Measured]] = []
        self.spent_s = 0.0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lines = self._path.read_text().splitlines() if self._path.exists() else []
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror or error}; choose another place with --out") from error
        for number, line in enumerate(lines):
            try:
                content = json.loads(line)
                self._put(content["setting"], Measured(**content["measured"]))
            except (ValueError, TypeError, KeyError) as error:
                if number + 1 < len(lines):  # the last line may have been cut off
                    raise StoreError(f"{self._path}, line {number + 1}: no result of a search; remove it") from error
        self.spent_s = sum(found.dur_s for _, found in self.rows)

    def get(self, setting: Setting) -> Measured | None:
        """What came of a setting; None where it was not run."""
        return next((found for known, found in self.rows if dict(known) == dict(setting)), None)

    def add(self, setting: Setting, found: Measured) -> Measured:
        """Keep what came of one."""
        self._put(setting, found)
        self.spend(found)
        try:
            with self._path.open("a") as file:
                file.write(json.dumps({"setting": dict(setting), "measured": asdict(found)}) + "\n")
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror or error}; choose another place with --out") from error
        return found

    def _put(self, setting: Setting, found: Measured) -> None:
        self.rows = [row for row in self.rows if row[0] != setting] + [(dict(setting), found)]

    def spend(self, found: Measured) -> Measured:
        """Count the time of a run."""
        self.spent_s += found.dur_s
        return found


def _outcome(
    space: SearchSpace,
    results: _Results,
    verdict: TuneVerdict,
    reason: str,
    chosen: Setting,
    *,
    gain: Gain | None = None,
    pairs: int = 0,
) -> SearchOutcome:
    base_ns = _cost(space, space.as_written, results.get(space.as_written))
    trials = []
    for setting, found in results.rows:
        cost = _cost(space, setting, found)
        trials.append(SearchTrial(setting, found, base_ns / cost - 1 if math.isfinite(cost) else None))
    picked = results.get(chosen)
    difference = None
    if picked is not None and space.changes_numerics(chosen):
        difference = largest_difference(results.get(space.as_written), picked)
    return SearchOutcome(
        verdict, reason, space.as_written, chosen, gain, pairs, difference, tuple(trials), results.spent_s, space.size
    )


def largest_difference(base: Measured | None, other: Measured) -> float | None:
    """Largest relative difference of what two runs have logged for the same steps; None where they have nothing."""
    if base is None or not base.logged or not other.logged:
        return None
    worst: float | None = None
    for name, values in base.logged.items():
        for step, value in values.items():
            theirs = other.logged.get(name, {}).get(step)
            if theirs is not None:
                scale = max(abs(value), abs(theirs), 1e-12)
                worst = max(worst or 0.0, abs(theirs - value) / scale)
    return worst
