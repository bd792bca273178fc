"""Does the tuner reach what an exhaustive search finds, from any start, and does it ever make a job slower?

    python benchmarks/tune.py                           # twelve pipelines, three starts: an hour and a half, two cores
    python benchmarks/tune.py --only jpeg http --json out.json --peers /tmp/peers/bin/python
    python benchmarks/tune.py --naive --only jpeg text  # whole jobs, with and without tuning

Needs `pip install pillow scikit-image tokenizers` beside PyTorch. Every setting of a pipeline's grid runs for some
seconds, in turns, twice; its speed is the mean of steady steps. The best of them is the limit. The tuner begins with a
bad setting, with PyTorch's default and with a good one, and has 60 s; what counts is the speed after that. In the same
run stand the job without tuning from each start, PyTorch's default, what PyTorch advises (as many workers as cores)
and, with `--peers` and the Python of their environment, what `tune_peers.py` measures.

`--naive` is TPUPoint's experiment (Wudenhe and Tseng, ISPASS 2021): a pipeline that nobody has optimised,
which here is one that loads in its own loop, runs a set number of steps with the tuner and without it, in turns. Told
are the ratio of the whole times, the tuner's first minute included, and its 95 % interval over the repeats.
"""

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev

from scipy.stats import t

from tune_peers import PEERS
from tune_pipelines import PIPELINES

HERE = Path(__file__).parent
SETTLE_S, GRID_S = 2.5, 9.0
TUNE_S, AFTER_S = 60.0, 15.0


