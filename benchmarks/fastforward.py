"""A run's time and what it went into from a few of its steps: `phasepoint replay compact` against what was recorded.

Records real jobs in JAX and PyTorch with every step captured, chooses steps many times over (a seed each) at several
budgets, and holds the estimates against all steps; side by side with other ways to use as many steps. Two more jobs are
recorded with the default budget, as users do; of those, time alone is known of every step.

    python benchmarks/fastforward.py --record runs/fastforward          # all of it: 8 + 2 jobs, 200 seeds
    python benchmarks/fastforward.py --record runs/quick --quick        # to try it
    python benchmarks/fastforward.py --run runs/a --run runs/b          # runs that were recorded before
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from compact_jobs import JOBS
from fastforward_peers import DIMENSIONS, PEERS, Parts

BUDGETS = (0.01, 0.02, 0.05)
FINER = (0.0025, 0.005, 0.01, 0.02, 0.05)
"""Budgets at which the compact is looked for that is as good as uniform steps at 5 %."""
LARGE = 0.05
"""A category counts by its own time from 5 % of the run's on, else by the run's."""
LEAST = 0.001
"""Categories below 0.1 % of the run are left out."""
COMPACT = "compact"
COMPILED = 0.1
"""A step of which a tenth went into compilation is one that compiled."""
SAMPLED_JOBS = ("jax-recurrent", "torch-transformer")
RECORDER_BUDGET = "0.01"


@dataclass
class Score:
    """One run, one budget, one way to choose steps.

    Attributes:
        errors: of the run's time, as a ratio of it, one for each seed.
        covered: whether the interval held, where there is one.
        parts: category → errors as a ratio of the run's time.
        parts_covered: category → whether the interval held.
    """

    run: str
    steps: int
    budget: float
    method: str
    errors: list[float] = field(default_factory=list)
    covered: list[bool] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)
    parts_covered: dict[str, list[bool]] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean absolute error of time."""
        return float(np.abs(self.errors).mean())

    def of_category(self, name: str) -> float:
        """Mean absolute error of a category, of itself where it is large, else of the run."""
        return float(np.abs(self.parts[name]).mean()) / (self.shares[name] if self.shares[name] >= LARGE else 1)


def load(path: str) -> Any:
    """The steps of a run, and of one captured in nearly all steps those that were captured, alone."""
    from phasepoint.replay.compact.compact import read_host_steps
    from phasepoint.sources.ingest.convert import convert_windows
    from phasepoint.store import open_run
    from phasepoint.summary.analysis import analyse_run

    convert_windows(path)
    analysis = analyse_run(open_run(path))
    steps = read_host_steps(analysis)
    return analysis, steps


def op_vectors(analysis: Any, steps: Any) -> np.ndarray:
    """Shares of the ops' self time in every step, projected at random as SimPoint does."""
    from phasepoint.core.encoding import encode_column

    ops = analysis.tables["ops"]
    place = np.full(analysis.clock.n_steps, -1)
    place[steps.row] = np.arange(len(steps.row))
    row = analysis.keys.rows_of(ops)
    at = np.where(row >= 0, place[row], -1)
    codes, names = encode_column(ops.column("op"))
    known = (at >= 0) & (codes >= 0)
    vectors = np.zeros((len(steps.row), max(len(names), 1)))
    np.add.at(vectors, (at[known], codes[known]), ops.column("self_ps").to_numpy()[known])
    vectors /= np.maximum(vectors.sum(axis=1, keepdims=True), 1)
    projection = np.random.default_rng(0).uniform(-1, 1, (vectors.shape[1], DIMENSIONS))
    return vectors @ projection


def score_compact(name: str, steps: Any, budget: float, seeds: int) -> Score:
    """Choose and estimate with every seed."""
    from phasepoint.estimates.captured import PARTS
    from phasepoint.replay.compact.estimate import estimate_run

    n, truth_ps = len(steps.row), int(steps.times.dur_ps.sum())
    score, whole = Score(name, n, budget, COMPACT), len(steps.captured.row) == n
    parts = dict(zip(PARTS, steps.captured.parts_ps.sum(axis=0).tolist(), strict=True)) if whole else {}
    score.shares = {part: time_ps / truth_ps for part, time_ps in parts.items() if time_ps >= LEAST * truth_ps}
    sample = max(int(budget * n + 1e-9), 1)
    plan = steps.plan(sample, np.random.default_rng(0))
    for seed in range(seeds):
        found = estimate_run(steps.seen(plan.draw(np.random.default_rng(seed))))
        total = found.total
        score.errors.append(total.estimate_ps / truth_ps - 1)
        score.covered.append(total.low_ps <= truth_ps <= (total.high_ps or 1 << 63))
        for part in score.shares:
            one = found.parts[part]
            score.parts.setdefault(part, []).append((one.estimate_ps - parts[part]) / truth_ps)
            score.parts_covered.setdefault(part, []).append(one.low_ps <= parts[part] <= (one.high_ps or 1 << 63))
    return score


