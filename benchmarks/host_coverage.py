"""Do whole-run intervals hold on many hosts, whether their steps vary alike or apart?

    python benchmarks/host_coverage.py                        # 1, 8 and 64 hosts, some ten minutes
    python benchmarks/host_coverage.py --hosts 8 --replays 100

The time of simulated hosts is known in full. What a step's time goes into wanders over the steps: on all hosts alike
(their data do it), on each by itself, or half and half; a few steps last long. The recorder's own schedule chooses the
windows (`RankedPlanner`): at most four hosts capture the same five steps, others each time. The real estimator sees
these windows and the durations alone; its 95 % intervals are held against what is true.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from phasepoint.core.tables import CATEGORIES
from phasepoint.core.units import PS_PER_MS
from phasepoint.estimates.estimates import estimate_totals
from phasepoint.recorder.windows.planner import SETTLED_STEPS
from phasepoint.recorder.windows.ranked import MOST_CAPTURING, draw_number

HOSTS = (1, 8, 64)
ALIKE = (0.0, 0.5, 1.0)
WINDOW_STEPS = 5
STEP_MS = 100
LONG_STEPS = 0.005
"""Share of steps that last three to ten times as long, most of it idle."""


@dataclass(frozen=True)
class Cell:
    """A job.

    Attributes:
        hosts: how many.
        alike: share of the variance that all hosts have in common, 0–1.
        steps: of each host.
        fraction: share of the steps before which a window opens, in some host.
    """

    hosts: int
    alike: float
    steps: int
    fraction: float


@dataclass(frozen=True)
class Job:
    """Durations and parts of every step: `[hosts, steps]`, `[hosts, steps, len(CATEGORIES)]` ps."""

    dur_ps: np.ndarray
    parts_ps: np.ndarray


def make_job(cell: Cell, rng: np.random.Generator) -> Job:
    """A job whose compute, communication and idle shares wander."""
    mixed = [_wander(cell, rng) for _ in range(3)]
    dur = STEP_MS * PS_PER_MS * np.exp(0.1 * mixed[0])
    long = _events(cell, rng)
    work = np.stack([0.6 * np.exp(0.15 * mixed[1]), 0.15 * np.exp(0.3 * mixed[2]), np.full_like(dur, 0.25)], axis=-1)
    parts = np.zeros((*dur.shape, len(CATEGORIES)))
    where = [CATEGORIES.index(name) for name in ("compute", "communication", "idle")]
    parts[..., where] = work / work.sum(axis=-1, keepdims=True) * dur[..., None]
    parts[..., where[2]] += long * dur
    parts_ps = parts.astype(np.int64)
    return Job(parts_ps.sum(axis=-1), parts_ps)


def _wander(cell: Cell, rng: np.random.Generator) -> np.ndarray:
    """`[hosts, steps]`, variance 1: half of it from step to step, half over some ten steps."""
    fast, slow = rng.standard_normal((2, cell.hosts + 1, cell.steps + 20))
    smooth = np.apply_along_axis(np.convolve, 1, slow, np.full(10, 10**-0.5), "same")
    one = ((fast + smooth) / 2**0.5)[:, 10:-10]
    return np.sqrt(cell.alike) * one[-1] + np.sqrt(1 - cell.alike) * one[:-1]


def _events(cell: Cell, rng: np.random.Generator) -> np.ndarray:
    """`[hosts, steps]`, how many times its length a step is longer: the same steps on all hosts, or others."""
    common, own = rng.random(cell.steps) < LONG_STEPS, rng.random((cell.hosts, cell.steps)) < LONG_STEPS
    long = np.where(cell.alike > 0.5, common, own)
    return long * rng.uniform(2, 9, long.shape)


def sample(cell: Cell, job: Job, seed: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Tables steps, windows and breakdowns of a recording of the job."""
    windows, breakdowns, step, numbers = [], [], 0, [0] * cell.hosts
    while step + WINDOW_STEPS <= cell.steps:
        if draw_number(seed, step, 1) >= cell.fraction / WINDOW_STEPS:
            step += 1
            continue
        first = int(draw_number(seed, step, 2) * cell.hosts)
        for k in range(min(MOST_CAPTURING, cell.hosts)):
            host = (first + k) % cell.hosts
            chance = cell.fraction / WINDOW_STEPS * min(1, MOST_CAPTURING / cell.hosts)
            windows.append((host, numbers[host], chance))
            at = np.arange(step, step + WINDOW_STEPS)
            breakdowns.append((host, numbers[host], at, job.parts_ps[host, at]))
            numbers[host] += 1
        step += SETTLED_STEPS if cell.hosts > 1 else WINDOW_STEPS
    return _steps(job), _windows(windows), _breakdowns(breakdowns)


