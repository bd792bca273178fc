"""Generated runs whose phases are known, for `benchmarks/phases.py`; its docstring says what truth means.

Every scenario draws its own sizes, ratios and places from the seed, so an unseen seed is an unseen scenario.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

STEP_PS = 200_000_000_000
WINDOW = 5
OUTLIER_RANGE = (3.0, 20.0)
"""An outlier lasts so many times as long as the step would have."""

# op -> (count, share of op time); "eval" holds a subset of "train", "other" mostly different ops.
OPS = {
    "train": {"conv": (8, 0.22), "dot": (4, 0.12), "relu": (8, 0.05), "loss": (1, 0.02), "copy": (3, 0.04),
              "conv_grad": (8, 0.33), "dot_grad": (4, 0.15), "adam": (12, 0.07)},
    "eval": {"conv": (8, 0.52), "dot": (4, 0.28), "relu": (8, 0.11), "loss": (1, 0.05), "copy": (3, 0.04)},
    "other": {"conv": (4, 0.20), "attention": (6, 0.40), "softmax": (6, 0.10), "sample": (2, 0.25), "copy": (3, 0.05)},
    "save": {"copy": (40, 0.7), "host_write": (20, 0.3)},
    "compile": {"conv": (8, 0.22), "dot": (4, 0.12), "relu": (8, 0.05), "loss": (1, 0.02), "copy": (3, 0.04),
                "conv_grad": (8, 0.33), "dot_grad": (4, 0.15), "adam": (12, 0.07)},
}  # fmt: skip


@dataclass
class Plan:
    """What a scenario decides: mean duration, truth and op set of every step."""

    mean: np.ndarray
    truth: np.ndarray
    ops: np.ndarray
    input_share: np.ndarray = field(default_factory=lambda: np.zeros(0))
    no_outlier: np.ndarray = field(default_factory=lambda: np.zeros(0, int))


@dataclass
class GeneratedRun:
    """Tables and truth of one run; and, for the oracle alone, how it was made."""

    steps: pa.Table
    ops: pa.Table | None
    truth: np.ndarray
    plan: Plan
    noise: float
    outliers: float
    log_normal: bool
    captured: np.ndarray


def plain(n: int) -> Plan:
    return Plan(np.ones(n), np.zeros(n, int), np.full(n, "train", object), np.full(n, 0.03))


def mark(plan: Plan, where: np.ndarray | slice, truth: int, *, ratio: float, ops: str | None = None) -> None:
    plan.mean[where] = ratio
    plan.truth[where] = truth
    if ops is not None:
        plan.ops[where] = ops


def steady(rng: np.random.Generator, n: int, noise: float) -> Plan:
    return plain(n)


def slower(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """The same ops, slower for a stretch, then as before."""
    plan = plain(n)
    first, length = int(n * rng.uniform(0.2, 0.5)), int(n * rng.uniform(0.15, 0.4))
    mark(plan, slice(first, first + length), 1, ratio=level_ratio(rng, noise, length))
    return plan


def slower_for_good(rng: np.random.Generator, n: int, noise: float) -> Plan:
    plan = plain(n)
    first = int(n * rng.uniform(0.3, 0.7))
    mark(plan, slice(first, n), 1, ratio=level_ratio(rng, noise, n - first))
    return plan


def level_ratio(rng: np.random.Generator, noise: float, length: int) -> float:
    """At least 25 %, and in a short stretch enough to stand out: eight standard errors of its mean."""
    return float(max(rng.uniform(1.25, 2.0), 1 + 8 * noise / np.sqrt(length)))


def eval_blocks(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """Evaluation blocks of a subset of the training ops, on a schedule."""
    plan = plain(n)
    length = int(rng.choice([2, 5, 10, 20]))
    period = max(length * int(rng.integers(4, 12)), 12)
    while n // period < 4:
        length, period = max(length // 2, 1), max(period // 2, 8)
    ratio = rng.uniform(0.25, 0.5)
    where = np.arange(n) % period >= period - length
    mark(plan, where, 1, ratio=ratio, ops="eval")
    return plan


def eval_single(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """Single evaluation steps on a schedule."""
    plan = plain(n)
    period = int(rng.integers(18, max(19, min(n // 5, 200))))
    mark(plan, np.arange(n) % period == period - 1, 1, ratio=rng.uniform(0.2, 0.4), ops="eval")
    return plan


def eval_same_time(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """Evaluation as long as a training step: only its ops tell, so every step must be captured."""
    plan = eval_blocks(rng, n, noise)
    plan.mean[:] = 1.0
    return plan


def drift_between(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """Level, slow drift, level."""
    plan = plain(n)
    first, last = int(n * rng.uniform(0.25, 0.4)), int(n * rng.uniform(0.6, 0.75))
    top = rng.uniform(1.5, 2.5)
    plan.mean[first:last] = np.linspace(1, top, last - first)
    plan.truth[first:last] = 1
    mark(plan, slice(last, n), 2, ratio=top)
    return plan


def drift_whole(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """Drift from end to end: one phase."""
    plan = plain(n)
    plan.mean[:] = np.linspace(1, rng.uniform(1.3, 2.0), n)
    return plan


def comes_back(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """Two levels of the same ops in turn, in long stretches of unequal length."""
    plan = plain(n)
    cuts = np.sort(rng.choice(np.arange(2, 19), 5, replace=False)) * n // 20
    for first, last in zip(cuts[::2], [*cuts[1::2], n], strict=False):
        mark(plan, slice(first, last), 1, ratio=1)
    plan.mean[plan.truth == 1] = level_ratio(rng, noise, n // 20)
    return plan


def alternation(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """A GAN's turns: 5 : 1, also 1 : 1, 2 : 1, 3 : 1."""
    plan = plain(n)
    cycle = int(rng.choice([2, 3, 4, 6, 6, 6]))
    mark(plan, np.arange(n) % cycle == cycle - 1, 1, ratio=turn_ratio(rng, noise, n), ops="other")
    return plan


