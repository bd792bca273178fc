"""How well phases are found: adjusted Rand index against runs whose truth is known, all methods side by side.

    python benchmarks/phases.py                      accuracy, then time and memory
    python benchmarks/phases.py --quick              a short version of both
    python benchmarks/phases.py --only accuracy      or: speed
    python benchmarks/phases.py --oracle             what could be found at all, see phase_oracle.py
    python benchmarks/phases.py --run RUN --truth truth.json     a recorded run whose phases are known

Truth, from the user's point of view, written down before a method was run:

- A phase is a class of steps that behave alike; when it comes back it is the same phase.
- Levels: the same ops running slower for a stretch (or for good) are a phase of their own; when the speed returns,
  so does the phase.
- A step that one-off trouble makes 3 to 20 × longer (an outlier) is still a step of its phase.
- A checkpoint, or an evaluation of any length, is a phase that recurs, on a schedule.
- Steps in strict turn (five of one kind, one of another) are two phases, step by step.
- A slow drift is a phase of its own, from the step at which times begin to move to the step at which they settle; the
  levels before and after are phases too. A run that drifts from end to end is one phase.
- The first step, where it compiles, is a phase of its own; a step that compiles again belongs to it. A long first step
  is start-up, never an outlier.

Visibility, written down with it: a scenario asks only for what its tables hold.

- A change of level is at least 25 %, and eight standard errors of the mean of its stretch.
- Turns differ by at least 40 %, and by twelve standard errors of the folded run.
- Equal durations and different ops: evaluation blocks only where every step is captured, turns from 40 captured steps
  on, a change for good from 100 on.
- A drift is asked for from 1,000 steps on. A schedule returns at least four times.

Seeds below 4000 were looked at while the method was made, seeds from 4000 on once, before its worst cases were
mended; the table is of seeds from 8000 on, or from `--held-out`, and each seed draws its own ratios, lengths, periods
and places. Noise is normal for even seeds and log-normal for odd ones.

The truth file of `--run` is {"labels": [...]}, one per step in the run's order, or {"segments": [{"first_step": 0,
"last_step": 9, "phase": "train"}, ...]}; steps in no segment are left out of the index.
"""

import argparse
import datetime
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from phase_oracle import oracle_labels
from phase_runs import SCENARIOS, generate, visible
from phasepoint.phases import METHODS

NOISE = (0.01, 0.05, 0.10, 0.20)
FRACTIONS = (0.005, 0.01, 0.05, 1.0)
SLOW_METHOD_STEPS = 1000
"""k-means fits ten models per run and DBSCAN is quadratic in its points: beyond this their grid would take hours."""

HELD_OUT = 8000
AIM = 0.85
"""Index that the worst run ought to reach."""

ORACLE_STEPS = 10_000
"""The oracle's search grows with the square of the run; longer runs have none below 0.85."""


def adjusted_rand(truth, found) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(truth, found))


def grid(quick: bool, seeds: int, first: int):
    """(n, noise, outliers, fraction, seed) of every run; the largest runs on a thinner grid."""
    sizes = (100, 1000) if quick else (100, 1000, 10_000)
    for n, noise, outliers, fraction in itertools.product(sizes, NOISE, (0.0, 0.01), FRACTIONS):
        yield from ((n, noise, outliers, fraction, first + s) for s in range(1 if n > 1000 or quick else seeds))
    if not quick:
        for noise, fraction in itertools.product((0.05, 0.20), (0.005, 0.05)):
            yield (100_000, noise, 0.01, fraction, first)
        yield (1_000_000, 0.10, 0.01, 0.005, first)
        yield (1_000_000, 0.20, 0.01, 0.01, first + 1)


