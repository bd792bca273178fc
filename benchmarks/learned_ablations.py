"""What the parts of the networks are worth: loss, message passing, reduction, static features, residual, trees.

    python benchmarks/learned_ablations.py --corpus DIR                 # kernels of a corpus, random split by program
    python benchmarks/learned_ablations.py --corpus DIR --only loss     # a part of the table
    python benchmarks/learned_ablations.py --tiles DIR                  # tiles of TPU kernels, one kernel left out
    python benchmarks/learned_ablations.py --corpus DIR --quick         # an eighth of the kernels, few epochs

Every row changes one thing of the first one: one network, no trees. Kernels are those of at least 5 µs; tau is the mean
within programs, where an order is what a rank loss learns; rank losses predict no times.
"""

import argparse
import datetime
import platform
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from phasepoint.learn.choosing.tpu_tiles import TileKernel, read_tile_kernels
from phasepoint.learn.corpus.corpus import Corpus, kernels_of_split, random_split, read_corpus
from phasepoint.learn.hlo_graph.graphs import OPCODES, encode_sizes
from phasepoint.learn.kernels.fit import LONG_PS, FitSettings, fit_kernel_model, kernel_weights
from phasepoint.learn.kernels.model import encode_graphs, fit_scales, scale_graphs
from phasepoint.learn.models.network import NetworkShape, network_log_times
from phasepoint.learn.models.network_training import TrainingData, TrainingSettings, train_network
from phasepoint.learn.tasks import kendall_tau

SEED = 0


@dataclass(frozen=True)
class Row:
    """One change: its part of the table, what it is called, and the settings."""

    part: str
    name: str
    settings: FitSettings


