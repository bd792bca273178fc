"""Search among settings of a program: the most promising is run next, and the best is confirmed against the job as it
is, by turns, with the certificate of a live trial.

What is returned was itself run. First each knob is turned alone. Then two propose by turns: the sum of what each knob's
values did to the log of the time, which is right where knobs do not hinder each other, and Optuna's tree-structured
Parzen estimator, which learns where they do (Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS
2011). A search that was cut off goes on from what stands in its file.
"""

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from phasepoint.core.errors import MissingExtraError, StoreError
from phasepoint.tune.certificate import Certificate, Gain
from phasepoint.tune.journal import TuneVerdict
from phasepoint.tune.knobs import Setting, describe_setting
from phasepoint.tune.offline.space import SearchSpace

CONFIRMED_PAIRS = 8
"""Runs of each side at most, once the search has ended; five that agree are enough."""

LEAST_GAIN = 0.01
"""A choice: what wins less in the search is not worth confirming."""

FUTILE_PAIRS = 3
"""A confirmation ends where the job as it is was faster in the median of so many."""

_MOST_ASKED = 50  # times that the estimator is asked for a setting that was not run yet

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
        MissingExtraError: Optuna is not installed.
        StoreError: results cannot be read or written.
    """
    results = _Results(Path(folder))
    base = results.get(space.as_written)
    if base is None:
        base = results.add(space.as_written, measure([[space.as_written]], None)[0][0])
    if base.step_ns is None:
        reason = f"the job as it is could not be run: {base.problem}"
        return _outcome(space, results, TuneVerdict.UNDECIDED, reason, space.as_written)
    base_ns = base.step_ns
    budget = min(space.trials, space.size)
    proposer = _Proposer(space, results, base_ns, seed)
    while len(results.rows) < budget:
        settings = proposer.propose(min(machines, budget - len(results.rows)))
        tell("; ".join(map(describe_setting, settings)), len(results.rows), budget)
        fastest_ns = min(_cost(space, one, found) for one, found in results.rows)
        bounds = Bounds(EARLY_STOP * base.dur_s, HOPELESS * fastest_ns)
        groups = measure([[setting] for setting in settings], bounds)
        for setting, (found,) in zip(settings, groups, strict=True):
            proposer.learn(setting, _cost(space, setting, results.add(setting, found)))
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


class _Proposer:
    """Says what is run next, and is told what it costs."""

    def __init__(self, space: SearchSpace, results: "_Results", base_ns: float, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            raise MissingExtraError("searching needs Optuna: pip install 'phasepoint[tune]'") from error
        self._optuna = optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=len(_alone(space)))
        self._study = optuna.create_study(sampler=sampler)
        self._kinds = {
            knob.name: optuna.distributions.CategoricalDistribution([json.dumps(value) for value in knob.values])
            for knob in space.knobs
        }
        self._space, self._results, self._base_ns = space, results, base_ns
        self._chance = random.Random(seed)
        for setting, found in results.rows:
            self.learn(setting, _cost(space, setting, found))

    def learn(self, setting: Setting, cost: float) -> None:
        """What a setting costs."""
        parameters = {name: json.dumps(setting[name]) for name in self._kinds}
        if all(parameters[name] in kind.choices for name, kind in self._kinds.items()):
            trial = self._optuna.trial.create_trial(
                params=parameters, distributions=self._kinds, value=math.log(min(cost, 100 * self._base_ns))
            )
            self._study.add_trial(trial)

    def propose(self, count: int) -> list[Setting]:
        """Settings that were not run yet; fewer where none are left."""
        settings: list[Setting] = []
        for _ in range(count):
            left = [
                setting
                for setting in _all(self._space, self._chance)
                if self._results.get(setting) is None and setting not in settings
            ]
            if left:
                settings.append(self._next(left, len(self._results.rows) + len(settings)))
        return settings

    def _next(self, left: Sequence[Setting], number: int) -> Setting:
        """One of those that are left: of one knob alone, then by turns; where the estimator repeats itself, any."""
        alone = _alone(self._space)
        for setting in alone:
            if setting in left:
                return setting
        if (number - len(alone)) % 2:
            return _by_sums(self._results, self._space, left)
        for _ in range(_MOST_ASKED):
            asked = self._study.ask(self._kinds)
            setting = {name: json.loads(value) for name, value in asked.params.items()}
            self._study.tell(asked, state=self._optuna.trial.TrialState.FAIL)  # its cost is told in a trial of its own
            if setting in left:
                return setting
        return left[0]


def _alone(space: SearchSpace) -> list[Setting]:
    """Each value of each knob, with everything else as written."""
    written = space.as_written
    return [
        {**written, knob.name: value} for knob in space.knobs for value in knob.values if value != written[knob.name]
    ]


def _by_sums(results: "_Results", space: SearchSpace, left: Sequence[Setting]) -> Setting:
    """That which should be the fastest if what the knobs do to the log of the time adds up."""
    import numpy as np

    columns = [(knob.name, value) for knob in space.knobs for value in knob.values if value != knob.as_written]

    def row(setting: Setting) -> list[float]:
        return [1.0, *(float(setting[name] == value) for name, value in columns)]

    run = [(setting, _cost(space, setting, found)) for setting, found in results.rows]
    fit = [(row(setting), math.log(cost)) for setting, cost in run if math.isfinite(cost)]
    failed = [setting for setting, cost in run if not math.isfinite(cost)]
    works = [setting for setting in left if not any(_holds_alone(setting, other, space) for other in failed)]
    rows, logs = np.array([row for row, _ in fit]), np.array([log for _, log in fit])
    effects = np.linalg.lstsq(rows, logs, rcond=None)[0]
    return min(works or left, key=lambda setting: float(np.dot(row(setting), effects)))


def _holds_alone(setting: Setting, failed: Setting, space: SearchSpace) -> bool:
    """Whether a setting holds the one value whose turning has failed."""
    turned = {name: value for name, value in failed.items() if value != space.as_written[name]}
    return len(turned) == 1 and all(setting[name] == value for name, value in turned.items())


def _all(space: SearchSpace, chance: random.Random) -> list[dict[str, Any]]:
    names = [knob.name for knob in space.knobs]
    rows = [dict(zip(names, values, strict=True)) for values in product(*(knob.values for knob in space.knobs))]
    chance.shuffle(rows)
    return rows


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
                self.rows.append((content["setting"], Measured(**content["measured"])))
            except (ValueError, TypeError, KeyError) as error:
                if number + 1 < len(lines):  # the last line may have been cut off
                    raise StoreError(f"{self._path}, line {number + 1}: no result of a search; remove it") from error
        self.spent_s = sum(found.dur_s for _, found in self.rows)

    def get(self, setting: Setting) -> Measured | None:
        """What came of a setting; None where it was not run."""
        return next((found for known, found in self.rows if dict(known) == dict(setting)), None)

    def add(self, setting: Setting, found: Measured) -> Measured:
        """Keep what came of one."""
        self.rows.append((dict(setting), found))
        self.spend(found)
        try:
            with self._path.open("a") as file:
                file.write(json.dumps({"setting": dict(setting), "measured": asdict(found)}) + "\n")
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror or error}; choose another place with --out") from error
        return found

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
