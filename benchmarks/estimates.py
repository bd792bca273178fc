"""Coverage and error of whole-run estimates: sub-sampled replays of runs that were captured in full.

Every replay takes a fully captured real run, pretends that only some windows were captured, finds the phases and
estimates the totals through the public functions, and holds them against the truth: the sum over all captured steps.
The windows are 5 steps each, opened with one chance at every step boundary, so that a share of the steps is captured;
or they are those that the recorder's own planner opens under a budget, whose chances change with what windows cost and
of which some are opened by choice.

    python benchmarks/estimates.py --record runs/estimates      # records a JAX and a PyTorch job, then replays them
    python benchmarks/estimates.py --run runs/a --run runs/b    # replays runs recorded with budget=None
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.units import PS_PER_MS
from phasepoint.recorder.assembly import PRIVATE_PRIOR
from phasepoint.recorder.clock.cost import CostAccount
from phasepoint.recorder.windows.budget import BudgetController, WindowCost
from phasepoint.recorder.windows.planner import Situation, WindowPlanner

WINDOW_STEPS = 5
FRACTIONS = (0.005, 0.01, 0.05)
BUDGETS = (0.01, 0.05)
WINDOW_PS, WINDOW_SPREAD = 20 * PS_PER_MS, 1 / 3
"""What a window costs where the planner opens it, and how much that varies: as the small windows of the two jobs."""
LEAST_SHARE = 0.001
"""Parts below 0.1 % of the run's time are left out of the coverage: they are listed with their error."""


@dataclass(frozen=True)
class Recorded:
    """A run captured in full, cut down to its captured steps."""

    name: str
    steps: pa.Table
    breakdowns: pa.Table
    ops: pa.Table
    truth_ps: dict[str, int]

    @property
    def total_ps(self) -> int:
        return sum(self.truth_ps.values())


@dataclass
class Score:
    """Replays of one run at one fraction, or under one budget, per part."""

    run: str
    fraction: float
    planned: bool = False
    replays: int = 0
    seconds: float = 0.0
    captured: list[float] = field(default_factory=list)
    covered: dict[str, int] = field(default_factory=dict)
    errors: dict[str, list[float]] = field(default_factory=dict)
    widths: dict[str, list[float]] = field(default_factory=dict)


def load(path: str) -> Recorded:
    """A recorded run, converted if need be, with its captured steps alone."""
    from phasepoint.estimates.estimates import estimate_totals
    from phasepoint.sources.ingest.convert import convert_windows
    from phasepoint.store import open_run

    convert_windows(path)
    run = open_run(path)
    steps, breakdowns, ops = (run.table(name) for name in ("steps", "breakdowns", "ops"))
    seen = pc.is_in(steps.column("step"), value_set=pc.unique(breakdowns.column("step")))
    steps = steps.filter(seen).combine_chunks()
    breakdowns = breakdowns.filter(pc.is_in(breakdowns.column("step"), value_set=steps.column("step")))
    ops = ops.filter(pc.is_in(ops.column("step"), value_set=steps.column("step")))
    full = estimate_totals(steps, run.table("windows"), breakdowns, np.zeros(steps.num_rows, np.int64))
    if not full.captured.all():
        raise SystemExit(f"{path}: not captured in full; record it with budget=None")
    truth = {part.name: part.total_ps for part in full.categories.parts}
    return Recorded(Path(path).name, steps, breakdowns, ops, truth)


def draw_windows(n_steps: int, fraction: float, rng: np.random.Generator) -> "Windows":
    """Random windows: at every boundary outside a window, one opens with one chance."""
    chance = fraction / (WINDOW_STEPS * (1 - fraction) + fraction)
    starts, at = [], int(rng.geometric(chance)) - 1
    while at + WINDOW_STEPS <= n_steps:
        starts.append(at)
        at += WINDOW_STEPS + int(rng.geometric(chance)) - 1
    n = len(starts)
    return Windows(np.array(starts, np.int64), np.full(n, WINDOW_STEPS), np.full(n, chance))


@dataclass(frozen=True)
class Windows:
    """Windows of a run `[n]`: position of the first step, how many steps, and the chance with which each was opened."""

    start: np.ndarray
    length: np.ndarray
    chance: np.ndarray


