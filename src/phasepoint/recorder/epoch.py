"""The session's clock: readings of a monotonic counter, and what they mean in Unix time."""

import time
from collections.abc import Callable

from msgspec import Struct

from phasepoint.core.units import PS_PER_NS
from phasepoint.recorder.busy import busy_ns
from phasepoint.recorder.process_age import process_age_ps


class Clock(Struct, frozen=True):
    """Where the recorder's times come from; tests give their own.

    Attributes:
        now_ns: monotonic nanoseconds (`time.perf_counter_ns`); every time in a run is a difference of two of these.
        unix_ns: Unix nanoseconds, read once for the epoch and then to notice that the machine's clock was set.
        cpu_ns: CPU nanoseconds of the calling thread.
        busy_ns: nanoseconds by which the calling thread's share of the recorder's costs is timed (`busy.busy_ns`);
            unlike `now_ns` never made to stand.
        process_age_ps: time since the process began, None where that is not known.
    """

    now_ns: Callable[[], int] = time.perf_counter_ns
    unix_ns: Callable[[], int] = time.time_ns
    cpu_ns: Callable[[], int] = time.thread_time_ns
    busy_ns: Callable[[], int] = busy_ns
    process_age_ps: Callable[[], int | None] = process_age_ps


class Epoch(Struct, frozen=True):
    """Time 0 of a session, on both clocks.

    Attributes:
        now_ns: the monotonic clock at the epoch.
        unix_ns: Unix nanoseconds at the epoch.
        process_age_ps: age of the process then, None where it is not known.
    """

    now_ns: int
    unix_ns: int
    process_age_ps: int | None = None

    def to_ps(self, now_ns: int) -> int:
        """Picoseconds from the epoch to a reading of the monotonic clock."""
        return (now_ns - self.now_ns) * PS_PER_NS


def start_epoch(clock: Clock) -> Epoch:
    """Pair the two clocks now, to within half of the time between two readings (measured: under 1 µs)."""
    before_ns = clock.now_ns()
    unix_ns = clock.unix_ns()
    after_ns = clock.now_ns()
    return Epoch((before_ns + after_ns) // 2, unix_ns, clock.process_age_ps())
