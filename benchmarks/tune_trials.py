"""What a trial decides where the truth is known: nothing to win, a gain of a tenth, and noise of several kinds.

    python benchmarks/tune_trials.py                    # 200 trials of each cell, a minute

The real plan of blocks, the real certificate and the real rule when to stop; only the steps' times are made up. Each
step scatters by a fifth: by itself, with others of its stretch (a neighbour that comes and goes), with a drift, with
rare steps ten times as long, or the whole block by a fifth at once, which is the hardest. The trial is looked at after
every pair of blocks, as in a job.
"""

import argparse
import random

from phasepoint.tune.certificate import Certificate
from phasepoint.tune.choose import Proposal
from phasepoint.tune.live.trial import LoaderTrial, Role, lay_out
from phasepoint.tune.pipeline import Width

STEP_NS, NOISE = 20_000_000, 0.2


def alone(chance):
    while True:
        yield max(chance.gauss(1, NOISE), 0.1)


def neighbour(chance):
    """Stretches of 5 to 200 steps in which everything takes up to twice as long."""
    while True:
        factor = chance.choice([1, 1, chance.uniform(1, 2)])
        for _ in range(chance.randrange(5, 200)):
            yield factor * max(chance.gauss(1, NOISE / 2), 0.1)


def drift(chance):
    level = 1.0
    while True:
        level *= 1.0005
        yield level * max(chance.gauss(1, NOISE), 0.1)


def tailed(chance):
    while True:
        yield max(chance.gauss(1, NOISE), 0.1) * (10 if chance.random() < 0.01 else 1)


def by_block(chance, block=24):
    while True:
        factor = max(chance.gauss(1, NOISE), 0.1)
        for _ in range(block):
            yield factor


NOISES = {
    "each step": alone,
    "a neighbour": neighbour,
    "a drift": drift,
    "rare long steps": tailed,
    "whole blocks": by_block,
}


def run_trial(noise, gain, seed):
    """Whether a trial was taken up, after how many steps, and what it said of the gain."""
    chance = random.Random(seed)
    width = Width(2, 4)
    plan = lay_out(0, width, width, step_ns=STEP_NS, batch_ns=STEP_NS, draw=lambda: chance.getrandbits(1))
    proposal = Proposal({}, gain, 50.0)
    certificate = Certificate(0.1)
    begun = {"number": 0, "proposal": proposal, "first_step": 0, "began_ns": 0, "base_step_ns": STEP_NS}
    trial = LoaderTrial(**begun, batch_ns=STEP_NS, certificate=certificate)
    trial.enter(plan, Role(), None, 0)
    now_ns = 0
    for position, factor in enumerate(NOISES[noise](chance)):
        ratio = plan.note(position, now_ns)
        if ratio is not None:
            certificate.add(ratio)
            decided = trial.verdict(now_ns)
            if decided is not None:
                return decided[0] == "new", position, certificate.gain()
        faster = 1 + gain if plan.side_of(position) == "new" else 1
        now_ns += int(STEP_NS * factor / faster)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("| noise | gain | taken up | steps, median | interval covers the gain |\n|---|---|---|---|---|")
    for noise in NOISES:
        for gain in (0.0, 0.1, 0.5):
            seeds = range(args.seed, args.seed + args.trials)
            found = [run_trial(noise, gain, f"{seed} {noise} {gain}") for seed in seeds]
            taken = sum(one for one, _, _ in found)
            steps = sorted(steps for _, steps, _ in found)[len(found) // 2]
            covered = sum(said.low <= gain <= said.high for _, _, said in found)
            count = len(found)
            print(f"| {noise} | {gain:.0%} | {taken} of {count} | {steps} | {covered / count:.1%} |", flush=True)