def plan_windows(run: Recorded, budget: float, seed: int) -> Windows:
    """The windows that the recorder's planner opens in this run; those by choice have no chance (NaN)."""
    account = CostAccount()
    account.spend("entry", 200 * PS_PER_MS)
    controller = BudgetController(budget, account, PRIVATE_PRIOR, window_steps=WINDOW_STEPS)
    planner, rng = WindowPlanner(controller, seed=seed), np.random.default_rng(seed)
    dur_ps = run.steps.column("dur_ps").to_numpy()
    ends_ps, n = np.cumsum(dur_ps), len(dur_ps)
    found, at = [], 0
    while (at := max(at, planner.next_look)) < n:
        elapsed_ps = int(ends_ps[at - 1]) if at else 0
        usual_ps = int(np.median(dur_ps[max(at - 15, 0) : at])) if at else None
        opening = planner.look(Situation(at, elapsed_ps, -1, usual_ps, usual_ps, 0.0005))
        if opening is None or opening.plan is None or opening.plan.is_stretch:
            at += 1
            continue
        limit_ps = opening.plan.limit_ps or np.inf
        held_ps = np.cumsum(dur_ps[at : at + WINDOW_STEPS])
        length = max(int((held_ps <= limit_ps).sum()), 1)
        whole_ps = int(WINDOW_PS * np.exp(rng.normal(0, WINDOW_SPREAD)) * length / WINDOW_STEPS)
        cost, by_choice = WindowCost(0, 0, whole_ps, 0), opening.probability is None
        account.spend("stop", cost.stop_ps)
        account.count_window()
        learnt = {"dur_ps": int(held_ps[length - 1]), "size_bytes": 100_000, "with_programs": opening.with_programs}
        controller.learn(cost, **learnt, by_choice=by_choice)
        planner.captured(opening, elapsed_ps, kind=-1, dur_ps=usual_ps)
        found.append((at, length, np.nan if by_choice else opening.probability))
        at += length
    start, length, chance = np.array(found, np.float64).reshape(-1, 3).T
    return Windows(start.astype(np.int64), length.astype(np.int64), chance)


def sub_sample(run: Recorded, chosen: Windows) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Windows, breakdowns and ops as a recorder would have left them that opened these windows."""
    step = run.steps.column("step").to_numpy()
    window_of = np.full(int(step.max()) + 1, -1)
    for window, (start, length) in enumerate(zip(chosen.start.tolist(), chosen.length.tolist(), strict=True)):
        window_of[step[start : start + length]] = window
    tables = []
    for table in (run.breakdowns, run.ops):
        window = window_of[table.column("step").to_numpy()]
        rows = pa.array(window >= 0)
        kept = table.filter(rows)
        index = kept.column_names.index("window")
        tables.append(kept.set_column(index, "window", pa.array(window[window >= 0])))
    n = len(chosen.start)
    zeros, chance = np.zeros(n, np.int64), pa.array(chosen.chance, from_pandas=True)
    windows = pa.table({"host": zeros, "attempt": zeros, "window": np.arange(n), "probability": chance})
    return windows, tables[0], tables[1]


def replay(run: Recorded, fraction: float, replays: int, seed: int, *, planned: bool = False) -> Score:
    """Sub-sample a run many times and score the estimates; `planned`: the fraction is a budget of the planner's."""
    from phasepoint.estimates.estimates import estimate_totals
    from phasepoint.phases import detect_phases

    score, rng, began = Score(run.name, fraction, planned), np.random.default_rng(seed), time.perf_counter()
    for number in range(replays):
        drawn = draw_windows(run.steps.num_rows, fraction, rng) if not planned else None
        chosen = drawn or plan_windows(run, fraction, seed=1000 * seed + number)
        windows, breakdowns, ops = sub_sample(run, chosen)
        labels = detect_phases(run.steps, ops).labels
        found = estimate_totals(run.steps, windows, breakdowns, labels)
        score.replays += 1
        score.captured.append(float(found.captured.mean()))
        for part in found.categories.parts:
            truth_ps = run.truth_ps[part.name]
            score.covered.setdefault(part.name, 0)
            score.covered[part.name] += part.low_ps <= truth_ps <= part.high_ps
            score.errors.setdefault(part.name, []).append((part.total_ps - truth_ps) / run.total_ps)
            score.widths.setdefault(part.name, []).append((part.high_ps - part.low_ps) / 2 / run.total_ps)
    score.seconds = time.perf_counter() - began
    return score


def binomial_band(successes: int, n: int) -> tuple[float, float]:
    """95 % interval of a proportion (Wilson, "Probable Inference", 1927)."""
    z, p = 1.96, successes / n
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return float((middle - half) / (1 + z * z / n)), float((middle + half) / (1 + z * z / n))