def _steps(job: Job) -> pa.Table:
    hosts, steps = job.dur_ps.shape
    start = np.cumsum(job.dur_ps, axis=1) - job.dur_ps
    host, step = np.repeat(np.arange(hosts), steps), np.tile(np.arange(steps), hosts)
    columns = {"host": host, "attempt": np.zeros_like(host), "step": step}
    return pa.table(columns | {"start_ps": start.ravel(), "dur_ps": job.dur_ps.ravel()})


def _windows(rows: list[tuple[int, int, float]]) -> pa.Table:
    host, window, chance = zip(*rows, strict=True)
    zeros = np.zeros(len(rows), np.int64)
    return pa.table({"host": host, "attempt": zeros, "window": window, "probability": chance})


def _breakdowns(rows: list[tuple[int, int, np.ndarray, np.ndarray]]) -> pa.Table:
    n = len(CATEGORIES)
    columns = {
        "host": np.concatenate([np.full(len(at) * n, host) for host, _, at, _ in rows]),
        "window": np.concatenate([np.full(len(at) * n, window) for _, window, at, _ in rows]),
        "step": np.concatenate([np.repeat(at, n) for _, _, at, _ in rows]),
        "wall_ps": np.concatenate([parts.ravel() for _, _, _, parts in rows]),
    }
    length = len(columns["step"])
    columns |= {"attempt": np.zeros(length, np.int64), "device": ["cpu:0"] * length}
    return pa.table(columns | {"category": list(CATEGORIES) * (length // n)})


def replay(cell: Cell, replays: int, seed: int) -> dict[str, tuple[int, float]]:
    """By category: in how many replays its interval held, and the mean half of it, as a ratio of the truth."""
    held = dict.fromkeys(("compute", "communication", "idle"), 0)
    half = dict.fromkeys(held, 0.0)
    for number in range(replays):
        rng = np.random.default_rng((seed, number))
        job = make_job(cell, rng)
        tables = sample(cell, job, seed=1000 * seed + number)
        labels = np.zeros(tables[0].num_rows, np.int64)
        found = estimate_totals(*tables, labels)
        for part in found.categories.parts:
            if part.name in held:
                truth = int(job.parts_ps[..., CATEGORIES.index(part.name)].sum())
                held[part.name] += part.low_ps <= truth <= part.high_ps
                half[part.name] += (part.high_ps - part.low_ps) / 2 / truth / replays
    return {name: (held[name], half[name]) for name in held}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS)
    parser.add_argument("--alike", type=float, nargs="+", default=ALIKE)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--fraction", type=float, default=0.05, help="share of the steps in some host's window")
    parser.add_argument("--replays", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="PATH")
    args = parser.parse_args()
    print("| hosts | alike | compute | communication | idle | all |\n|---|---|---|---|---|---|")
    rows = []
    for hosts in args.hosts:
        for alike in args.alike if hosts > 1 else (0.0,):
            cell = Cell(hosts, alike, args.steps, args.fraction)
            found = replay(cell, args.replays, args.seed)
            told = [f"{count / args.replays:.1%} (± {half:.1%})" for count, half in found.values()]
            pooled = sum(count for count, _ in found.values()) / args.replays / len(found)
            print(f"| {hosts} | {alike:.0%} | {' | '.join(told)} | {pooled:.1%} |", flush=True)
            rows.append(asdict(cell) | {"held": pooled, "parts": found})
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