def turn_ratio(rng: np.random.Generator, noise: float, n: int) -> float:
    """Steps in turn differ by 40 % or more, and enough to stand out of the noise once folded."""
    return float(max(rng.uniform(1.4, 2.5), 1 + 12 * noise / np.sqrt(n / 6)))


def alternation_part(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """Pretraining of one kind, then turns of two."""
    plan = plain(n)
    first = int(n * rng.uniform(0.3, 0.5))
    where = (np.arange(n) >= first) & (np.arange(n) % 6 == 5)
    mark(plan, where, 1, ratio=turn_ratio(rng, noise, n) + 0.3, ops="other")
    return plan


def alternation_by_ops(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """Turns of equal duration: only ops tell."""
    plan = plain(n)
    mark(plan, np.arange(n) % 6 == 5, 1, ratio=1.0, ops="other")
    return plan


def change_by_ops(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """Other ops from some step on, at the same duration."""
    plan = plain(n)
    mark(plan, slice(int(n * rng.uniform(0.3, 0.7)), n), 1, ratio=1.0, ops="other")
    return plan


def checkpoints(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """Single long steps on a schedule."""
    plan = plain(n)
    period = int(rng.integers(18, max(19, min(n // 5, 1000))))
    mark(plan, np.arange(n) % period == period - 1, 1, ratio=rng.uniform(5, 12), ops="save")
    return plan


def recompile(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """First step compiles; a change of shape compiles again and leaves another level."""
    plan = plain(n)
    first = int(n * rng.uniform(0.3, 0.7))
    mark(plan, slice(first, n), 1, ratio=level_ratio(rng, noise, n - first))
    mark(plan, np.array([0, first]), 2, ratio=rng.uniform(30, 80), ops="compile")
    plan.no_outlier = np.array([0, first])
    return plan


def input_stall(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """A stretch in which most of a step waits for data."""
    plan = plain(n)
    first, length = int(n * rng.uniform(0.2, 0.6)), int(n * rng.uniform(0.1, 0.3))
    share = rng.uniform(0.5, 0.75)
    mark(plan, slice(first, first + length), 1, ratio=1 / (1 - share))
    plan.input_share[first : first + length] = share
    return plan


def everything(rng: np.random.Generator, n: int, noise: float) -> Plan:
    """Compile, train, evaluation blocks, checkpoints, an input stall."""
    plan = plain(n)
    period = max(n // int(rng.integers(8, 14)), 20)
    length = max(period // 8, 2)
    at = np.arange(n)
    first, size = int(n * rng.uniform(0.3, 0.6)), int(n * 0.15)
    mark(plan, slice(first, first + size), 2, ratio=2.5)
    plan.input_share[first : first + size] = 0.6
    is_eval = at % period >= period - length
    mark(plan, is_eval, 1, ratio=rng.uniform(0.3, 0.5), ops="eval")
    plan.input_share[is_eval] = 0.03
    mark(plan, at % period == period - length - 1, 3, ratio=rng.uniform(6, 10), ops="save")
    mark(plan, np.array([0]), 4, ratio=rng.uniform(40, 80), ops="compile")
    plan.no_outlier = np.array([0])
    return plan


@dataclass(frozen=True)
class Scenario:
    """A plan and the least that makes it visible."""

    plan: Callable[[np.random.Generator, int, float], Plan]
    least_n: int = 100
    least_captured: int = 0
    all_captured: bool = False
    spread_windows: bool = False


SCENARIOS = {
    "steady": Scenario(steady),
    "slower": Scenario(slower),
    "slower for good": Scenario(slower_for_good),
    "eval blocks": Scenario(eval_blocks),
    "eval single": Scenario(eval_single),
    "eval same time": Scenario(eval_same_time, all_captured=True),
    "drift between levels": Scenario(drift_between, least_n=1000),
    "drift end to end": Scenario(drift_whole, least_n=1000),
    "comes back": Scenario(comes_back, least_n=200),
    "alternation": Scenario(alternation),
    "alternation later": Scenario(alternation_part),
    "alternation by ops": Scenario(alternation_by_ops, least_captured=40),
    "change by ops": Scenario(change_by_ops, least_captured=100),
    "checkpoints": Scenario(checkpoints),
    "recompile": Scenario(recompile),
    "input stall": Scenario(input_stall),
    "everything": Scenario(everything, least_n=400),
}


def visible(scenario: Scenario, n: int, fraction: float) -> bool:
    """Whether the tables can hold what the scenario asks for."""
    captured = n if fraction >= 1 else int(n * fraction)
    if scenario.all_captured and fraction < 1:
        return False
    return n >= scenario.least_n and captured >= scenario.least_captured


def generate(name: str, seed: int, *, n: int, noise: float, outliers: float, fraction: float) -> GeneratedRun:
    """One run of a scenario; noise is normal for even seeds and log-normal for odd ones."""
    rng = np.random.default_rng(
        [seed, n, int(noise * 1000), int(fraction * 1000), int(outliers * 1000), list(SCENARIOS).index(name)]
    )
    plan = SCENARIOS[name].plan(rng, n, noise)
    z = rng.standard_normal(n)
    factor = np.maximum(1 + noise * z, 0.1) if seed % 2 == 0 else np.exp(noise * z - noise * noise / 2)
    dur = plan.mean * factor
    odd = rng.random(n) < outliers
    odd[plan.no_outlier] = odd[0] = False
    dur[odd] *= np.exp(rng.uniform(*np.log(OUTLIER_RANGE), int(odd.sum())))
    dur_ps = np.maximum((dur * STEP_PS).astype(np.int64), 1)
    wait = np.clip(plan.input_share * np.exp(0.1 * rng.standard_normal(n)), 0, 0.95)
    steps = pa.table(
        {"step": np.arange(n), "dur_ps": dur_ps, "input_ps": (dur_ps * wait).astype(np.int64),
         "start_ps": np.cumsum(dur_ps) - dur_ps}
    )  # fmt: skip
    captured = capture(rng, plan.truth, fraction)
    ops = op_table(rng, plan, dur_ps, captured, noise)
    return GeneratedRun(steps, ops, plan.truth, plan, noise, outliers, seed % 2 == 1, captured)


def capture(rng: np.random.Generator, truth: np.ndarray, fraction: float) -> np.ndarray:
    """Captured steps: random windows of five, and one by choice after each change seen for the first time."""
    n = len(truth)
    if fraction >= 1:
        return np.arange(n)
    n_windows = max(1, round(n * fraction / WINDOW))
    starts = [rng.choice(max(n - WINDOW, 1), min(n_windows, n - WINDOW), replace=False)]
    starts.append(np.unique(truth, return_index=True)[1] + 1)
    captured = np.unique(np.concatenate(starts)[:, None] + np.arange(WINDOW))
    return captured[captured < n]


def op_table(rng: np.random.Generator, plan: Plan, dur_ps: np.ndarray, captured: np.ndarray, noise: float) -> pa.Table:
    """Rows of the captured steps: counts exact but for a busy-wait op of little time, times as noisy as the steps."""
    parts = []
    for kind in np.unique(plan.ops[captured].astype(str)):
        rows = captured[plan.ops[captured] == kind]
        work_ps = dur_ps[rows] * (1 - plan.input_share[rows]) * 0.9
        for op, (count, share) in {**OPS[kind], "wait": (0, 0.01)}.items():
            counts = np.full(len(rows), count) if count else rng.integers(1, 4, len(rows))
            times = work_ps * share * np.exp(noise * rng.standard_normal(len(rows)))
            parts.append((rows, op, counts, times.astype(np.int64)))
    step = np.concatenate([p[0] for p in parts])
    order = np.argsort(step, kind="stable")
    names = [p[1] for p in parts]
    codes = np.repeat(np.arange(len(parts), dtype=np.int32), [len(p[0]) for p in parts])[order]
    uniq = sorted(set(names))
    lookup = np.array([uniq.index(name) for name in names], np.int32)
    return pa.table(
        {"step": step[order], "op": pa.DictionaryArray.from_arrays(lookup[codes], uniq),
         "count": np.concatenate([p[2] for p in parts])[order],
         "self_ps": np.concatenate([p[3] for p in parts])[order]}
    )  # fmt: skip