def print_score(score: Score, run: Recorded) -> list[dict[str, object]]:
    """One block of the table."""
    print(
        f"\n{score.run}{f', budget {score.fraction:.0%}' if score.planned else ''}: {run.steps.num_rows:,} steps, "
        f"{run.total_ps / 1e12:.1f} s; {score.replays} replays with "
        f"{100 * np.mean(score.captured):.2f} % of the steps captured "
        f"({score.seconds / score.replays * 1e3:.0f} ms each)"
    )
    print(f"  {'part':14} {'share':>7} {'covered':>8} {'band':>15} {'error p50':>10} {'p95':>7} {'max':>7} {'half':>7}")
    rows = []
    for part, errors in score.errors.items():
        share = run.truth_ps[part] / run.total_ps
        size = np.abs(errors)
        if not share and not size.any():
            continue
        low, high = binomial_band(score.covered[part], score.replays)
        row = {
            "run": score.run,
            "fraction": score.fraction,
            "planned": score.planned,
            "part": part,
            "share": share,
            "replays": score.replays,
            "covered": score.covered[part] / score.replays,
            "band": (low, high),
            "exact": bool(not size.any() and not np.any(score.widths[part])),
            "error_p50": float(np.median(size)),
            "error_p95": float(np.quantile(size, 0.95)),
            "error_max": float(size.max()),
            "relative_error_p95": float(np.quantile(size, 0.95) / share) if share else None,
            "bias": float(np.mean(errors)),
            "half_width": float(np.median(score.widths[part])),
        }
        rows.append(row)
        covered = "exact" if row["exact"] else f"{100 * row['covered']:.1f} %"
        print(
            f"  {part:14} {100 * share:6.2f}% {covered:>8} {100 * low:6.1f}–{100 * high:5.1f} % "
            f"{100 * row['error_p50']:9.3f}% {100 * row['error_p95']:6.3f}% {100 * row['error_max']:6.3f}% "
            f"{100 * row['half_width']:6.3f}%"
        )
    return rows


def print_verdict(rows: list[dict[str, object]]) -> None:
    """Pooled coverage and the worst error per fraction.

    `unattributed` is left out: what the profiler missed at the edge of a window says something of windows, not of the
    run.
    """
    print("\npooled over runs and parts of at least 0.1 % of the time, exact ones and unattributed left out:")
    for planned, fraction in sorted({(row["planned"], row["fraction"]) for row in rows}):
        told = [r for r in rows if r["part"] != "unattributed" and r["share"] >= LEAST_SHARE and not r["exact"]]
        mine = [r for r in told if (r["planned"], r["fraction"]) == (planned, fraction)]
        if not mine:
            continue
        covered = sum(r["covered"] * r["replays"] for r in mine) / sum(r["replays"] for r in mine)
        worst = max(mine, key=lambda r: r["error_p95"])
        print(
            f"  {100 * fraction:.1f} % {'budget' if planned else 'of the steps'}: covered {100 * covered:.1f} %; "
            "largest 95th percentile of the "
            f"error {100 * worst['error_p95']:.2f} % of the run's time ({worst['run']}, {worst['part']})"
        )


def record_jobs(folder: str, seconds: float) -> list[str]:
    """Record the two jobs with continuous capture, each in a process of its own."""
    paths = []
    for job in ("jax", "torch"):
        path = str(Path(folder) / f"full-{job}")
        if not Path(path).exists():
            command = [sys.executable, __file__, "--job", job, "--out", path, "--seconds", str(seconds)]
            subprocess.run(command, check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})
        paths.append(path)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="append", default=[], help="a run recorded with budget=None; may be repeated")
    parser.add_argument("--record", metavar="FOLDER", help="record a JAX and a PyTorch job there first")
    parser.add_argument("--seconds", type=float, default=40, help="length of each recorded job")
    parser.add_argument("--replays", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="20 replays, jobs of 10 s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--job", choices=("jax", "torch"), help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        from estimates_jobs import JOBS

        JOBS[args.job](args.out, args.seconds)
        return
    replays, seconds = (20, 10) if args.quick else (args.replays, args.seconds)
    paths = args.run + (record_jobs(args.record, seconds) if args.record else [])
    if not paths:
        parser.error("give --run PATH or --record FOLDER")
    print(f"{datetime.date.today()}  {platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    rows: list[dict[str, object]] = []
    for path in paths:
        run = load(path)
        for fraction in FRACTIONS:
            rows += print_score(replay(run, fraction, replays, args.seed), run)
        for budget in BUDGETS:
            rows += print_score(replay(run, budget, replays, args.seed, planned=True), run)
    print_verdict(rows)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
