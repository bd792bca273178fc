"""Do the changes that `phasepoint bench` tells relieve what it says holds a network back, and by as much?

    python benchmarks/bench_proofs.py --out runs/proofs               # 22 networks of every task and class
    python benchmarks/bench_proofs.py --out runs/proofs --models resnet50 dlrm

Each network runs on one thread in f32, on all cores, and in bf16, at batches of 1, 4 and 16. Told are, of all changes
that were measured: how many win or lose as told (those that were measured within 3 % of no change are left out of this,
and counted), and how many are within 25 %.
"""

import argparse
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

MODELS = (
    *("alexnet", "resnet18", "resnet50", "densenet121", "squeezenet1_1", "mobilenet_v2", "shufflenet_v2_x1_0"),
    *("efficientnet_b0", "convnext_tiny", "vit_b_16", "gnmt", "lstm-language-model", "dlrm", "dcgan", "fsrcnn"),
    *("ddpm-unet", "pointnet", "lraspp_mobilenet_v3_large", "ncf", "mobilebert"),
    *("bench_movers:temporal_shift", "bench_movers:shifted_windows"),
)
NO_CHANGE, NEAR = 0.03, 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the suite; the same again goes on with it")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--seconds", default="2")
    parser.add_argument("--rounds", default="1")
    options = parser.parse_args()
    models = [word for name in options.models for word in ("--model", name)]
    words = ("--devices", "cpu:1", "--prove", "--seconds", options.seconds, "--rounds", options.rounds)
    out = str(options.out.resolve())
    command = [sys.executable, "-m", "phasepoint", "bench", "run", *models, *words, "--out", out, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parent)
    changes = [row for row in json.loads(done.stdout)["changes"] if row["measured"] is not None]
    for row in changes:
        pair = row["pair"]
        print(
            f"{pair['model']:28} {pair['device']} {pair['precision']:4} {row['part']:14} {row['change']:10} "
            f"{row['told']:6.2f} told {row['measured']:6.2f} measured"
        )
    moved = [row for row in changes if abs(math.log(row["measured"])) > math.log1p(NO_CHANGE)]
    right = [row for row in moved if (row["told"] > 1) == (row["measured"] > 1)]
    near = [row for row in changes if abs(row["told"] / row["measured"] - 1) <= NEAR]
    print(f"{len(changes)} changes of {len({row['pair']['model'] for row in changes})} networks")
    print(f"in the direction told: {len(right)} of {len(moved)}; {len(changes) - len(moved)} changed nothing")
    print(f"within 25 %: {len(near)} of {len(changes)}")
    for name in ("part", "change"):
        every, held = (Counter(row[name] for row in rows) for rows in (changes, near))
        print(f"within 25 % by {name}: " + ", ".join(f"{key} {held[key]} of {count}" for key, count in every.items()))


if __name__ == "__main__":
    main()