def accuracy(quick: bool, seeds: int, first: int, methods, with_oracle: bool) -> list[dict]:
    from phasepoint.phases import detect_phases

    rows = []
    for name, (n, noise, outliers, fraction, seed) in itertools.product(SCENARIOS, list(grid(quick, seeds, first))):
        if not visible(SCENARIOS[name], n, fraction):
            continue
        run = generate(name, seed, n=n, noise=noise, outliers=outliers, fraction=fraction)
        for method in methods:
            if method in ("kmeans", "dbscan") and (n > SLOW_METHOD_STEPS or seed > first):
                continue
            labels = detect_phases(run.steps, run.ops, method=method).labels
            ari = adjusted_rand(run.truth, labels)
            row = {"scenario": name, "method": method, "n": n, "noise": noise, "outliers": outliers,
                   "fraction": fraction, "seed": seed, "ari": ari}  # fmt: skip
            if with_oracle and method == methods[0] and n <= ORACLE_STEPS and (ari < AIM or n <= 100):
                row["oracle"] = adjusted_rand(run.truth, oracle_labels(name, run))
            rows.append(row)
    return rows


def print_accuracy(rows: list[dict], methods) -> None:
    print(f"{'scenario':22}" + "".join(f"{m + ' median/worst':>24}" for m in methods) + f"{'runs':>7}")
    for name in [*dict.fromkeys(r["scenario"] for r in rows), "all"]:
        line = f"{name:22}"
        for method in methods:
            values = [r["ari"] for r in rows if r["method"] == method and name in (r["scenario"], "all")]
            line += f"{np.median(values):>16.3f} / {min(values):5.2f}" if values else f"{'–':>24}"
        count = sum(r["method"] == methods[0] and name in (r["scenario"], "all") for r in rows)
        print(line + f"{count:>7}")
    ours = [r for r in rows if r["method"] == methods[0]]
    print(f"\n{methods[0]} by length and noise: median / 5th percentile / worst / share of runs at 0.85 or more")
    for n, noise in itertools.product(sorted({r["n"] for r in ours}), NOISE):
        v = np.array([r["ari"] for r in ours if r["n"] == n and r["noise"] == noise])
        if len(v):
            print(f"{n:>9,} steps, {100 * noise:2.0f} % noise: {np.median(v):.3f} / {np.quantile(v, 0.05):.3f} / "
                  f"{v.min():.3f} / {100 * (v >= 0.85).mean():.1f} %  ({len(v)} runs)")  # fmt: skip


def print_oracle(rows: list[dict]) -> None:
    """The runs below the aim, and what the oracle makes of each."""
    asked = [r for r in rows if "oracle" in r]
    below = [r for r in asked if r["ari"] < AIM]
    both = sum(r["oracle"] < AIM for r in below)
    print(f"\nbelow {AIM}: {len(below)} runs; the oracle is below it too in {both} of them")
    short = [r for r in asked if r["n"] <= 100]
    print(f"runs of 100 steps: the oracle is below it in {sum(r['oracle'] < AIM for r in short)} of {len(short)}")
    for r in below:
        print(f"  {r['ari']:6.3f}  oracle {r['oracle']:.3f}  {r['scenario']}, {r['n']:,} steps, "
              f"{100 * r['noise']:.0f} % noise, outliers {r['outliers']}, captured {r['fraction']}, "
              f"seed {r['seed']}")  # fmt: skip


SPEED_CHILD = """
import json, sys, time
sys.path.insert(0, {here!r})
from pathlib import Path
from phase_runs import generate
from phasepoint.phases import detect_phases

def memory_mb(field):
    text = Path("/proc/self/status").read_text()
    return int(text.split(field + ":")[1].split()[0]) / 1024

warm = generate("everything", 1, n=2000, noise=0.1, outliers=0.01, fraction=0.01)
detect_phases(warm.steps, warm.ops, method={method!r})
run = generate({scenario!r}, 1000, n={n}, noise=0.1, outliers=0.01, fraction={fraction})
before = memory_mb("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
times = []
for _ in range({repeats}):
    begin = time.perf_counter()
    result = detect_phases(run.steps, run.ops, method={method!r})
    times.append(time.perf_counter() - begin)
print(json.dumps(dict(seconds=min(times), peak_mb=memory_mb("VmHWM"), before_mb=before, ops_rows=run.ops.num_rows)))
"""
"""The high-water mark is reset after the run is generated (Linux), so the peak is the method's and its tables'."""


