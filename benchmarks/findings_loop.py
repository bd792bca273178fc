"""The training loop of the jobs of `benchmarks/findings.py`, recorded, and what it cost by its own clocks.

The saving is measured apart from the recording. On a machine that others use too, two runs of one job differ by more
than a small cause costs. So in a second, unrecorded process blocks of steps with and without the cause take turns, a
fraction of a second each, and the difference of their lower quartiles counts. From every block is taken how long the
thread that worked waited for a core (Linux: /proc/self/task/*/schedstat).
"""

import contextlib
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from findings_plan import ROWS, Job, Plan, Plant, Plants

WIDTH = 768
BLOCK_STEPS = 10
"""Steps of a block of one sort where blocks take turns."""

QUIET = 0.25
"""Of blocks of one sort this quantile counts: what else runs on the machine only ever lengthens them."""

_READY = 32
"""Batches made before the loop: the loader only hands them out."""

Train = Callable[[Job, int, Any, bool], Any]
Evaluate = Callable[[Job, Any], None]

_MADE: list[np.ndarray] = []


@dataclass
class Clock:
    """Wall time, processor time and time queued for a core since it was started, seconds."""

    def __post_init__(self) -> None:
        self._began, self._queued = (time.perf_counter(), cpu_s()), queued_s()
        self.hooks_s = 0.0

    def read(self) -> dict[str, float]:
        wall_s, used_s = time.perf_counter() - self._began[0], cpu_s() - self._began[1]
        after = queued_s()
        queued = {task: after[task] - self._queued.get(task, 0.0) for task in after}
        busiest = max(queued.items(), key=lambda item: item[1], default=("", 0.0))[1]
        return {
            "wall_s": wall_s,
            "cpu_s": used_s,
            "queued_s": min(busiest, wall_s),
            "hooks_s": self.hooks_s,
        }

    @contextlib.contextmanager
    def hook(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.hooks_s += time.perf_counter() - began


def cpu_s() -> float:
    """Processor time of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def queued_s() -> dict[str, float]:
    """How long each of this process's threads was ready but had no core; empty where the system does not say."""
    queued = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            queued[path.parent.name] = int(path.read_text().split()[1]) / 1e9
    return queued


def images_of(step: int) -> np.ndarray:
    """A batch out of memory, float32 `[ROWS, WIDTH]`."""
    if not _MADE:
        rng = np.random.default_rng(0)
        _MADE.extend(rng.standard_normal((ROWS, WIDTH), dtype=np.float32) for _ in range(_READY))
    return _MADE[step % _READY]


def run_loop(plan: Plan, plants: Plants, train: Train, evaluate: Evaluate, job: Job) -> dict[str, Any]:
    """Train: recorded with or without the cause, or unrecorded with both in turns. Returns the figures."""
    images_of(0)
    if plan.toggle:
        return _toggle(plan, plants, train, job)
    plant = plants[plan.planted]
    with _recording(plan, plant) as run:
        job.run = run
        clock, durations = Clock(), []
        for kind, numbers in _stretches(plant.steps or plan.steps, plant):
            loader = _batches(numbers, plant if kind == "train" else Plant(), clock)
            stepped = loader if run is None else run.steps(loader)
            if kind == "train":
                durations += _train(plan, plant, train, job, stepped, clock, is_planted=plan.planted)
                continue
            with contextlib.nullcontext() if run is None else run.phase("eval"), clock.hook():
                for _, images in stepped:
                    evaluate(job, images)
        job.wait()
        figures: dict[str, Any] = clock.read()
    marked_s = _marked_s(durations, plant)
    return figures | {"steps": len(durations), "step_s": float(np.quantile(durations, QUIET)), "marked_s": marked_s}


def _train(
    plan: Plan, plant: Plant, train: Train, job: Job, stepped: Any, clock: Clock, *, is_planted: bool
) -> list[float]:
    """One stretch of training steps; how long each took, seconds."""
    ends = [time.perf_counter()]
    for step, images in stepped:
        job.loss = train(job, step, images, is_planted)
        if plant.fetch or not plan.ahead:
            job.wait()
        elif job.before is not None:
            job.before.block_until_ready()
        job.before = job.loss
        if plant.after is not None:
            with clock.hook():
                plant.after(step, job)
        ends.append(time.perf_counter())
    return np.diff(ends).tolist()


def _toggle(plan: Plan, plants: Plants, train: Train, job: Job) -> dict[str, Any]:
    """Blocks with and without the cause in turns; the first of each is left out."""
    read: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    drains = any(plant.fetch for plant in plants.values())  # else what is under way at a block's end is alike in both
    for index, first in enumerate(range(0, plan.steps, BLOCK_STEPS)):
        is_planted = index // 2 % 2 == index % 2  # off on on off …: neither sort is always the first of a pair
        clock = Clock()
        stepped = _batches(range(first, first + BLOCK_STEPS), plants[is_planted], clock)
        _train(plan, plants[is_planted], train, job, stepped, clock, is_planted=is_planted)
        if drains:
            job.wait()
        read[is_planted].append(clock.read())
    of_hooks = not plan.ahead and all(plant.device is None and not plant.fetch for plant in plants.values())
    of_hooks &= any(plant.load or plant.after for plant in plants.values())  # else the cause is in the step itself
    figures = _compared(read, lambda block: (block["wall_s"] - block["queued_s"]) / BLOCK_STEPS)
    hooks = _compared(read, lambda block: block["hooks_s"] / BLOCK_STEPS)
    return figures | {"hooks": hooks if of_hooks else None}


def _compared(
    read: dict[bool, list[dict[str, float]]], value_of: Callable[[dict[str, float]], float]
) -> dict[str, Any]:
    """Seconds a step in quiet blocks with and without the cause, and the standard error of the difference."""
    quiet = {side: np.array([value_of(block) for block in blocks[1:]]) for side, blocks in read.items()}
    rng = np.random.default_rng(0)
    drawn = {side: rng.choice(steps_s, (1000, len(steps_s))) for side, steps_s in quiet.items()}
    more = np.quantile(drawn[True], QUIET, axis=1) - np.quantile(drawn[False], QUIET, axis=1)
    with_s, without_s = (float(np.quantile(quiet[side], QUIET)) for side in (True, False))
    return {
        "more_s": with_s - without_s,
        "more_spread_s": float(np.std(more)),
        "with_s": with_s,
        "without_s": without_s,
        "blocks": len(quiet[True]),
    }


def _recording(plan: Plan, plant: Plant) -> Any:
    if plan.out is None:
        return contextlib.nullcontext()
    from phasepoint.recorder import record

    budget = plan.budget if plant.budget is None else plant.budget
    return record(plan.out, budget=budget, framework=plan.framework)  # type: ignore[arg-type]


def _stretches(steps: int, plant: Plant) -> Iterator[tuple[str, range]]:
    """Training steps, with evaluations spread evenly among them."""
    if not plant.evaluations:
        yield "train", range(steps)
        return
    edges = np.linspace(0, steps, plant.evaluations + 1).round().astype(int).tolist()
    for first, last in pairwise(edges):
        yield "train", range(first, last)
        yield "eval", range(plant.eval_batches)


def _batches(steps: range, plant: Plant, clock: Clock) -> Iterator[tuple[int, np.ndarray]]:
    for step in steps:
        if plant.load is not None:
            with clock.hook():
                plant.load(step)
        yield step, images_of(step)[: plant.rows(step)]


def _marked_s(durations: list[float], plant: Plant) -> float:
    """What the marked steps, and each one's next, took beyond the median step, seconds."""
    if plant.marked is None:
        return 0.0
    hit = {step for step in range(len(durations)) if plant.marked(step)}
    hit |= {step + 1 for step in hit if step + 1 < len(durations)}
    typical_s = float(np.median([dur for step, dur in enumerate(durations) if step not in hit]))
    return sum(durations[step] - typical_s for step in hit)
