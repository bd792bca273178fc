"""Operators on GPUs that a model has not seen: train on all devices of a folder but one, predict that one, in turn.

    python benchmarks/learned_gpu_ops.py DATA/learn/gpu_ops [--class bmm] [--seed 0] [--quick] [--json PATH]

Beside it the roofline (flop at the peak or bytes at the bandwidth) and the errors that NeuSight's authors publish for
GPUs outside their training data (Lee, Phanishayee, Mahajan: "Forecasting GPU Performance for Deep Learning Training and
Inference", ASPLOS 2025), which are other devices: the comparison is of the question, not of the rows.
"""

import argparse
import datetime
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.learn.operators.fit import FittedClass, fit_class
from phasepoint.learn.operators.training import STEPS
from phasepoint.learn.operators.work import CLASSES, read_operator_times
from phasepoint.learn.tasks import kendall_tau

NEUSIGHT_MAPE = {"bmm": 0.138, "linear": 0.139, "element-wise": 0.193, "softmax": 0.139, "layer norm": 0.567}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--class", dest="kinds", action="append", choices=CLASSES, help="only this class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a fifth of the steps")
    parser.add_argument("--json", type=Path, metavar="PATH")
    arguments = parser.parse_args()
    times, notes = read_operator_times(arguments.folder)
    steps = STEPS // 5 if arguments.quick else STEPS
    machine = f"{os.cpu_count()} × {platform.machine()}, Python {platform.python_version()}"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    print(
        f"{machine}, {date}, {sum(len(part.time_s) for part in times):,} measurements, {steps} steps, one GPU left out"
    )
    print(*notes, sep="\n")
    print(
        f"{'class':14s} {'left out':24s} {'n':>6s} {'error':>8s} {'tau':>6s} {'below bound':>12s} "
        f"{'roofline':>9s} {'NeuSight':>9s}"
    )
    rows: list[dict[str, Any]] = []
    for kind in arguments.kinds or [kind for kind in CLASSES if any(part.kind == kind for part in times)]:
        begin = time.perf_counter()
        fitted = fit_class(kind, times, seed=arguments.seed, steps=steps)
        rows += describe(fitted)
        for row in rows[-len(fitted.left_out) - 1 :]:
            print(line(row))
        print(
            f"{'':14s} {time.perf_counter() - begin:.0f} s, interval holds {fitted.coverage:.1%} of a left-out device"
        )
    if arguments.json:
        text = json.dumps({"machine": machine, "date": date, "steps": steps, "rows": rows}, indent=2)
        arguments.json.write_text(text + "\n", encoding="utf-8")


def describe(fitted: FittedClass) -> list[dict[str, Any]]:
    """A row per left-out device, and one with the mean over devices."""
    rows: list[dict[str, Any]] = []
    for part in fitted.left_out:
        ratio, over_bound = np.exp(-part.error), np.exp(-part.roofline)  # predicted, and the bound, over measured
        rows.append(
            {
                "class": fitted.kind,
                "device": part.device,
                "n": len(ratio),
                "mape": float(np.mean(np.abs(ratio - 1))),
                "tau": kendall_tau(part.log_time - part.error, part.log_time),
                "below_bound": float(np.mean(ratio < over_bound * (1 - 1e-6))),
                "measured_below_bound": float(np.mean(over_bound > 1)),
                "roofline_mape": float(np.mean(np.abs(over_bound - 1))),
            }
        )
    means = {key: float(np.mean([row[key] for row in rows])) for key in ("mape", "tau", "below_bound", "roofline_mape")}
    whole = {"class": fitted.kind, "device": "mean", "n": sum(row["n"] for row in rows), **means}
    return [*rows, {**whole, "neusight_mape": NEUSIGHT_MAPE.get(fitted.kind)}]


def line(row: dict[str, Any]) -> str:
    published = row.get("neusight_mape")
    return (
        f"{row['class']:14s} {row['device']:24s} {row['n']:6d} {row['mape']:8.1%} {row['tau']:6.3f} "
        f"{row['below_bound']:12.1%} {row['roofline_mape']:9.1%} {'' if published is None else f'{published:.1%}':>9s}"
    )


if __name__ == "__main__":
    main()
