"""The last steps of the loop: waits, bodies, what batches took, and the CPU time of the process meanwhile."""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median, stdev

from phasepoint.tune.cache import Cacheable
from phasepoint.tune.certificate import PRIOR_SPREAD
from phasepoint.tune.limits import run_delay_ns
from phasepoint.tune.pipeline import KEPT_TIMES, USUAL_START_NS, PipelineTimes, Width
from phasepoint.tune.source import BatchTime

_USUAL_RECEIVE_NS = 300_000
"""Taking a batch of a few arrays over from another process, before it was measured: 0.1 to 0.5 ms (2 cores)."""

_RECEIVE_ARRAY_NS, _SEND_ARRAY_NS = 130_000, 130_000
"""Of each array of a batch of many, whose memory is shared by a handle of its own: batches of 50, 150 and 300 arrays
took 260 to 280 µs an array in all, 132 to 150 of them in the loop (2 cores, PyTorch 2.13, 2026-11-26)."""


_LEAST_SPREAD, _MOST_SPREAD = 0.02, 0.5  # steps that seem not to scatter at all, and those beyond telling


_LEAST_RECEIVES = 5  # batches that were ready, before what taking them over took is believed

_FRESH = 16  # batches that show that those before are old

_KEPT_STARTS = 8  # of the last epochs


def _times() -> deque[int]:
    return deque(maxlen=KEPT_TIMES)


