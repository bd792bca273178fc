"""How fast a loop would run with other workers: a simulation of its pipeline from times measured in place.

Batches are dealt to `workers` in turn, as PyTorch does, so that a slow one holds up those behind it; they are taken in
order, and at most `ahead` of them are dealt and not yet taken. The loop takes a batch over and works on it. Times are
those that were measured, shuffled, tails and all: what a mean would hide (a slow sample in fifty) is what makes a short
queue run dry.

Workers and loop share the cores: where those that are busy want more CPU time than there are cores, all get less of it,
alike, and what they do beside (waiting for a disk, for the device) goes on as before (processor sharing; Kleinrock,
"Queueing Systems", volume 2, 1976, chapter 4).
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import NamedTuple

from phasepoint.core.units import NS_PER_S

SIMULATED_STEPS = 240
"""A choice: enough for a tail of one in fifty to be met several times; 1 to 2 ms for each setting."""

WORKER_OVERHEAD = 1.1
"""What making a batch takes in a worker, over what is timed there: handing it over, and sharing the cores' caches."""

KEPT_TIMES = 512
"""Of the last steps and batches."""

USUAL_START_NS = 50_000_000
"""Before it was measured, for each forked worker: 30 to 100 ms (2 cores)."""


@dataclass(frozen=True)
class Width:
    """What a setting means for the pipeline.

    Attributes:
        workers: that make batches beside the loop; 0 where the loop's own thread makes them.
        ahead: batches that may be begun and not yet taken; 0 with no worker.
        readers: requests that the making of one batch waits for at a time.
        starts: whether workers are started anew for each epoch.
        receives_ahead: whether a thread takes finished batches over before the loop asks for them.
        caches: whether results are kept from one epoch to the next.
    """

    workers: int
    ahead: int
    readers: int = 1
    starts: bool = False
    receives_ahead: bool = False
    caches: bool = False


@dataclass(frozen=True)
class PipelineTimes:
    """What a step's parts take, waits for a core left out.

    Attributes:
        body_ns: what the loop does with a batch, of the last steps, in order.
        body_cpu_ns: CPU time of the process for that, of a step in the mean.
        batch_ns: making a batch, of the last ones, in order.
        batch_cpu_ns: CPU time of that, of a batch in the mean.
        receive_ns: taking a finished batch over from a worker.
        cpus: cores that the job may use.
        send_ns: handing a finished batch to the loop, in a worker.
        readers: with which batches were made.
        start_ns: from an epoch's begin to where its first batch is begun, for each worker that is started for it.
        epoch_steps: of an epoch; infinite where none has ended and the loader does not say.
        saved_ns: of a batch in the mean, where results are kept and are found again.
        cache_bytes: of a batch in the mean, what would be kept; 0 where nothing can be.
        simulated: a step's mean time by what of a setting it depends on, as far as it was simulated.
    """

    body_ns: Sequence[int]
    body_cpu_ns: float
    batch_ns: Sequence[int]
    batch_cpu_ns: float
    receive_ns: float
    cpus: float
    send_ns: float = 0.0
    readers: int = 1
    start_ns: float = USUAL_START_NS
    epoch_steps: float = math.inf
    saved_ns: float = 0.0
    cache_bytes: float = 0.0
    simulated: dict[Width, float] = field(default_factory=dict, compare=False, repr=False)

    def cached(self) -> "PipelineTimes":
        """The same with results that are found again."""
        left = max(1 - self.saved_ns / max(_mean(self.batch_ns), 1.0), _LEAST_LEFT)
        batch_ns = [round(left * one_ns) for one_ns in self.batch_ns]
        return replace(self, batch_ns=batch_ns, batch_cpu_ns=left * self.batch_cpu_ns, saved_ns=0.0)

    @property
    def batch_cores(self) -> float:
        """Cores that the making of a batch keeps busy."""
        return self.batch_cpu_ns / max(_mean(self.batch_ns), 1.0)

    @property
    def ceiling_steps_per_s(self) -> float:
        """What the loop could do if it never waited for a batch."""
        return NS_PER_S * len(self.body_ns) / max(sum(self.body_ns), 1)


@dataclass(frozen=True)
class Forecast:
    """What a setting would give.

    Attributes:
        steps_per_s: steady steps.
        limited_by: `input`, `loop` (the device, or what else the loop's body waits for) or `cpu`.
    """

    steps_per_s: float
    limited_by: str