def score_peer(method: str, ours: Score, run: Parts, apart: np.ndarray, seeds: int) -> Score:
    """The same with another way to choose; `apart` are the parts of the steps that compiled, together."""
    from phasepoint.estimates.captured import PARTS

    estimate, most = PEERS[method]
    score = Score(ours.run, ours.steps, ours.budget, method, shares=ours.shares)
    truth = run.parts_ps.sum(axis=0) + apart
    for seed in range(min(seeds, most or seeds)):
        sample = max(int(ours.budget * ours.steps + 1e-9), 1)
        found = estimate(run, sample, np.random.default_rng(seed)) + apart
        score.errors.append(float(found.sum() / truth.sum() - 1))
        for part in ours.shares:
            at = PARTS.index(part)
            score.parts.setdefault(part, []).append(float((found[at] - truth[at]) / truth.sum()))
    return score


def score_run(path: str, seeds: int) -> list[Score]:
    """All scores of one run; peers and categories only where every step was captured."""
    analysis, steps = load(path)
    name, whole = Path(path).name, len(steps.captured.row) == len(steps.row)
    scores = [score_compact(name, steps, budget, seeds) for budget in sorted({*BUDGETS, *(FINER if whole else ())})]
    if whole:
        parts, vectors = steps.captured.parts_ps.astype(np.float64), op_vectors(analysis, steps)
        compiled = steps.times.compile_ps > COMPILED * steps.times.dur_ps
        run, apart = Parts(parts[~compiled], vectors[~compiled]), parts[compiled].sum(axis=0)
        ours = [score for score in scores if score.budget in BUDGETS]
        scores += [score_peer(method, score, run, apart, seeds) for score in ours for method in PEERS]
    return scores


def print_compact(scores: list[Score]) -> None:
    """One row for each run and budget."""
    print("\n| run | steps | used | error of time, mean / worst | covered | of categories, worst mean | covered |")
    print("|---|---|---|---|---|---|---|")
    for score in scores:
        if score.method != COMPACT or score.budget not in BUDGETS:
            continue
        worst = max(score.parts, key=score.of_category, default=None)
        hit = [covered for name, found in score.parts_covered.items() for covered in found if score.shares[name] < 1]
        categories = "–" if worst is None else f"{_percent(score.of_category(worst))} ({worst})"
        print(
            f"| {score.run} | {score.steps:,} | {100 * score.budget:g} % | {_percent(score.mean)} / "
            f"{_percent(float(np.abs(score.errors).max()))} | {100 * np.mean(score.covered):.1f} % | {categories} | "
            f"{f'{100 * np.mean(hit):.1f} %' if hit else '–'} |"
        )


def print_pooled(scores: list[Score]) -> None:
    """All runs together, each method in a row."""
    print(
        "\n| steps chosen by | used | error of time, mean / worst | categories ≥ 5 %, mean | covered | steps to equal |"
    )
    print("|---|---|---|---|---|---|")
    whole = {score.run for score in scores if score.method != COMPACT}
    for budget in BUDGETS:
        for method in (COMPACT, *PEERS):
            mine = [s for s in scores if s.method == method and s.budget == budget and s.run in whole]
            if not mine:
                continue
            errors = np.abs(np.concatenate([score.errors for score in mine]))
            parts = [score.of_category(name) for score in mine for name in score.parts if score.shares[name] >= LARGE]
            covered = [hit for score in mine for hit in score.covered]
            sizes = f"{_percent(float(errors.mean()))} / {_percent(float(errors.max()))}"
            print(
                f"| {method} | {100 * budget:g} % | {sizes} | "
                f"{_percent(float(np.mean(parts)))} | {f'{100 * np.mean(covered):.1f} %' if covered else '–'} | "
                f"{_equal(method, budget, scores)} |"
            )