@dataclass
class LoopTimes:
    """Times since the setting in force was taken up, the last `KEPT_TIMES` of each kind."""

    now_ns: Callable[[], int] = time.perf_counter_ns
    cpu_ns: Callable[[], int] = time.process_time_ns
    waits_ns: deque[int] = field(default_factory=_times)
    bodies_ns: deque[int] = field(default_factory=_times)
    batches: deque[BatchTime] = field(default_factory=lambda: deque(maxlen=KEPT_TIMES))
    receives_ns: deque[int] = field(default_factory=_times)
    starts_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_KEPT_STARTS))
    steps: int = 0
    _began_ns: int = 0
    _began_cpu_ns: int = 0
    _began_delay_ns: int = 0
    _got_ns: int | None = None

    def restart(self) -> None:
        """A setting was taken up, or what was measured holds no more; the times of batches stay what they are."""
        self.waits_ns.clear()
        self.bodies_ns.clear()
        self.steps = 0
        self._got_ns = None

    def asked(self, asked_ns: int) -> None:
        """The loop asks for a batch: the body of the step before is over."""
        if self._got_ns is not None:
            self.bodies_ns.append(asked_ns - self._got_ns)
        if not self.steps:
            self._began_ns, self._began_cpu_ns, self._began_delay_ns = asked_ns, self.cpu_ns(), run_delay_ns()
        self.steps += 1

    def got(
        self,
        asked_ns: int,
        got_ns: int,
        batch: BatchTime | None,
        *,
        was_ready: bool = False,
        begins_epoch: bool = False,
    ) -> None:
        """It has its batch."""
        self.waits_ns.append(got_ns - asked_ns)
        if was_ready:
            self.receives_ns.append(got_ns - asked_ns)
        if begins_epoch:
            self.starts_ns.append(got_ns - asked_ns)
        self._got_ns = got_ns
        if batch is not None:
            self.batches.append(batch)

    def pause(self) -> None:
        """The loop ended: what comes before the next one's first batch is no step."""
        self._got_ns = None

    @property
    def elapsed_ns(self) -> int:
        """Since the first step that is counted."""
        return self.now_ns() - self._began_ns if self.steps else 0

    @property
    def longest_batch_ns(self) -> int:
        """Of those that were timed."""
        return max((batch.wall_ns for batch in self.batches), default=0)

    @property
    def step_ns(self) -> float:
        """Mean time of a step."""
        return (sum(self.waits_ns) + sum(self.bodies_ns)) / max(len(self.bodies_ns), 1)

    @property
    def delay_ns(self) -> float:
        """What the loop's thread waited for a core, of a step in the mean."""
        return (run_delay_ns() - self._began_delay_ns) / self.steps if self.steps else 0.0

    def spread(self, counted: int) -> float:
        """Of the log ratio of two blocks of so many steps, as far as the last steps tell."""
        steps_ns = [wait + body for wait, body in zip(self.waits_ns, self.bodies_ns, strict=False)]
        if len(steps_ns) < 2:
            return PRIOR_SPREAD
        scatter = stdev(steps_ns) / (sum(steps_ns) / len(steps_ns))
        return min(max(scatter * math.sqrt(2 / counted), _LEAST_SPREAD), _MOST_SPREAD)

    @property
    def wait_ratio(self) -> float:
        """Share of the time in which the loop waited for a batch."""
        waits_ns, bodies_ns = sum(self.waits_ns), sum(self.bodies_ns)
        return waits_ns / max(waits_ns + bodies_ns, 1)

    def usual_wait_ratio(self, steps: int) -> float:
        """The median wait of the last so many steps over the median step; 0 where there were fewer."""
        if len(self.waits_ns) < steps or len(self.bodies_ns) < steps:
            return 0.0
        wait_ns, body_ns = (median(list(kept)[-steps:]) for kept in (self.waits_ns, self.bodies_ns))
        return wait_ns / max(wait_ns + body_ns, 1)

    def pipeline(self, width: Width, *, cpus: float, epoch_steps: float = math.inf) -> PipelineTimes | None:
        """What the model needs, as it would be with a core for everybody; None where no batch was timed.

        Args:
            width: of the setting in force: whether the loop's own thread made the batches, so that their CPU time is
                the process' too, and how many requests each waited for at a time.
            cpus: cores that the job may use.
            epoch_steps: of an epoch.
        """
        in_loop = not width.workers
        if not self.batches or not self.bodies_ns:
            return None
        self._leave_old_batches()
        batch_delay_ns = sum(batch.delay_ns for batch in self.batches) / len(self.batches)
        delay_ns = max(self.delay_ns - (batch_delay_ns if in_loop else 0.0), 0.0)  # of the body alone
        batch_cpu_ns = sum(batch.cpu_ns for batch in self.batches) / len(self.batches)
        process_ns = (self.cpu_ns() - self._began_cpu_ns) / self.steps
        return PipelineTimes(
            body_ns=[max(int(body_ns - delay_ns), body_ns // 2) for body_ns in self.bodies_ns],
            body_cpu_ns=max(process_ns - (batch_cpu_ns if in_loop else 0.0), 0.0),
            batch_ns=[batch.wall_ns - batch.delay_ns for batch in self.batches],
            batch_cpu_ns=batch_cpu_ns,
            receive_ns=self._receive_ns(),
            send_ns=_SEND_ARRAY_NS * self._arrays,
            cpus=cpus,
            readers=width.readers,
            start_ns=self._start_ns() / width.workers if width.starts else USUAL_START_NS,
            epoch_steps=epoch_steps,
            saved_ns=max(self._mean_of(lambda kept: kept.made_ns - kept.kept_ns), 0.0),
            cache_bytes=self._mean_of(lambda kept: kept.size_bytes),
        )

    def _leave_old_batches(self) -> None:
        """Where the last batches take twice as long as those before, or half, only they say what the next ones take."""
        walls_ns = [batch.wall_ns for batch in self.batches]
        before, last = walls_ns[:-_FRESH], walls_ns[-_FRESH:]
        if len(before) >= _FRESH and not 0.5 <= median(last) / max(median(before), 1) <= 2:
            for _ in before:
                self.batches.popleft()

    def _mean_of(self, value: Callable[[Cacheable], int]) -> float:
        """Of what can be kept of the batches."""
        return sum(value(batch.cacheable) for batch in self.batches) / len(self.batches)

    def _receive_ns(self) -> float:
        """The lower quartile: some of those that seemed ready were another's batch."""
        if len(self.receives_ns) < _LEAST_RECEIVES:
            return max(_USUAL_RECEIVE_NS, _RECEIVE_ARRAY_NS * self._arrays)
        return sorted(self.receives_ns)[len(self.receives_ns) // 4]

    @property
    def _arrays(self) -> float:
        """Of a batch."""
        return sum(batch.arrays for batch in self.batches) / max(len(self.batches), 1)

    def _start_ns(self) -> float:
        """What an epoch's first batch takes beside being made."""
        if not self.starts_ns:
            return float(USUAL_START_NS)
        return max(median(self.starts_ns) - median(batch.wall_ns for batch in self.batches), 0.0)
