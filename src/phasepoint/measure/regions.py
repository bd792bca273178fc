"""`with phasepoint.stack.region():` marks the work of a script that `phasepoint stack measure` runs."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from phasepoint.core.errors import RecordError, UsageError
from phasepoint.measure.instrument import Sampler
from phasepoint.measure.result import Level, NotMeasured, sample_to_plain

VARIABLE = "PHASEPOINT_MEASURE"
"""Environment variable that holds, as JSON, what a process of `phasepoint stack measure` is run for."""

DEFAULT_NAME = "region"

STEP, FORWARD = FOUND = ("step (found)", "forward (found)")
"""Names of work that the script did not mark itself, in the order in which they are preferred."""

_NEEDS: dict[Level, tuple[Level, ...]] = {"M": ("M",), "L": ("M", "L"), "K": ("M", "L", "K"), "C": ("M", "C")}


@dataclass(frozen=True)
class MeasureOptions:
    """What a process is run for.

    Attributes:
        level: its level.
        out: file that samples go to, a JSON document a line.
        framework: torch or jax, None to see for itself.
    """

    level: Level
    out: str
    framework: str | None = None

    def to_environ(self) -> str:
        """The value of `VARIABLE`."""
        return json.dumps(asdict(self))


@contextmanager
def region(name: str = DEFAULT_NAME) -> Iterator[None]:
    """Mark the work to be measured: one run of it is one pass through this block.

    It does nothing unless `phasepoint stack measure` runs the script. The block begins and ends with the device idle.

    Args:
        name: what the work is called; regions of different names are measured apart.

    Raises:
        UsageError: under `phasepoint stack measure`: neither or both of torch and jax have been imported.

    Example:
        with phasepoint.stack.region("forward"):
            model(batch)
    """
    launched = launched_sampler()
    if launched is None:
        yield
        return
    launched.when_marked()
    if not launched.begin():
        yield
        return
    try:
        with launched.taking(name):
            yield
    finally:
        launched.end()


def launched_sampler() -> "LaunchedSampler | None":
    """What takes this process's samples, None where `phasepoint stack measure` did not start it."""
    value = os.environ.get(VARIABLE)
    return None if not value else _sampler_of(value, os.getpid())


@cache
def _sampler_of(value: str, pid: int) -> "LaunchedSampler":
    return LaunchedSampler(MeasureOptions(**json.loads(value)))


class LaunchedSampler:
    """Takes samples at the level that the process is run for, and writes each to the file at once.

    Attributes:
        levels: what `measure` runs in this process.
        when_marked: called when the script marks its work: nothing needs to be looked for.
    """

    def __init__(self, options: MeasureOptions) -> None:
        self.levels: tuple[Level, ...] = _NEEDS[options.level]
        self._options = options
        self._sampler: Sampler | None = None
        self._busy = threading.Lock()
        self.when_marked: Callable[[], None] = lambda: None

    def begin(self) -> bool:
        """Whether this is the outermost region; one inside another, or beside it on another thread, is part of it."""
        return self._busy.acquire(blocking=False)

    def end(self) -> None:
        """The outermost region is over."""
        self._busy.release()

    @contextmanager
    def taking(self, name: str) -> Iterator[None]:
        """Take a sample of the body. Where the level cannot be measured the body runs alone, and the file says why."""
        sampler = self._sampler or self._make_sampler()
        context = sampler.sample(self._options.level)
        try:
            context.__enter__()
        except RecordError as error:
            self._write({"unavailable": {"what": self._options.level, "reason": str(error)}})
            yield
            return
        try:
            yield
        except BaseException as error:
            context.__exit__(type(error), error, error.__traceback__)
            raise
        context.__exit__(None, None, None)
        self._hand_over_samples(sampler, name)

    def hand_over(self, sampler: Sampler, unavailable: Sequence[NotMeasured]) -> None:
        """Write the samples of this process's level that `measure` took."""
        self._write_head(sampler)
        for one in unavailable:
            self._write({"unavailable": asdict(one)})
        for sample in sampler.samples:
            if sample.level == self._options.level:
                self._write({"region": "measure", "sample": sample_to_plain(sample), "warm": True})

    def _hand_over_samples(self, sampler: Sampler, name: str) -> None:
        for sample in sampler.samples:
            self._write({"region": name, "sample": sample_to_plain(sample), "warm": False})
        sampler.samples.clear()

    def _make_sampler(self) -> Sampler:
        from phasepoint.measure.instrument import FRAMEWORKS, make_instrument

        framework = self._options.framework
        if framework is None:
            imported = [name for name in FRAMEWORKS if name in sys.modules]
            if len(imported) != 1:
                seen = "both torch and jax are" if imported else "neither torch nor jax is"
                raise UsageError(f"{seen} imported where the region begins; say which: --framework torch")
            framework = imported[0]
        self._sampler = Sampler(make_instrument(framework))
        self._write_head(self._sampler)
        if self._options.level == "C":
            self._write_missing_counters()
        return self._sampler

    def _write_missing_counters(self) -> None:
        from phasepoint.measure.counters import available_counters

        found, reason = available_counters()
        if found and reason is not None:
            self._write({"unavailable": {"what": "counters", "reason": reason}})

    def _write_head(self, sampler: Sampler) -> None:
        one = sampler.instrument
        self._write({"framework": one.framework, "version": one.version(), "devices": one.devices()})

    def _write(self, line: dict[str, Any]) -> None:
        with Path(self._options.out).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