def rows_of(base: FitSettings) -> list[Row]:
    def loss(name: str) -> FitSettings:
        return replace(base, training=replace(base.training, loss=name))

    both = replace(base, tree_rounds=FitSettings().tree_rounds)
    return [
        Row("base", "relative error, GraphSAGE, columns, static features, residual", base),
        Row("loss", "squared log error", loss("squared")),
        Row("loss", "Huber", loss("huber")),
        Row("loss", "rank, hinge", loss("hinge")),
        Row("loss", "rank, logistic", loss("logistic")),
        Row("passing", "GAT", replace(base, aggregation="gat")),
        Row("passing", "no message passing", replace(base, aggregation="none")),
        Row("reduction", "sum of nodes' times", replace(base, reduction="nodes", residual=False)),
        Row("reduction", "LSTM", replace(base, reduction="lstm")),
        Row("reduction", "transformer", replace(base, reduction="transformer")),
        Row("static", "without static features", replace(base, static_features=False)),
        Row("residual", "times themselves, not ratios to the analytic model", replace(base, residual=False)),
        Row("trees", "boosted trees alone", replace(both, members=0)),
        Row("trees", "the network and boosted trees", both),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--tiles", type=Path, help="folder with op_tuning_data.pb")
    parser.add_argument("--only", help="loss, passing, reduction, static, residual or trees")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    today = datetime.datetime.now(tz=datetime.UTC).date()
    print(f"{platform.machine()}, {today}, seed {SEED}{', quick' if asked.quick else ''}\n")
    training = TrainingSettings(epochs=4 if asked.quick else asked.epochs, batch_nodes=2048)
    hidden = 16 if asked.quick else 64
    base = FitSettings(members=1, tree_rounds=0, hidden=hidden, reduction="columns", training=training)
    if asked.corpus:
        run_corpus(read_corpus(asked.corpus), base, only=asked.only, quick=asked.quick)
    if asked.tiles:
        run_tiles(read_tile_kernels(asked.tiles), epochs=5 if asked.quick else 60)


def run_corpus(corpus: Corpus, base: FitSettings, *, only: str | None, quick: bool) -> None:
    learn, calibrate, test = kernels_of_split(corpus, random_split(corpus, seed=SEED))
    learn = learn[:: 8 if quick else 1]
    graphs, truth = corpus.kernels.graphs, corpus.kernels.time_min_ps
    test = test[truth[test] >= LONG_PS]
    print(f"{len(learn)} kernels to learn from, {len(test)} to test on; random split by program;")
    print(f"noise floor {corpus.noise_floor_long_ratio:.1%}\n")
    print("| change | error | tau within programs | tau | training, s |\n|---|---|---|---|---|")
    for row in rows_of(base):
        if only not in (None, row.part) and row.part != "base":
            continue
        start = time.perf_counter()
        if row.settings.training.loss in ("hinge", "logistic"):
            scores, error = rank_scores(corpus, row.settings, (learn, test)), None
        else:
            model = fit_kernel_model(graphs, truth, (learn, calibrate), seed=SEED, settings=row.settings)
            scores = np.log(model.predict([graphs[place] for place in test]).time_ps)
            error = float(np.mean(np.abs(np.exp(scores) / truth[test] - 1)))
        took = time.perf_counter() - start
        within = tau_within(corpus, test, scores)
        shown = "—" if error is None else f"{error:.1%}"
        print(
            f"| {row.name} | {shown} | {within:.3f} | {kendall_tau(scores, truth[test]):.3f} | {took:.0f} |", flush=True
        )


def rank_scores(corpus: Corpus, settings: FitSettings, rows: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Scores by a rank loss among the kernels of a program (of its first, where several hold it)."""
    learn, test = rows
    kernels = corpus.kernels
    encoded = encode_graphs(kernels.graphs)
    inputs = scale_graphs(kernels.graphs, encoded, fit_scales([encoded[row] for row in learn]))
    data = TrainingData(
        inputs,
        np.log(kernels.time_min_ps),
        np.zeros(len(inputs)),
        kernel_weights(kernels.time_min_ps),
        np.array([of[0] for of in kernels.programs]),
        learn,
        np.zeros(0, np.int64),
    )
    network = NetworkShape(
        len(OPCODES), inputs[0].nodes.shape[1], len(inputs[0].kernel), hidden=settings.hidden, layers=settings.layers
    )
    trained = train_network(data, network, settings.training, seed=SEED)
    return network_log_times(trained.weights, network, [inputs[row] for row in test])


def tau_within(corpus: Corpus, test: np.ndarray, scores: np.ndarray) -> float:
    first = np.array([corpus.kernels.programs[row][0] for row in test])
    truth = corpus.kernels.time_min_ps[test]
    taus = [kendall_tau(scores[first == of], truth[first == of]) for of in np.unique(first)]
    return float(np.mean([tau for tau in taus if tau is not None]))


def run_tiles(kernels: tuple[TileKernel, ...], *, epochs: int) -> None:
    """Leave one kernel out: how much slower the tiles that a network ranks first are than the best."""
    print(f"\n{len(kernels)} TPU kernels, {sum(len(one.time_ps) for one in kernels)} tiles; one kernel left out\n")
    print("| loss | slower than the best | tau within kernels |\n|---|---|---|")
    for loss in ("squared", "hinge", "logistic"):
        worse, taus = [], []
        for held in range(len(kernels)):
            scores = tile_scores(kernels, held, loss, epochs)
            truth = kernels[held].time_ps
            worse.append(truth[int(np.argmin(scores))] / truth.min() - 1)
            taus.append(kendall_tau(scores, truth))
        known = [tau for tau in taus if tau is not None]
        print(f"| {loss} | {np.mean(worse):.1%} | {np.mean(known):.3f} |", flush=True)


def tile_scores(kernels: tuple[TileKernel, ...], held: int, loss: str, epochs: int) -> np.ndarray:
    graphs = [one.graph for one in kernels for _ in one.time_ps]
    group = np.repeat(np.arange(len(kernels)), [len(one.time_ps) for one in kernels])
    same = np.array([one.graph.fingerprint == kernels[held].graph.fingerprint for one in kernels])
    learn, test = np.flatnonzero(~same[group]), np.flatnonzero(group == held)
    encoded = encode_graphs([one.graph for one in kernels])
    plain = scale_graphs(graphs, [encoded[of] for of in group], fit_scales(encoded))
    tiles = encode_sizes(np.nan_to_num(np.concatenate([one.config_features for one in kernels])))
    tiles = (tiles - tiles[learn].mean(axis=0)) / np.maximum(tiles[learn].std(axis=0), 1e-3)
    inputs = [
        replace(one, kernel=np.concatenate([one.kernel, np.clip(tile, -6, 6)]))
        for one, tile in zip(plain, tiles.astype(np.float32), strict=True)
    ]
    target = np.log(np.concatenate([one.time_ps for one in kernels]).astype(np.float64))
    data = TrainingData(
        inputs, target, np.full(len(target), target[learn].mean()), np.ones(len(target)), group, learn, learn[:0]
    )
    network = NetworkShape(len(OPCODES), inputs[0].nodes.shape[1], len(inputs[0].kernel), hidden=32)
    settings = TrainingSettings(loss=loss, epochs=epochs, batch_nodes=2048)
    trained = train_network(data, network, settings, seed=SEED)
    return network_log_times(trained.weights, network, [inputs[row] for row in test])


if __name__ == "__main__":
    main()
