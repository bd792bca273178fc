"""Choosing a tile of a TPU kernel: leave one kernel out, against the compiler's default and against chance.

    python benchmarks/learned_tpu_tiles.py --data learn/tpu                # the table of the docs
    python benchmarks/learned_tpu_tiles.py --data learn/tpu --stability    # drops a second kernel each time

Two measures, both over kernels: Σ (chosen − best) / Σ best (the paper's tile-size error) and the mean of
(chosen − best) / best (TpuGraphs' own). "Known" leaves out kernels of which the file does not say what the tiles are.
"""

import argparse
import datetime
import platform
from itertools import combinations

import numpy as np

from phasepoint.learn.choosing.tile_cost import fit_tile_cost
from phasepoint.learn.choosing.tpu_tiles import (
    choices_of,
    default_choices,
    leave_one_out,
    rank_tiles,
    read_tile_kernels,
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder that holds op_tuning_data.pb")
    parser.add_argument("--stability", action="store_true", help="also fit without each pair of kernels (a minute)")
    parser.add_argument("--quick", action="store_true", help="the first six kernels alone")
    options = parser.parse_args()
    kernels = read_tile_kernels(options.data)[: 6 if options.quick else None]
    ranked = leave_one_out(kernels)
    known = [place for place, one in enumerate(kernels) if not any("does not say" in note for note in one.notes)]
    print(f"{platform.machine()}, {datetime.date.today()}; {len(kernels)} kernels, leave one kernel out")
    print(f"{'':34} {'tile-size error':>16} {'mean':>8} {'best picked':>12}   n")
    for label, places in (("all", range(len(kernels))), ("known", known)):
        some = [kernels[place] for place in places]
        orders = [ranked[place] for place in places]
        show(f"{label}: model's first", choices_of(some, orders))
        show(f"{label}: best of the model's first 3", choices_of(some, orders, first=3))
        show(f"{label}: best of the model's first 5", choices_of(some, orders, first=5))
        show(f"{label}: compiler's default", default_choices(some))
        show_chance(f"{label}: at random, expected", some)
    if options.stability:
        show_stability([kernels[place] for place in known])


def show(label, choices):
    mean = np.mean(choices.chosen_ps / choices.best_ps - 1)
    picked = np.mean(choices.chosen_ps <= choices.best_ps)
    n = len(choices.best_ps)
    print(f"{label:34} {choices.tile_size_error:16.2%} {mean:8.2%} {picked:12.0%} {n:3}")


def show_chance(label, kernels):
    mean = np.array([one.time_ps.mean() for one in kernels])
    best = np.array([one.time_ps.min() for one in kernels])
    picked = np.mean([1 / len(one.time_ps) for one in kernels])
    row = f"{(mean - best).sum() / best.sum():16.2%} {np.mean(mean / best - 1):8.2%} {picked:12.0%} {len(kernels):3}"
    print(f"{label:34} {row}")


def show_stability(kernels):
    """Each kernel's choice by models that lack it and one other: how much hangs on which kernels there are."""
    regrets = {one.name: [] for one in kernels}
    for pair in combinations(range(len(kernels)), 2):
        coefficients = fit_tile_cost([one.times for place, one in enumerate(kernels) if place not in pair])
        for place in pair:
            choice = choices_of([kernels[place]], [rank_tiles(kernels[place], coefficients)])
            regrets[kernels[place].name].append(choice.tile_size_error)
    print("\nleft out with each other kernel: loss of the choice, mean and worst")
    for name, found in regrets.items():
        print(f"  {name:20} {np.mean(found):8.2%} {max(found):8.2%}  n = {len(found)}")


if __name__ == "__main__":
    main()
