"""What the learned models are worth: kernels on a CPU, operators on unseen GPUs, choices among variants, TPU tiles.

    python benchmarks/learned_model.py --corpus corpus/ --data ../learn            # everything, some 40 min
    python benchmarks/learned_model.py --corpus corpus/ --part kernels --seeds 3   # own kernels alone

The corpus is one of `phasepoint learn collect --out corpus/ --programs all`; the folder of data holds `gpu_ops`,
`conv_solvers`, `tile_sweeps` and `tpu` (docs/learn.md says where they come from). Parts that have a benchmark of
their own are run by it.
"""

import argparse
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from math import isnan
from pathlib import Path

from phasepoint.learn.corpus.corpus import Corpus, Split, kernels_of_split, manual_split, random_split, read_corpus
from phasepoint.learn.kernels.task import ANALYTIC, LONG, evaluate_split

HERE = Path(__file__).parent
SCRIPTS = {
    "ablations": ("learned_ablations.py", ("--corpus", "{corpus}", "--tiles", "{data}/tpu")),
    "gpu_ops": ("learned_gpu_ops.py", ("{data}/gpu_ops",)),
    "choices": ("learned_choices.py", ("--data", "{data}")),
    "tpu": ("learned_tpu_tiles.py", ("--data", "{data}/tpu")),
    "predict": ("learned_predict.py", ()),
}
"""Benchmarks of one part, with their arguments."""


def main() -> None:
    options = _parse()
    print(f"{platform.machine()}, {datetime.now(UTC).date()}, Python {platform.python_version()}")
    if options.part in ("kernels", "all"):
        _kernels(options.corpus, options.seeds, only=options.split)
    for part, (script, words) in SCRIPTS.items():
        if options.part in (part, "all"):
            print(f"\n== {script}", flush=True)
            given = [word.format(corpus=options.corpus, data=options.data) for word in words]
            subprocess.run([sys.executable, str(HERE / script), *given], check=True)


def _kernels(path: Path, seeds: int, *, only: str | None) -> None:
    corpus = read_corpus(path)
    print(f"\n== {len(corpus.kernels.graphs)} kernels of {len(corpus.programs)} programs on {corpus.device['name']}")
    noise = [_ratio(None if isnan(one) else one) for one in (corpus.noise_floor_ratio, corpus.noise_floor_long_ratio)]
    print(f"noise floor of labels: {noise[0]}, of kernels >= 5 us {noise[1]} (none where labels are a compiler's)")
    for seed in range(seeds):
        if only in (None, "random"):
            _split(corpus, f"random, seed {seed}", random_split(corpus, seed=seed), seed)
        if only in (None, "manual"):
            _split(corpus, f"manual, seed {seed}", manual_split(corpus), seed)


def _split(corpus: Corpus, name: str, split: Split, seed: int) -> None:
    began = time.perf_counter()
    result = evaluate_split(corpus, split, seed=seed)
    took = time.perf_counter() - began
    programs = "/".join(str(len(part)) for part in (split.train, split.calibrate, split.test))
    kernels = "/".join(str(len(part)) for part in kernels_of_split(corpus, split))
    print(f"\nsplit {name}: programs {programs}, kernels {kernels} (train/calibrate/test); {took / 60:.1f} min")
    print(f"{'group':44} {'n':>6} {'error':>8} {'tau':>7}")
    for row in result.rows:
        print(f"{row.group:44} {row.n:6} {_ratio(row.mape)} {'' if row.tau is None else f'{row.tau:7.3f}'}")
    errors = {row.group: row.mape for row in result.rows}
    learned, analytic = errors[LONG], errors[ANALYTIC + LONG]
    if learned and analytic:
        print(
            f"analytic / learned: {analytic / learned:.1f} x; inside the 90 % interval: {_ratio(result.coverage)}",
            flush=True,
        )


def _ratio(value: float | None) -> str:
    return f"{'–':>8}" if value is None else f"{100 * value:6.1f} %"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    parser.add_argument("--data", type=Path, default=Path("../learn"))
    parser.add_argument("--part", choices=("all", "kernels", *SCRIPTS), default="all")
    parser.add_argument("--split", choices=("random", "manual"))
    parser.add_argument("--seeds", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
