"""What a run can tell at all: an oracle that knows how it was made, all but the places, for `phases.py --oracle`.

The oracle knows the scenario, the mean of every phase, the noise and its shape, the rate of outliers and their range,
which ops each phase runs, and in which order phases follow each other. It does not know where: the steps of the
boundaries, the period and the phase of a schedule, the length of a cycle. Of all places it takes the likeliest, and
sets it against a run that is one phase throughout: the scenario's prior is a half, shared evenly by all its places.

Where the oracle's own labels score below 0.85, the run does not hold what the truth asks for; no method that does not
know what the oracle knows can be expected to find it.
"""

from collections.abc import Iterator
from math import comb, log

import numpy as np

from phase_runs import OUTLIER_RANGE, STEP_PS, GeneratedRun

SCHEDULES = ("eval blocks", "eval single", "eval same time", "checkpoints")
TURNS = ("alternation", "alternation later", "alternation by ops")
RAMPS = ("drift between levels",)
BLOCKS = (1, 2, 5, 10, 20)
LONGEST_TURN = 6
RAMP_PLACES = 40
NEVER = -1e4
"""Log likelihood of a step whose ops are those of another phase."""


def oracle_labels(name: str, run: GeneratedRun) -> np.ndarray:
    """The oracle's labels `[n]` of a run of scenario `name`."""
    truth = run.truth
    if (truth == truth[0]).all():
        return truth
    if name in RAMPS:
        log_odds, labels = _ramp(run)
    else:
        likelihood = _likelihoods(run)
        gain = likelihood[:, 1] - likelihood[:, 0]
        if name in SCHEDULES:
            log_odds, labels = _schedule(gain)
        elif name in TURNS:
            log_odds, labels = _turns(gain, later=name == "alternation later")
        else:
            log_odds, labels = _in_order(likelihood, _order(truth))
    return labels if log_odds > 0 else np.zeros(len(truth), int)


def log_density(run: GeneratedRun, mean: np.ndarray) -> np.ndarray:
    """Log density of every step's duration, up to a constant, were its mean `mean` (broadcast against `[n]`)."""
    ratio = run.steps["dur_ps"].to_numpy() / STEP_PS / mean
    if run.log_normal:
        z = (np.log(ratio) + run.noise**2 / 2) / run.noise
        usual = np.exp(-z * z / 2) / (run.noise * ratio)
    else:
        usual = np.exp(-(((ratio - 1) / run.noise) ** 2) / 2) / run.noise
    low, high = OUTLIER_RANGE
    odd = np.where((ratio > low) & (ratio < high), (2 * np.pi) ** 0.5 / (ratio * log(high / low)), 0.0)
    return np.log((1 - run.outliers) * usual + run.outliers * odd + 1e-30) - np.log(mean)


def _likelihoods(run: GeneratedRun) -> np.ndarray:
    """Log likelihood of every step in every phase, `[n, n_phases]`: duration, ops where captured, waiting."""
    plan, truth = run.plan, run.truth
    n_phases = int(truth.max()) + 1
    found = np.zeros((len(truth), n_phases))
    for phase in range(n_phases):
        member = int(np.flatnonzero(truth == phase)[0])
        found[:, phase] = log_density(run, np.full(len(truth), plan.mean[member]))
        wrong = run.captured[plan.ops[run.captured] != plan.ops[member]]
        found[wrong, phase] += NEVER
        found[:, phase] += np.where(abs(plan.input_share - plan.input_share[member]) > 0.1, NEVER, 0.0)
    return found


def _order(truth: np.ndarray) -> np.ndarray:
    return truth[np.flatnonzero(np.diff(truth, prepend=truth[0] - 1))]


def _in_order(likelihood: np.ndarray, order: np.ndarray) -> tuple[float, np.ndarray]:
    """Phases in a known order, boundaries anywhere: the likeliest; of equally likely places the middle one."""
    n, n_segments = len(likelihood), len(order)
    score, late = _cheapest(likelihood[:, order])
    early = _cheapest(likelihood[::-1, order[::-1]])[1]
    bounds = (late + (n - early[::-1])) // 2
    labels = order[np.searchsorted(bounds, np.arange(n), side="right")]
    return score - float(likelihood[:, 0].sum()) - log(comb(n - 1, n_segments - 1)), labels


