"""Choosing among variants: solvers of convolutions, and tiles of kernels with few measurements.

    python benchmarks/learned_choices.py --data DIR                 # DIR holds conv_solvers/ and tile_sweeps/
    python benchmarks/learned_choices.py --data DIR --part tiles
    python benchmarks/learned_choices.py --data DIR --quick         # one small network per device

Solvers are split by problem: 15 % of each device's problems are never trained on; others of the same shape (another
batch, element type or direction) may be. The fixed order ranks solvers by how often each is the fastest of those it
is measured with. Tiles are searched on each device from what the other devices' sweeps say; a measurement is a row of
the sweep, and one that does not run counts.
"""

import argparse
import datetime
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from phasepoint.learn.choosing import solvers, tile_sweeps
from phasepoint.learn.choosing.convolutions import SolverTable, read_solvers, solver_files
from phasepoint.learn.choosing.solver_network import SolverTraining
from phasepoint.learn.choosing.sweep_table import Sweep, read_sweeps
from phasepoint.learn.tasks import choice_regret, share_best

HELD_BACK = 0.15
MOST = {"model": 60, "model, nothing known": 60, "annealing": 500, "random": 20_000, "exhaustive": 20_000}
"""Measurements after which a search is given up."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--part", choices=("solvers", "tiles"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=7, help="of annealing and random search; the others draw nothing")
    asked = parser.parse_args()
    today = datetime.datetime.now(tz=datetime.UTC).date()
    print(f"{platform.machine()}, one core, {today}, seed {asked.seed}{', quick' if asked.quick else ''}\n")
    if asked.part != "tiles":
        run_solvers(asked.data / "conv_solvers", seed=asked.seed, quick=asked.quick)
    if asked.part != "solvers":
        run_tiles(asked.data / "tile_sweeps", seeds=asked.seeds)


def run_solvers(folder: Path, *, seed: int, quick: bool) -> None:
    settings = SolverTraining(networks=1, width=64, epochs=6) if quick else None
    print("| device | problems | choice | slower than the best | without the worst 1 % | best picked | error | tau |")
    print("|---|---|---|---|---|---|---|---|")
    for path in solver_files(folder):
        with tempfile.TemporaryDirectory() as place:
            train, test = split(path, Path(place), seed)
            model = solvers.train(train, seed=seed, progress=silent, settings=settings)
            table = read_solvers(test)
            row, notes = solvers.evaluate_table(solvers.SolverModel.from_model(model), table)
            worst = notes[-1].split("problems ")[1].split(";")[0]
            print(
                f"| {row.group} | {row.n} | model | {row.regret:.1%} | {worst} | {row.top1:.1%} | {row.mape:.1%} "
                f"| {row.tau:.3f} |"
            )
            chosen, best = fixed_order(read_solvers(train), table)
            ordered = np.sort(chosen / best - 1)
            most = ordered[: len(ordered) - len(ordered) // 100].mean()
            print(
                f"| {row.group} | {row.n} | fixed order | {choice_regret(chosen, best):.1%} | {most:.1%} "
                f"| {share_best(chosen, best):.1%} | | |"
            )
    print()


def split(path: Path, place: Path, seed: int) -> tuple[Path, Path]:
    """Two files of the device's name: what is trained on, and what is held back; whole problems."""
    table = pq.read_table(path)
    problems = table["problem"].unique()
    held = problems.filter(np.random.default_rng(seed).random(len(problems)) < HELD_BACK)
    inside = pc.is_in(table["problem"], value_set=held.combine_chunks() if hasattr(held, "combine_chunks") else held)
    files = []
    for name, rows in (("train", pc.invert(inside)), ("test", inside)):
        (place / name).mkdir()
        files.append(place / name / path.name)
        pq.write_table(table.filter(rows), files[-1])
    return files[0], files[1]


def fixed_order(train: SolverTable, test: SolverTable) -> tuple[np.ndarray, np.ndarray]:
    """Times of the choice by share of problems won, and the best times."""
    measured = np.isfinite(train.log_time)
    best = np.nanmin(train.log_time, axis=1, keepdims=True)
    share = (train.log_time <= best).sum(axis=0) / np.maximum(measured.sum(axis=0), 1)
    order = {name: -float(value) for name, value in zip(train.solvers, share, strict=True)}
    rank = np.array([order.get(name, 1.0) for name in test.solvers])
    pick = np.where(np.isfinite(test.log_time), rank, np.inf).argmin(axis=1)
    times = np.exp(test.log_time.astype(float))
    return times[np.arange(len(pick)), pick], np.nanmin(times, axis=1)


def run_tiles(folder: Path, *, seeds: int) -> None:
    sweeps = read_sweeps(folder)
    known = [tile_sweeps.learn_sweep(sweep) for sweep in sweeps]
    print("Measurements needed to come within 5 % and 1 % of the optimum, regret after 10; median over seeds\n")
    print("| kernel, device left out | configurations (within 5 %, 1 %) | search | to 5 % | to 1 % | after 10 |")
    print("|---|---|---|---|---|---|", flush=True)
    for sweep in sweeps:
        priors = [one.predict(sweep.names, sweep.configs) for one in known if one.fits(sweep)]
        least = float(np.nanmin(sweep.time_ms))
        near = [int((sweep.time_ms <= least * (1 + ratio)).sum()) for ratio in (0.05, 0.01)]
        for method, most in MOST.items():
            draws = seeds if method in ("annealing", "random") else 1
            to = np.array([needed(sweep, method, seed, priors) for seed in range(draws)])
            counts = [f"{count:.0f}" if np.isfinite(count) else f"> {most}" for count in np.median(to, 0)[:2]]
            print(
                f"| {sweep.kernel}, {sweep.device} | {len(sweep.configs)} ({near[0]}, {near[1]}) | {method} "
                f"| {counts[0]} | {counts[1]} | {np.median(to[:, 2]):.1%} |",
                flush=True,
            )


def needed(sweep: Sweep, method: str, seed: int, priors: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """Measurements to 5 % and 1 %, infinite where a search gave up before, and the regret after ten."""
    name, used = ("model", () if "nothing" in method else priors) if method.startswith("model") else (method, ())
    found = tile_sweeps.tune_sweep(sweep, method=name, budget=MOST[method], seed=seed, priors=used)
    least_ps = round(float(np.nanmin(sweep.time_ms)) * 1e9)
    counts = [found.needed(least_ps * (1 + ratio) + 1) or np.inf for ratio in (0.05, 0.01)]
    ten = [trial.time_ps for trial in found.trials[:10] if trial.time_ps is not None]
    return counts[0], counts[1], min(ten, default=np.inf) / least_ps - 1


def silent(_done: int, _total: int) -> None:
    """Nobody looks."""


if __name__ == "__main__":
    main()
