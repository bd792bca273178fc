"""How near does `phasepoint tune search` come to an exhaustive grid, and in which part of its time?

    python benchmarks/tune_search.py                    # a transformer and a CNN, 72 settings each: half an hour
    python benchmarks/tune_search.py --only cnn --json out.json

Each job is recorded once. The grid is a search of as many trials as the space has settings; the search has a sixth of
them. The setting that each names then runs by turns, so that the luck of a single run does not decide. Told are the
search's speed per sample over the grid's with its 95 % interval, and its time over the grid's: of the search alone, and
with the runs that confirm it.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev

from scipy.stats import t

JOBS = Path(__file__).with_name("tune_search_jobs.py")
KNOBS = {
    "batch": ([4, 8, 16], 8, "samples = true"),
    "dtype": (["float32", "bfloat16"], "float32", 'effect = "changes numerics"'),
    "threads": ([1, 2], 2, 'effect = "changes numerics"'),
    "optimizer": (["loop", "foreach", "fused"], "loop", 'effect = "changes numerics"'),
}
OF_MODEL = {
    "transformer": ("attention", (["plain", "fused"], "plain", 'effect = "changes numerics"')),
    "cnn": ("layout", (["first", "last"], "first", 'effect = "changes numerics"')),
}
PART = 6


def write_space(path, model, trials):
    knobs = {**KNOBS, OF_MODEL[model][0]: OF_MODEL[model][1]}
    tables = [
        "\n".join(
            (
                f"[knobs.{name}]",
                f'argument = "--{name}"',
                f"values = {json.dumps(values)}",
                f"as_written = {json.dumps(written)}",
                more,
            )
        )
        for name, (values, written, more) in knobs.items()
    ]
    path.write_text("\n".join([f"trials = {trials}", *tables]) + "\n")
    return math.prod(len(values) for values, _, _ in knobs.values())


def run_search(folder, model, trials, seed):
    space = folder / f"space-{trials}.toml"
    write_space(space, model, trials)
    command = [sys.executable, "-m", "phasepoint", "tune", "search", space, "--run", folder / "run", "--from-start"]
    command += ["--steps", "40", "--seed", str(seed), "--out", folder / f"search-{trials}-{seed}", "--json", "--"]
    command += [sys.executable, JOBS, folder / "run", "--model", model]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return json.loads(done.stdout)


def sample_ns(folder, model, setting):
    words = [word for name, value in setting.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, JOBS, folder / "once", "--model", model, "--steps", "80", *words]
    subprocess.run(["rm", "-rf", folder / "once"], check=True)
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def measure(model, *, repeats, seed):
    folder = Path(tempfile.mkdtemp(prefix="phasepoint-search-"))
    size = write_space(folder / "space.toml", model, 1)
    command = [sys.executable, JOBS, folder / "run", "--model", model, "--capture"]
    subprocess.run(command, check=True, capture_output=True)
    grid = run_search(folder, model, size, seed)
    found = run_search(folder, model, size // PART, seed)
    best = max((one for one in grid["trials"] if one["gain"] is not None), key=lambda one: one["gain"])["knobs"]
    spent_s = sum(one["dur_s"] for one in found["trials"])
    grid_s = sum(one["dur_s"] for one in grid["trials"])
    logs = []
    for number in range(repeats):
        order = [best, found["chosen"]][:: -1 if number % 2 else 1]
        times = {json.dumps(setting): sample_ns(folder, model, setting) for setting in order}
        logs.append(math.log(times[json.dumps(best)] / times[json.dumps(found["chosen"])]))
    half = float(t.ppf(0.975, repeats - 1)) * stdev(logs) / math.sqrt(repeats)
    of_best = [math.exp(mean(logs) + shift) for shift in (0, -half, half)]
    row = {
        "model": model,
        "settings": size,
        "best_of_grid": best,
        "chosen": found["chosen"],
        "gain": found["gain"],
        "of_best": of_best,
        "grid_s": grid_s,
        "search_s": spent_s,
        "with_confirming_s": found["spent_s"],
    }
    print(
        f"{model:12} {size} settings: {of_best[0]:.1%} ({of_best[1]:.1%} to {of_best[2]:.1%}) of the best in "
        f"{spent_s / grid_s:.1%} of the grid's time, {found['spent_s'] / grid_s:.1%} with confirming; "
        f"gain {found['gain']}; {found['chosen']} for {best}",
        flush=True,
    )
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=OF_MODEL, default=list(OF_MODEL))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = [measure(model, repeats=args.repeats, seed=args.seed) for model in args.only]
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
