"""What leveled measurement asks of a framework: an instrument for each level, in place during a run.

Which framework makes the work, and the instrument it has.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from phasepoint.core.errors import UsageError
from phasepoint.core.units import PS_PER_NS
from phasepoint.measure.result import InstrumentReading, Level, Sample


class Instrument(Protocol):
    """One framework's instruments for the levels M, L and K, at most one open at a time.

    Attributes:
        framework: torch or jax.
    """

    framework: str

    def version(self) -> str:
        """The framework's version."""
        ...

    def devices(self) -> list[str]:
        """The process's devices."""
        ...

    def drain(self) -> None:
        """Wait until the device has finished what was dispatched."""
        ...

    def wait(self, result: object) -> None:
        """Wait until the result of the work is there."""
        ...

    def open(self, level: Level) -> None:
        """Put in place what the level needs. Not timed.

        Raises:
            RecordError: the level cannot be measured now; nothing is left in place.
        """
        ...

    def begin(self) -> None:
        """What has run since `open` was to warm up; what runs from now on counts. Not timed."""
        ...

    def close(self, *, read: bool = True) -> InstrumentReading:
        """Take it out again and say what was seen; nothing where it need not be read. Not timed."""
        ...


def _involuntary_switches() -> int:
    """How often the system has taken a processor away from a thread of this process."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


@dataclass(frozen=True)
class LevelClocks:
    """The clocks of a measurement, in nanoseconds; tests give their own."""

    wall_ns: Callable[[], int] = time.perf_counter_ns
    cpu_ns: Callable[[], int] = time.process_time_ns
    switches: Callable[[], int] = _involuntary_switches


class Sampler:
    """Takes samples of work, one after the other, at whatever level each is asked for."""

    def __init__(self, instrument: Instrument, clocks: LevelClocks | None = None) -> None:
        self.instrument = instrument
        self.samples: list[Sample] = []
        self._clocks = clocks or LevelClocks()

    def now_ns(self) -> int:
        """The wall clock of the samples."""
        return self._clocks.wall_ns()

    @contextmanager
    def sample(
        self, level: Level, *, drain: bool = True, prime: Callable[[], object] | None = None, undisturbed: bool = False
    ) -> Iterator[None]:
        """Time the body at a level and keep the sample; a body that raises leaves none.

        Python's garbage collector waits meanwhile: what the instruments allocate would make it run more often.

        Args:
            level: the level.
            drain: whether the body's end waits for the device; a body that waits for its own result needs it not.
            prime: run before the body with the level's instruments in place, so that neither they nor the work find
                the processor's caches cold.
            undisturbed: whether to leave the sample out where others took a processor away meanwhile.

        Raises:
            RecordError: the level cannot be measured.
        """
        from phasepoint.measure.counters import counting

        instrument, clocks = self.instrument, self._clocks
        instrument.drain()
        instrument.open(level)
        collects = gc.isenabled()
        gc.disable()
        done = False
        try:
            if prime is not None:
                prime()
            with counting(level == "C") as counters:
                instrument.begin()
                start_switches, start_cpu_ns, start_ns = clocks.switches(), clocks.cpu_ns(), clocks.wall_ns()
                yield
                if drain:
                    instrument.drain()
                end_ns, end_cpu_ns, switches = clocks.wall_ns(), clocks.cpu_ns(), clocks.switches() - start_switches
                counted = counters()
            done = not (undisturbed and switches)
        finally:
            if collects:
                gc.enable()
            evidence = instrument.close(read=done)
        if done:
            if counted:
                evidence = InstrumentReading(counters=counted)
            times = ((end_ns - start_ns) * PS_PER_NS, (end_cpu_ns - start_cpu_ns) * PS_PER_NS)
            self.samples.append(Sample(level, *times, switches, evidence))


FRAMEWORKS = ("torch", "jax")

_HOMES = {"torch": "torch", "jax": "jax", "jaxlib": "jax", "flax": "jax"}
"""Package that a value's class comes from → framework."""


def make_instrument(framework: str) -> Instrument:
    """The instrument of a framework that has been imported.

    Raises:
        UsageError: there is no such framework.
        MissingExtraError: it is not installed.
    """
    from importlib import import_module

    from phasepoint.core.errors import MissingExtraError

    if framework not in FRAMEWORKS:
        raise UsageError(f"framework {framework!r}: expected {' or '.join(FRAMEWORKS)}")
    try:
        import_module(framework)
    except ImportError as error:
        raise MissingExtraError(f"{framework} is not installed: pip install 'phasepoint[{framework}]'") from error
    if framework == "torch":
        from phasepoint.measure.torch import TorchInstrument

        return TorchInstrument()
    from phasepoint.measure.jax import JaxInstrument

    return JaxInstrument()


def frameworks_of(values: Iterable[Any]) -> set[str]:
    """Frameworks of the values, looking into lists, tuples and mappings."""
    found: set[str] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, Mapping):
            waiting += value.values()
        else:
            found |= {_HOMES.get(base.__module__.partition(".")[0], "") for base in type(value).__mro__}
    return found & set(FRAMEWORKS)
