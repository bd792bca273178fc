"""How fast a loop would run with other workers: a simulation of its pipeline from times measured in place.

A batch is made by one of `workers`, in turn; finished batches are handed over in order, so that a slow one holds up
those behind it; at most `ahead` batches are begun and not yet taken. The loop takes a batch over and works on it. Times
are those that were measured, one after the other, tails and all: what a mean would hide (a slow sample in fifty) is
what makes a short queue run dry.

Two bounds hold beside the simulation: the loop alone, and the CPU time of a step over the cores there are (operational
laws; Denning and Buzen, "The Operational Analysis of Queueing Network Models", Computing Surveys 10, 1978).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from phasepoint.core.units import NS_PER_S

SIMULATED_STEPS = 240
"""A choice: enough for a tail of one in fifty to be met several times; 0.3 ms for each setting."""

WORKER_OVERHEAD = 1.1
"""What making a batch takes in a worker, over what is timed there: handing it over, and sharing the cores' caches."""

KEPT_TIMES = 512
"""Of the last steps and batches."""


@dataclass(frozen=True)
class Width:
    """What a setting means for the pipeline.

    Attributes:
        workers: that make batches beside the loop; 0 where the loop's own thread makes them.
        ahead: batches that may be begun and not yet taken; 0 with no worker.
        readers: requests that the making of one batch waits for at a time.
    """

    workers: int
    ahead: int
    readers: int = 1


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
        readers: with which batches were made.
    """

    body_ns: Sequence[int]
    body_cpu_ns: float
    batch_ns: Sequence[int]
    batch_cpu_ns: float
    receive_ns: float
    cpus: float
    readers: int = 1

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
    receive_ns = times.receive_ns if width.workers else 0.0
    step_ns = _simulate(times, width, receive_ns)
    cpu_ns = (times.body_cpu_ns + times.batch_cpu_ns + receive_ns) / times.cpus
    body_ns = sum(times.body_ns) / len(times.body_ns) + receive_ns
    if cpu_ns >= step_ns:
        return Forecast(NS_PER_S / cpu_ns, "cpu")
    return Forecast(NS_PER_S / step_ns, "loop" if step_ns <= _NEARLY * body_ns else "input")


_NEARLY = 1.02  # a choice: within 2 % of the loop alone it is the loop that limits


def _simulate(times: PipelineTimes, width: Width, receive_ns: float) -> float:
    """A step's mean time once the pipeline is full, ns."""
    bodies = times.body_ns
    waiting = times.readers / width.readers  # what is left of a batch's waits
    batches = [
        batch_ns - (1 - waiting) * max(batch_ns - times.batch_cpu_ns, 0.0) if waiting != 1 else batch_ns
        for batch_ns in times.batch_ns
    ]
    if not width.workers:
        return sum(bodies) / len(bodies) + sum(batches) / len(batches)
    ahead = max(width.ahead, width.workers)
    first = ahead + width.workers
    free: list[float] = [0.0] * width.workers  # when each worker has done its last batch; a heap
    asked: list[float] = [0.0] * ahead  # when the place of batch i in the queue becomes free
    loop_ns = begun_ns = 0.0
    for i in range(first + SIMULATED_STEPS):
        done_ns = max(heappop(free), asked[i % ahead]) + WORKER_OVERHEAD * batches[i % len(batches)]
        heappush(free, done_ns)
        taken_ns = max(loop_ns, done_ns) + receive_ns
        asked[i % ahead] = taken_ns
        if i == first:
            begun_ns = loop_ns
        loop_ns = taken_ns + bodies[i % len(bodies)]
    return (loop_ns - begun_ns) / SIMULATED_STEPS