def _cheapest(likelihood: np.ndarray) -> tuple[float, np.ndarray]:
    """Log likelihood of the best cut into the columns' order, and the starts of all segments but the first."""
    n, n_segments = likelihood.shape
    total = np.full(n_segments, -np.inf)
    moved = np.zeros((n, n_segments), bool)
    total[0] = likelihood[0, 0]
    for t in range(1, n):
        before = np.concatenate([[-np.inf], total[:-1]])
        moved[t] = before > total
        total = np.maximum(before, total) + likelihood[t]
    starts = np.zeros(n_segments - 1, int)
    at = n_segments - 1
    for t in range(n - 1, 0, -1):
        if moved[t, at]:
            at -= 1
            starts[at] = t
    return float(total[-1]), starts


def _schedule(gain: np.ndarray) -> tuple[float, np.ndarray]:
    """Blocks that return at least four times: the likeliest period, phase and length."""
    n = len(gain)
    best, n_tried = (-np.inf, 0, 0, 0), 0
    for period in range(8, n // 4 + 1):
        padded = np.concatenate([gain, np.zeros(-n % period)]).reshape(-1, period).sum(axis=0)
        ring = np.cumsum(np.concatenate([[0.0], padded, padded]))
        for length in (b for b in BLOCKS if b <= period // 2):
            sums = ring[length : length + period] - ring[:period]
            n_tried += period
            at = int(sums.argmax())
            if sums[at] > best[0]:
                best = (float(sums[at]), period, at, length)
    score, period, at, length = best
    return score - log(n_tried), ((np.arange(n) - at) % period < length).astype(int)


def _turns(gain: np.ndarray, *, later: bool) -> tuple[float, np.ndarray]:
    """One step in every few: the likeliest cycle and phase, and where it begins, if it need not at the start."""
    n = len(gain)
    best, n_tried = (-np.inf, 0, 0), 0
    for cycle, phase in _cycles():
        sums = np.cumsum(gain[phase::cycle][::-1])[::-1]
        begins = len(sums) if later else 1
        n_tried += begins
        at = int(sums[:begins].argmax())
        if sums[at] > best[0]:
            best = (float(sums[at]), phase + at * cycle, cycle)
    score, first, cycle = best
    labels = np.zeros(n, int)
    labels[first::cycle] = 1
    return score - log(n_tried), labels


def _cycles() -> Iterator[tuple[int, int]]:
    for cycle in range(2, LONGEST_TURN + 1):
        yield from ((cycle, phase) for phase in range(cycle))


def _ramp(run: GeneratedRun) -> tuple[float, np.ndarray]:
    """Level, ramp, level of known heights: the likeliest ends, against a jump at the likeliest step as one phase each.

    The one-phase story of such a run is a single jump: two phases instead of three.
    """
    n, top = len(run.truth), float(run.plan.mean[-1])
    low, high = log_density(run, np.ones(n)), log_density(run, np.full(n, top))
    before, after = np.cumsum(low), np.cumsum(high[::-1])[::-1]
    places = np.linspace(0.2 * n, 0.8 * n, RAMP_PLACES).astype(int)
    best, labels = -np.inf, np.zeros(n, int)
    for first in places:
        for last in places[places > first + n // 20]:
            inside = log_density(run, np.interp(np.arange(n), [first, last], [1.0, top]))[first:last].sum()
            score = before[first - 1] + inside + after[last]
            if score > best:
                best = score
                labels = np.digitize(np.arange(n), [first, last])
    jump = before[:-1] + after[1:]
    if best - log(RAMP_PLACES**2 / 2) > jump.max() - log(n):
        return np.inf, labels
    return np.inf, (np.arange(n) > int(jump.argmax())).astype(int)
