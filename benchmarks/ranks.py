"""What recording costs a synchronous job of many ranks: the real planner in simulated lock step.

    python benchmarks/ranks.py                                   # all cells of the table, some ten minutes
    python benchmarks/ranks.py --ranks 1 8 --jitter 0.2          # some of them
    python benchmarks/ranks.py --alone                           # every rank plans by itself, for comparison

Every step lasts as long as that of the slowest rank, what recording adds to it included. The job is simulated twice
with the same chances, with and without recording: the difference is what recording cost it. Each rank has the
recorder's own planner, controller and account; what it charges itself is what it can see.
"""

import argparse
import json
import math
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from phasepoint.core.units import PS_PER_MS
from phasepoint.recorder.assembly import PRIVATE_PRIOR
from phasepoint.recorder.clock.cost import CostAccount
from phasepoint.recorder.clock.step_clock import lower_quartile
from phasepoint.recorder.windows.budget import BudgetController, WindowCost
from phasepoint.recorder.windows.planner import Situation, WindowPlanner
from phasepoint.recorder.windows.ranked import RankedPlanner, SharedDelays

RANKS = (1, 2, 8, 32, 64, 512, 4096)
JITTERS = (0.0, 0.05, 0.2, 0.5)
WINDOW_STEPS = 5
NEIGHBOURS = 64


@dataclass(frozen=True)
class Cell:
    """A job.

    Attributes:
        ranks: how many.
        jitter: standard deviation of a rank's step, as a ratio of its mean.
        straggler: how much longer the steps of rank 1 last than the others', as a ratio.
        steps: of the job.
        step_ms: mean length of a rank's step.
        window_ms: mean cost of a window on a rank's thread; it varies by a third.
        budget: of each rank.
    """

    ranks: int
    jitter: float
    straggler: float
    steps: int
    step_ms: float = 100.0
    window_ms: float = 50.0
    budget: float = 0.01


@dataclass
class Rank:
    """One process: what the recorder has of it."""

    planner: WindowPlanner
    controller: BudgetController
    account: CostAccount
    delays: SharedDelays
    window: tuple | None = None
    excess_ps: int = 0
    charged_ps: int = 0
    windows: int = 0
    opened: list = field(default_factory=list)


def make_rank(number: int, cell: Cell, seed: int, alone: bool) -> Rank:
    account = CostAccount()
    controller = BudgetController(cell.budget, account, PRIVATE_PRIOR, window_steps=WINDOW_STEPS)
    if alone or cell.ranks == 1:
        planner = WindowPlanner(controller, seed=seed + number)
    else:
        planner = RankedPlanner(controller, number, cell.ranks, seed=seed)
    account.spend("entry", 200 * PS_PER_MS)
    return Rank(planner, controller, account, SharedDelays(account, planner))