def _equal(method: str, budget: float, scores: list[Score]) -> str:
    """How many times the steps of the compact that is as good the method took: the median over runs."""
    if method == COMPACT:
        return "1"
    ratios = []
    for run in {score.run for score in scores if score.method == method}:
        goal = next(s.mean for s in scores if (s.run, s.method, s.budget) == (run, method, budget))
        ours = [s for s in scores if (s.run, s.method) == (run, COMPACT)]
        enough = [s.budget for s in ours if s.mean <= goal]
        ratios.append(budget / min(enough) if enough else 0.0)
    middle = float(np.median(ratios))
    most = "≥ " if middle == budget / min(FINER) else ""
    return f"{most}{middle:.2g} ×" if middle else f"< {budget / max(FINER):.2g} ×"


def print_verdict(scores: list[Score]) -> None:
    """What the project promises, and whether it held."""
    mine = [s for s in scores if s.method == COMPACT and s.budget == max(BUDGETS)]
    errors = np.abs(np.concatenate([score.errors for score in mine]))
    covered = [hit for score in mine for hit in score.covered]
    large = [score.of_category(name) for score in mine for name in score.parts if score.shares[name] >= LARGE]
    small = [score.of_category(name) for score in mine for name in score.parts if score.shares[name] < LARGE]
    print(f"\nat {100 * max(BUDGETS):g} % of the steps, {len(mine)} runs, {len(errors):,} choices:")
    sizes = f"{_percent(float(errors.mean()))} (≤ 1 %), worst {_percent(float(errors.max()))} (≤ 3 %)"
    print(f"  time: mean absolute error {sizes}")
    print(f"  the 95 % interval of time covered in {100 * np.mean(covered):.1f} % (93–97 %)")
    if large:
        over = sum(error > 0.03 for error in large)
        print(
            f"  categories of ≥ 5 % of the run: mean absolute error {_percent(float(np.mean(large)))} of the category, "
            f"{over} of {len(large)} above 3 %, the worst {_percent(max(large))}"
        )
    if small:
        print(f"  smaller ones: {_percent(float(np.mean(small)))} of the run, the worst {_percent(max(small))}")


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"


def record_jobs(folder: str, seconds: float, jobs: Iterable[str]) -> list[str]:
    """Record the jobs one after another, each in a process of its own; what is there already is kept."""
    paths = []
    script, environ = str(Path(__file__).with_name("compact_jobs.py")), {**os.environ, "JAX_PLATFORMS": "cpu"}
    plans = [(job, (job, seconds)) for job in jobs]
    plans += [(f"sampled-{job}", (job, 2 * seconds, RECORDER_BUDGET)) for job in SAMPLED_JOBS]
    for name, (job, length, *budget) in plans:
        path = Path(folder) / name
        if not (path / "run.json").exists():
            shutil.rmtree(path, ignore_errors=True)
            print(f"recording {name}", file=sys.stderr)
            command = [sys.executable, script, job, str(path), str(length), *budget]
            subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL)
        paths.append(str(path))
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="append", default=[], help="a run recorded before; may be repeated")
    parser.add_argument("--record", metavar="FOLDER", help="record the jobs there first")
    parser.add_argument("--seconds", type=float, default=20, help="length of each job")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="two jobs of 6 s, 20 seeds")
    parser.add_argument("--workers", type=int, default=2, help="runs that are scored at the same time")
    parser.add_argument("--json", metavar="PATH")
    args = parser.parse_args()
    seeds, seconds = (20, 6.0) if args.quick else (args.seeds, args.seconds)
    jobs = ("jax-dense", "torch-cnn") if args.quick else JOBS
    paths = args.run + (record_jobs(args.record, seconds, jobs) if args.record else [])
    if not paths:
        parser.error("give --run PATH or --record FOLDER")
    print(f"{datetime.date.today()}  {platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with ProcessPoolExecutor(args.workers) as pool:
        scores = [score for found in pool.map(partial(score_run, seeds=seeds), paths) for score in found]
    print_compact(scores)
    print_pooled(scores)
    print_verdict(scores)
    if args.json:
        Path(args.json).write_text(json.dumps([score.__dict__ for score in scores]))


if __name__ == "__main__":
    main()
