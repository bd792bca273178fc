"""How well a model imitates the cycles that a TPU's compiler expects of kernels, on programs that it has not seen.

    phasepoint learn collect --out corpus/ --programs large --device tpu-v5p      # some 20 minutes on two cores
    python benchmarks/learned_imitator.py --corpus corpus/ [--seeds 0 1 2]

Trees alone: on calibration programs networks got no share. Whole programs are left out, a fifth of them. A few kernels
are expected to take hardly any cycles, for no reason that the program shows; they are counted apart.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from phasepoint.learn.corpus.corpus import kernels_of_split, random_split, read_corpus
from phasepoint.learn.kernels.fit import EXACT, LONG_PS, fit_kernel_model
from phasepoint.learn.models.analytic import predict_analytic
from phasepoint.learn.tasks import kendall_tau

LEAST_PS = 514_000
"""900 cycles of a TPU v5p, what hardly any kernel takes less than: it waits once for the memory."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    asked = parser.parse_args()
    corpus = read_corpus(asked.corpus)
    graphs, truth = corpus.kernels.graphs, corpus.kernels.time_min_ps.astype(np.float64)
    print(f"{len(graphs)} kernels of {len(corpus.programs)} programs on {corpus.device['name']}")
    for seed in asked.seeds:
        learn, calibrate, test = kernels_of_split(corpus, random_split(corpus, seed=seed))
        model = fit_kernel_model(
            graphs, truth, (learn, calibrate), seed=seed, exact=True, settings=replace(EXACT, members=0)
        )
        told = model.predict([graphs[row] for row in test])
        inside = (told.low_ps <= truth[test]) & (truth[test] <= told.high_ps)
        print(f"seed {seed}: {len(test)} kernels, {inside.mean():.0%} in their 90 % intervals", flush=True)
        analytic = predict_analytic(model.analytic, [graphs[row] for row in test])[0]
        for name, guess in (("learned", told.time_ps), ("analytic", analytic)):
            for least_ps, what in ((0.0, "all"), (LEAST_PS, "900 cycles and more"), (LONG_PS, "5 us and more")):
                of = truth[test] >= least_ps
                off = np.abs(guess[of] / truth[test][of] - 1)
                tau = kendall_tau(guess[of], truth[test][of])
                errors = f"mean {off.mean():6.1%}, median {np.median(off):5.1%}, tau {tau:.3f}"
                print(f"  {name:9} {what:20} {of.sum():6}: {errors}", flush=True)


if __name__ == "__main__":
    main()