def forecast(times: PipelineTimes, width: Width) -> Forecast:
    """Steady speed with so many workers.

    Args:
        times: of the loop and of making batches, at least one each.
        width: workers, and how far ahead they may be.

    Example:
        >>> times = PipelineTimes([10_000_000], 1e6, [30_000_000], 25e6, 0.0, cpus=8)
        >>> [round(forecast(times, Width(workers, 2 * workers)).steps_per_s) for workers in (0, 1, 2, 3, 4)]
        [25, 30, 61, 91, 100]
    """
    if width.caches:
        times = times.cached()
    waiting = times.readers / width.readers  # what is left of a batch's waits
    batches = [
        batch_ns - (1 - waiting) * max(batch_ns - times.batch_cpu_ns, 0.0) if waiting != 1 else float(batch_ns)
        for batch_ns in times.batch_ns
    ]
    body_ns, batch_ns = _mean(times.body_ns), _mean(batches)
    if not width.workers:
        step_ns = body_ns + batch_ns
        return Forecast(NS_PER_S / step_ns, "loop" if step_ns <= _NEARLY * body_ns else "input")
    batches = [batch_ns + times.send_ns for batch_ns in batches]
    times = replace(times, batch_cpu_ns=times.batch_cpu_ns + times.send_ns)
    batch_ns += times.send_ns
    receive_ns = 0.0 if width.receives_ahead else times.receive_ns
    body_ns += receive_ns
    steady = replace(width, starts=False)
    if steady not in times.simulated:
        speeds = _speeds(times, width.workers, body_ns=body_ns, batch_ns=batch_ns)
        bodies = [one_ns + receive_ns for one_ns in times.body_ns]
        times.simulated[steady] = _simulate(width, bodies, batches, speeds)
    one_by_one_ns = times.receive_ns if width.receives_ahead else 0.0  # by a single thread
    step_ns = max(times.simulated[steady], one_by_one_ns) + _start_ns(times, width)
    cpu_ns = (times.body_cpu_ns + WORKER_OVERHEAD * times.batch_cpu_ns + times.receive_ns) / times.cpus
    if _NEARLY * cpu_ns >= step_ns:
        return Forecast(NS_PER_S / step_ns, "cpu")
    return Forecast(NS_PER_S / step_ns, "loop" if step_ns <= _NEARLY * body_ns else "input")


def _start_ns(times: PipelineTimes, width: Width) -> float:
    """A step's part in the start of its epoch: workers may have to be started, and the first batch is waited for."""
    starting_ns = width.workers * times.start_ns if width.starts else 0.0
    return (starting_ns + WORKER_OVERHEAD * _mean(times.batch_ns)) / times.epoch_steps


_LEAST_LEFT = 0.01  # of a batch whose results are all found again: finding them takes time

_NEARLY = 1.02  # a choice: within 2 % of the loop alone it is the loop that limits


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _shuffled(values: Sequence[float], count: int) -> list[float]:
    """So many: all of them again and again, each time in another order, so that no worker meets the same ones."""
    chance, made = random.Random(0), list[float]()
    while len(made) < count:
        made += chance.sample(values, len(values))
    return made


class _Speeds(NamedTuple):
    """Speeds of a worker and of the loop, against having a core each."""

    worker: float
    loop: float


def _speeds(times: PipelineTimes, workers: int, *, body_ns: float, batch_ns: float) -> list[tuple[_Speeds, _Speeds]]:
    """For each number of busy workers: beside a loop that waits, and beside one that works."""
    batch_part = min(times.batch_cpu_ns / max(batch_ns, 1.0), 1.0)
    body_cores = (times.body_cpu_ns + times.receive_ns) / max(body_ns, 1.0)  # of all its threads
    body_part = min(body_cores, 1.0)

    def speeds(busy: int, in_body: int) -> _Speeds:
        def at(share: float) -> _Speeds:
            """Where each gets this share of the CPU time that it wants."""
            return _Speeds(*(1 / ((1 - part) + part / share) for part in (batch_part, body_part)))

        def wanted(share: float) -> float:
            found = at(share)
            return busy * batch_part * found.worker + in_body * body_cores * found.loop

        if wanted(1.0) <= times.cpus:
            return at(1.0)
        least, most = times.cpus / (busy + in_body * max(body_cores, 1.0) + times.cpus), 1.0
        for _ in range(_BISECTIONS):
            middle = (least + most) / 2
            least, most = (least, middle) if wanted(middle) > times.cpus else (middle, most)
        return at(least)

    return [(speeds(busy, 0), speeds(busy, 1)) for busy in range(workers + 1)]


_BISECTIONS = 12  # a share to a part in 4,000


def _simulate(
    width: Width, bodies: Sequence[float], batches: Sequence[float], speeds: Sequence[tuple[_Speeds, _Speeds]]
) -> float:
    """A step's mean time once the pipeline is full, ns."""
    workers = width.workers
    ahead = max(width.ahead, workers)
    first = ahead + workers
    batches = _shuffled(batches, first + SIMULATED_STEPS + ahead)
    mine = list(range(workers))  # the next batch of each worker
    idle = set(range(workers))
    busy: list[tuple[float, int]] = []  # when each is done, on a clock that goes as fast as workers do; a heap
    done: set[int] = set()
    taken = steps = 0
    now_ns = clock_ns = left_ns = begun_ns = 0.0
    is_in_body = False
    while steps < first + SIMULATED_STEPS:
        for worker in [worker for worker in idle if mine[worker] < taken + ahead]:
            idle.remove(worker)
            heappush(busy, (clock_ns + WORKER_OVERHEAD * batches[mine[worker]], worker))
        if not is_in_body and taken in done:
            done.remove(taken)
            is_in_body, left_ns = True, bodies[taken % len(bodies)]
            taken += 1
            continue
        speed = speeds[len(busy)][is_in_body]
        until_batch_ns = (busy[0][0] - clock_ns) / speed.worker if busy else math.inf
        until_body_ns = left_ns / speed.loop if is_in_body else math.inf
        passed_ns = min(until_batch_ns, until_body_ns)
        now_ns += passed_ns
        clock_ns += passed_ns * speed.worker
        left_ns -= passed_ns * speed.loop
        if until_body_ns <= until_batch_ns:
            is_in_body = False
            steps += 1
            if steps == first:
                begun_ns = now_ns
        else:
            worker = heappop(busy)[1]
            done.add(mine[worker])
            mine[worker] += workers
            idle.add(worker)
    return (now_ns - begun_ns) / SIMULATED_STEPS