def speed(quick: bool) -> list[dict]:
    rows = []
    sizes = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    cases = [("recurrent", "everything", 0.01), ("recurrent", "checkpoints", 0.01), ("recurrent", "alternation", 0.01),
             ("recurrent", "eval blocks", 1.0), ("ols", "everything", 0.01), ("kmeans", "everything", 0.01),
             ("dbscan", "everything", 0.01)]  # fmt: skip
    for (method, scenario, fraction), n in itertools.product(cases, sizes):
        code = SPEED_CHILD.format(here=str(Path(__file__).parent), method=method, scenario=scenario, n=n,
                                  fraction=fraction, repeats=2 if n > 100_000 else 5)  # fmt: skip
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        rows.append(dict(method=method, scenario=scenario, fraction=fraction, n=n, **json.loads(done.stdout)))
    return rows


def print_speed(rows: list[dict]) -> None:
    print(f"\n{'method':10} {'scenario':12} {'captured':>9} {'steps':>10} {'op rows':>10}", end="")
    print(f" {'time':>9} {'before':>9} {'peak':>9}")
    for r in rows:
        print(f"{r['method']:10} {r['scenario']:12} {100 * r['fraction']:>7.1f} % {r['n']:>10,} {r['ops_rows']:>10,} "
              f"{r['seconds']:>7.3f} s {r['before_mb']:>6.0f} MB {r['peak_mb']:>6.0f} MB")  # fmt: skip
    for key in dict.fromkeys((r["method"], r["scenario"]) for r in rows):
        mine = [r for r in rows if (r["method"], r["scenario"]) == key]
        first, last = mine[0], mine[-1]
        ratio = (last["seconds"] / first["seconds"]) / (last["n"] / first["n"])
        exponent = np.log(last["seconds"] / first["seconds"]) / np.log(last["n"] / first["n"])
        print(f"{key[0]}, {key[1]}: {ratio:.2f} × linear from {first['n']:,} to {last['n']:,} steps "
              f"(exponent {exponent:.2f})")  # fmt: skip


def recorded(path: str, truth_path: str, methods) -> list[dict]:
    """Adjusted Rand index over a recorded run, by method."""
    from phasepoint.phases import detect_phases
    from phasepoint.store import open_run

    run = open_run(path)
    steps, ops = run.table("steps"), run.table("ops")
    truth_json = json.loads(Path(truth_path).read_text())
    number = steps.column("step").to_numpy()
    truth = np.full(len(number), "", object)
    if "labels" in truth_json:
        truth[:] = [str(label) for label in truth_json["labels"]]
    for segment in truth_json.get("segments", ()):
        truth[(number >= segment["first_step"]) & (number <= segment["last_step"])] = str(segment["phase"])
    known = truth != ""
    rows = []
    for method in methods:
        result = detect_phases(steps, ops, method=method)
        ari = adjusted_rand(truth[known].astype(str), result.labels[known])
        rows.append(
            {"method": method, "ari": ari, "steps": int(known.sum()), "phases": [p.name for p in result.phases]}
        )
        print(f"{method:10} {ari:.3f} over {known.sum()} steps; found {', '.join(p.name for p in result.phases)}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two sizes, one seed")
    parser.add_argument("--seeds", type=int, default=5, help="held-out seeds for runs of up to 1,000 steps")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, metavar="FIRST_SEED", help="first of the seeds")
    parser.add_argument("--oracle", action="store_true", help="compare the runs below the aim with what is possible")
    parser.add_argument("--only", choices=("accuracy", "speed"))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--run", help="a recorded run")
    parser.add_argument("--truth", help="its truth, JSON")
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    methods = options.methods.split(",")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
          f"{datetime.date.today()}")  # fmt: skip
    figures: dict[str, object] = {"date": str(datetime.date.today()), "cores": os.cpu_count()}
    begin = time.perf_counter()
    if options.run:
        figures["recorded"] = recorded(options.run, options.truth, methods)
    if not options.run and options.only != "speed":
        figures["accuracy"] = accuracy(options.quick, options.seeds, options.held_out, methods, options.oracle)
        print_accuracy(figures["accuracy"], methods)
        if options.oracle:
            print_oracle(figures["accuracy"])
    if not options.run and options.only != "accuracy":
        figures["speed"] = speed(options.quick)
        print_speed(figures["speed"])
    print(f"\ntook {time.perf_counter() - begin:.0f} s")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