def simulate(cell: Cell, *, seed: int = 0, alone: bool = False) -> tuple[float, list[Rank], list[int]]:
    """How much longer the job takes by recording, as a ratio; its ranks; and the steps before which a window began."""
    rng, chance = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    ranks = [make_rank(number, cell, seed, alone) for number in range(cell.ranks)]
    next_look = np.zeros(cell.ranks, np.int64)
    slower = np.ones(cell.ranks)
    if cell.ranks > 1:
        slower[1] += cell.straggler
    elapsed_ps = plain_ps = 0
    undisturbed, recent, began = deque(maxlen=NEIGHBOURS), deque(maxlen=15), []
    open_ranks: set[int] = set()
    for step in range(cell.steps):
        typical_ps = sorted(recent)[len(recent) // 2] if recent else None
        stall_ps = np.zeros(cell.ranks)
        for number in sorted(open_ranks):
            rank = ranks[number]
            if step >= rank.window[1] + WINDOW_STEPS:
                stall_ps[number] += close(rank, elapsed_ps, typical_ps, undisturbed)
                open_ranks.discard(number)
                next_look[number] = 0
        for number in np.flatnonzero(next_look <= step).tolist():
            if number in open_ranks:
                continue
            rank = ranks[number]
            opening = look(rank, step, elapsed_ps, typical_ps)
            next_look[number] = rank.planner.next_look
            if opening is not None:
                cost_ps = cell.window_ms * PS_PER_MS * float(np.exp(chance.normal(-0.05, 1 / 3)))
                cost_ps *= 3 if opening.with_programs else 1
                rank.window = (opening, step, cost_ps, [])
                rank.account.spend("start", int(cost_ps * 0.1))
                stall_ps[number] += cost_ps * 0.1
                open_ranks.add(number)
                began.append(step)
        spread = math.sqrt(math.log1p(cell.jitter**2))
        work_ps = cell.step_ms * PS_PER_MS * slower * np.exp(rng.normal(-(spread**2) / 2, spread, cell.ranks))
        slow_ps = np.zeros(cell.ranks)
        for number in open_ranks:
            slow_ps[number] = ranks[number].window[2] * 0.3 / WINDOW_STEPS
        plain_ps += float(work_ps.max())
        whole_ps = float((work_ps + stall_ps + slow_ps).max())
        elapsed_ps += whole_ps
        inside_ps = float((work_ps + slow_ps).max())
        for number in open_ranks:
            ranks[number].window[3].append(int(inside_ps))
        if not open_ranks:
            undisturbed.append(int(whole_ps))
        recent.append(int(whole_ps))
    return elapsed_ps / plain_ps - 1, ranks, began


def look(rank: Rank, step: int, elapsed_ps: float, typical_ps: int | None):
    """A boundary at which the planner is asked; as the recorder does."""
    now_ps = int(elapsed_ps)
    rank.delays.settle(step, now_ps, typical_ps)
    opening = rank.planner.look(Situation(step, now_ps, -1, typical_ps, typical_ps, 0.0005))
    rank.delays.note(step, now_ps)
    return opening


def close(rank: Rank, elapsed_ps: float, typical_ps: int | None, undisturbed: deque) -> float:
    """The window's last boundary; returns what closing it takes on the thread."""
    opening, _, cost_ps, captured_ps = rank.window
    rank.window = None
    usual_ps = lower_quartile(list(undisturbed)[-32:])
    slowdown_ps = 0
    if usual_ps is not None:
        rank.excess_ps += len(captured_ps) * (lower_quartile(captured_ps) - usual_ps)
        slowdown_ps = max(0, rank.excess_ps - rank.charged_ps)
        rank.charged_ps += slowdown_ps
    cost = WindowCost(int(cost_ps * 0.1), slowdown_ps, int(cost_ps * 0.6), int(cost_ps * 0.1))
    rank.account.spend("slowdown", cost.slowdown_ps)
    rank.account.spend("stop", cost.stop_ps)
    rank.account.spend("write", cost.write_ps)
    rank.account.count_window()
    rank.windows += 1
    rank.controller.learn(
        cost,
        dur_ps=sum(captured_ps),
        size_bytes=100_000,
        with_programs=opening.with_programs,
        by_choice=opening.probability is None,
    )
    rank.planner.captured(opening, int(elapsed_ps), kind=-1, dur_ps=typical_ps)
    rank.opened.append(opening)
    return cost_ps * 0.6


def steps_for(ranks: int) -> int:
    """So many that a cell takes a minute at most; an hour of the job where there are few ranks."""
    return 36_000 if ranks <= 8 else 12_000 if ranks <= 64 else 6_000 if ranks <= 512 else 3_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--jitter", type=float, nargs="+", default=JITTERS)
    parser.add_argument("--straggler", type=float, nargs="+", default=(0.0, 0.3))
    parser.add_argument("--budget", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="every rank plans by itself")
    parser.add_argument("--json", metavar="PATH")
    args = parser.parse_args()
    print("| ranks | jitter | straggler | steps | slower | of the budget | own account | windows | a rank's |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for count in args.ranks:
        for jitter in args.jitter:
            for straggler in args.straggler if count > 1 else (0.0,):
                cell = Cell(count, jitter, straggler, steps_for(count), budget=args.budget)
                slower, ranks, began = simulate(cell, seed=args.seed, alone=args.alone)
                elapsed_ps = cell.steps * cell.step_ms * PS_PER_MS
                own = float(np.mean([rank.account.total_ps for rank in ranks])) / elapsed_ps
                mean = float(np.mean([rank.windows for rank in ranks]))
                rows.append({"cell": vars(cell), "slower": slower, "own": own, "windows": len(set(began))})
                print(
                    f"| {count:,} | {jitter:.0%} | {straggler:.0%} | {cell.steps:,} | {slower:.2%} | "
                    f"{slower / args.budget:.2f} | {own:.2%} | {len(set(began))} | {mean:.1f} |",
                    flush=True,
                )
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
