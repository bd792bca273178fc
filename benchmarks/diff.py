"""How often `phasepoint diff` is right: recordings of real jobs, compared in random pairs.

python benchmarks/diff.py --job jax --recordings 10 --pinned [--keep FOLDER]

Three variants are recorded in turns: the job as it is, with one layer given 5 % more to do, and with the same layer
given so much that the step takes about 5 % longer. Pairs of the first are one job recorded twice; a pair is *right*
where nothing is said to have changed, or where the planted layer, or one inside it, is named. Whether other places are
named as well is counted apart, and so is the gate `--fail-over 3%`.
"""

import argparse
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from diff_jobs import JOBS, PLANTED
from phasepoint.sources.ingest.convert import convert_windows
from phasepoint.stack.diff.diff import compare_samples, read_compared
from phasepoint.stack.diff.result import WITHIN_NOISE, RunDiff
from phasepoint.stack.diff.step_samples import StepSamples
from phasepoint.store import open_run

VARIANTS = {"same": 0, "layer": 32, "step": 320}
"""Columns more than 640 that the planted layer has: 5 % and 50 %."""

LIMIT_RATIO = 0.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", choices=JOBS, default="jax")
    parser.add_argument("--recordings", type=int, default=10, help="of each variant")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--pinned", action="store_true", help="each recording on one core")
    parser.add_argument("--keep", help="folder whose recordings are used again, and added to")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(args.keep or scratch)
        started = time.perf_counter()
        recordings = record_all(folder, args)
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}"
        )
        cores = "one core" if args.pinned else "all cores"
        print(f"job {args.job}, {args.recordings} recordings of {args.steps} steps each, {cores}")
        print(f"recorded in {time.perf_counter() - started:.0f} s")
        print_table(recordings, args.pairs)


def record_all(folder: Path, args: argparse.Namespace) -> dict[str, list[StepSamples]]:
    """The recordings of each variant; those that the folder holds are not recorded again."""
    found: dict[str, list[StepSamples]] = {name: [] for name in VARIANTS}
    for number in range(args.recordings):
        for name, extra in VARIANTS.items():
            path = folder / f"{args.job}-{name}-{number}"
            if not path.exists():
                record_one(path, args, extra)
            convert_windows(path)
            found[name].append(read_compared([open_run(str(path))])[0])
    return found


def record_one(path: Path, args: argparse.Namespace, extra: int) -> None:
    words = [str(Path(__file__).with_name("diff_jobs.py")), args.job, str(path), str(args.steps), str(extra)]
    cores = {max(os.sched_getaffinity(0))} if args.pinned else os.sched_getaffinity(0)
    whole = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # inherited by the job
    try:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    finally:
        os.sched_setaffinity(0, whole)


def print_table(recordings: dict[str, list[StepSamples]], n_pairs: int) -> None:
    draw = random.Random(0)
    base = recordings["same"]
    print(
        f"{'pair':18} {'pairs':>6} {'right':>6} {'others named':>13} {'over 3 %':>9}   planted change, median (5–95 %)"
    )
    for name, runs in recordings.items():
        same = name == "same"
        pairs = [(a, b) for a in base for b in runs if a is not b]
        diffs = [compare_samples([a], [b]) for a, b in draw.sample(pairs, min(n_pairs, len(pairs)))]
        right = sum(diff.verdict == WITHIN_NOISE if same else bool(planted(diff)) for diff in diffs)
        others = sum(len(diff.named) > len(planted(diff)) for diff in diffs)
        over = sum((diff.grown_ratio or 0.0) > LIMIT_RATIO for diff in diffs)
        title = {"same": "one job twice", "layer": "layer 5 % larger", "step": "step 5 % longer"}[name]
        print(f"{title:18} {len(diffs):6} {right:6} {others:13} {over:9}   {'–' if same else sizes(diffs)}")
    print(f"usual step, base, ms: {' '.join(f'{usual_ms(one):.2f}' for one in base)}")


def planted(diff: RunDiff) -> list[str]:
    """Named places that are the planted layer or lie inside it."""
    return [row.name for row in diff.named if f"/{PLANTED}" in f"/{row.name}"]


def sizes(diffs: list[RunDiff]) -> str:
    """The planted layer's own change, by pair."""
    found = [row.own_ratio for diff in diffs for row in diff.level("layer") if row.name.rpartition("/")[2] == PLANTED]
    ranked = sorted(ratio for ratio in found if ratio is not None)
    if not ranked:
        return "no such layer recorded"
    low, middle, high = (ranked[min(int(q * len(ranked)), len(ranked) - 1)] for q in (0.05, 0.5, 0.95))
    return f"{middle:+.1%} ({low:+.1%} to {high:+.1%})"


def usual_ms(samples: StepSamples) -> float:
    ranked = sorted(samples.clock_ps.tolist())
    kept = ranked[len(ranked) // 10 : len(ranked) // 2] or ranked
    return sum(kept) / len(kept) / 1e9


if __name__ == "__main__":
    main()