def run(name, *, seconds, setting, tuned=False, seed=0, steps=None):
    command = [sys.executable, HERE / "tune_pipelines.py", name, "--seconds", str(seconds), "--seed", str(seed)]
    command += ["--setting", json.dumps(dict(setting)), *(["--tune"] if tuned else [])]
    command += [] if steps is None else ["--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command += ["--json", result]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
        if done.returncode or not result.exists():
            sys.exit(f"{name} {setting}: exit code {done.returncode}: {done.stderr[-2000:]}")
        return json.loads(result.read_text())


def speed(asked_s, begin_s, end_s=float("inf")):
    """Steps a second between two moments."""
    inside = [at for at in asked_s if begin_s <= at <= end_s]
    return (len(inside) - 1) / (inside[-1] - inside[0]) if len(inside) > 2 else 0.0


def settings_of(pipeline):
    return [
        {"num_workers": workers, **({"prefetch_factor": ahead} if workers else {})}
        for workers in pipeline.grid
        for ahead in (pipeline.ahead if workers else pipeline.ahead[:1])
    ]


def peer_speeds(python, name):
    """Steps a second of the pipeline fed by each peer; None for one that cannot feed it."""
    length = ["--seconds", "40", "--settle-s", "25"] if name == "moving" else ["--seconds", "15", "--settle-s", "5"]
    speeds = {}
    for peer in PEERS:
        command = [python, HERE / "tune_peers.py", name, peer, *length]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        speeds[peer] = json.loads(done.stdout.splitlines()[-1])["steps_per_s"] if done.returncode == 0 else None
        told = done.stderr.strip().splitlines()[-1] if done.returncode else f"{speeds[peer]:.1f} steps/s"
        print(f"{name:8} {peer}: {told}", flush=True)
    return speeds


def measure(name, *, rounds, tune_s, seed, peers=None):
    pipeline = PIPELINES[name]
    settings, speeds = settings_of(pipeline), {}
    grid_s = 40.0 if name == "moving" else GRID_S
    begin_s = 25.0 if name == "moving" else SETTLE_S
    for number in range(rounds):
        for setting in random.Random(number).sample(settings, len(settings)):
            found = run(name, seconds=grid_s, setting=setting, seed=number)
            speeds.setdefault(json.dumps(setting), []).append(speed(found["asked_s"], begin_s))
    best, best_speed = max(((key, mean(values)) for key, values in speeds.items()), key=lambda row: row[1])
    others, rows = peer_speeds(peers, name) if peers else {}, []
    for start, setting in (("bad", pipeline.bad), ("default", {"num_workers": 0}), ("good", pipeline.good)):
        plain = run(name, seconds=grid_s, setting=setting, seed=seed)
        found = run(name, seconds=tune_s + AFTER_S, setting=setting, tuned=True, seed=seed)
        after = speed(found["asked_s"], tune_s)
        before = speed(plain["asked_s"], begin_s)
        rows.append(
            {
                "start": start,
                "setting": setting,
                "untuned_steps_per_s": before,
                "tuned_steps_per_s": after,
                "of_best": after / best_speed,
                "steps": len(found["asked_s"]),
                "untuned_steps": len(plain["asked_s"]) + before * (tune_s + AFTER_S - grid_s),  # its start included
                "state": found["state"],
                "trials": found["trials"],
                "most_bytes": found["most_bytes"],
                "limit_bytes": found["limit_bytes"],
            }
        )
        print(show(name, best, best_speed, rows[-1]), flush=True)
    return {"name": name, "speeds": speeds, "best": best, "best_steps_per_s": best_speed, "peers": others, "rows": rows}


def end_to_end(name, *, repeats, job_s):
    """Whole jobs of the same steps, with the tuner and without it, in turns: the ratio of their times."""
    calm = run(name, seconds=GRID_S, setting={"num_workers": 0})
    steps = int(job_s * speed(calm["asked_s"], SETTLE_S))
    times = {True: [], False: []}
    for number in range(repeats):
        for tuned in (True, False) if number % 2 else (False, True):
            found = run(name, seconds=5 * job_s, setting={"num_workers": 0}, tuned=tuned, seed=number, steps=steps)
            times[tuned].append(found["asked_s"][-1])
    logs = [math.log(off / on) for off, on in zip(times[False], times[True], strict=True)]
    half = float(t.ppf(0.975, repeats - 1)) * stdev(logs) / math.sqrt(repeats)
    ratio, low, high = (math.exp(mean(logs) + shift) for shift in (0, -half, half))
    told = f"{ratio:.2f} x ({low:.2f} to {high:.2f})"
    print(f"{name:8} {steps} steps, {mean(times[False]):.1f} s without tuning: {told}", flush=True)
    return {
        "name": name,
        "steps": steps,
        "untuned_s": times[False],
        "tuned_s": times[True],
        "ratio": (ratio, low, high),
    }


def show(name, best, best_speed, row):
    trials = "; ".join(
        f"{trial['knobs']} {trial['predicted_gain']:+.0%} → "
        + ("–" if trial["gain"] is None else f"{trial['gain']:+.0%}")
        + (" taken" if trial["accepted"] else "")
        for trial in row["trials"]
    )
    before, after = row["untuned_steps_per_s"], row["tuned_steps_per_s"]
    speeds = f"{before:6.1f} → {after:6.1f} of {best_speed:6.1f} ({best}): {row['of_best']:.1%}"
    state = f"{row['state']['chosen']} | {row['state']['verdict']}"
    return f"{name:8} {row['start']:8} {speeds} | {state} | {trials}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PIPELINES, default=list(PIPELINES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tune-s", type=float, default=TUNE_S)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peers", metavar="PYTHON", help="of an environment with grain, spdl and tensorflow-cpu")
    parser.add_argument("--naive", action="store_true", help="TPUPoint's experiment")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--job-s", type=float, default=90.0, help="length of a job without tuning")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = []
    if args.naive:
        results = [end_to_end(name, repeats=args.repeats, job_s=args.job_s) for name in args.only]
        if args.json:
            args.json.write_text(json.dumps(results, indent=1))
        sys.exit()
    for name in args.only:
        results.append(measure(name, rounds=args.rounds, tune_s=args.tune_s, seed=args.seed, peers=args.peers))
        if args.json:
            args.json.write_text(json.dumps(results, indent=1))
    rows = [row for result in results for row in result["rows"]]
    reached = sum(row["of_best"] >= 0.95 for row in rows)
    taken = [trial for row in rows for trial in row["trials"] if trial["accepted"]]
    near = sum(abs(trial["gain"] - trial["predicted_gain"]) <= 0.1 for trial in taken)
    slower = [row for row in rows if row["steps"] < row["untuned_steps"] / 1.01]
    over = [row for row in rows if row["limit_bytes"] and row["most_bytes"] > row["limit_bytes"]]
    print(f"≥ 95 % of the best: {reached} of {len(rows)}; predicted within 10 points: {near} of {len(taken)}")
    beaten = [
        (result["name"], row["start"], peer)
        for result in results
        for row in result["rows"]
        for peer, rate in result["peers"].items()
        if rate and row["tuned_steps_per_s"] < rate / 1.02
    ]
    print(f"slower than a peer by more than 2 %: {len(beaten)} {beaten}")
    print(f"slower than untuned by more than 1 %: {len(slower)}; over the memory limit: {len(over)}")
