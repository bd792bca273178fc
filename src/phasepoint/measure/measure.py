"""Leveled measurement: the same work with no profiler, with layers, with ops and kernels, and with counters, in turns.

Source: C. Li et al., "XSP: Across-Stack Profiling and Analysis of Machine Learning Models on GPUs", IPDPS 2020, III-C.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from phasepoint.core.errors import RecordError, UsageError
from phasepoint.measure.instrument import FRAMEWORKS, Instrument, LevelClocks, Sampler, frameworks_of, make_instrument
from phasepoint.measure.levels import LEVEL_ORDER, level_samples
from phasepoint.measure.regions import launched_sampler
from phasepoint.measure.result import LEVEL_NAMES, Level, LeveledMeasurement, NotMeasured

DEFAULT_LEVELS: tuple[Level, ...] = ("M", "L", "K")
DEFAULT_REPEATS = 10  # a choice: six are left once a fifth is trimmed from each side


def measure(
    fn: Callable[..., object],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    levels: Iterable[str] = DEFAULT_LEVELS,
    repeats: int = DEFAULT_REPEATS,
    warmups: int = 2,
    patience: int = 0,
    framework: str | None = None,
    instrument: Instrument | None = None,
    clocks: LevelClocks | None = None,
) -> LeveledMeasurement:
    """Measure a function at several levels, each level's latency from the runs of that level.

    Every run calls `fn(*args, **kwargs)` twice and waits for the results; the second call counts. Levels take turns,
    forwards in one round and backwards in the next, so that a machine that grows slower does so for all of them.

    Args:
        fn: the work: a PyTorch function or module, or a jitted JAX function.
        args: its arguments.
        kwargs: its keyword arguments.
        levels: of M (always run), L, K (needs L), C.
        repeats: runs at each level, ≥ 1.
        warmups: runs at each level before those that count.
        patience: how often a run is made again, at most, in which other processes took a processor away.
        framework: torch or jax; told by the arguments and the result where it is not given.
        instrument: what measures; the framework's own where it is not given.
        clocks: the clocks; the machine's where they are not given.

    Returns:
        The levels, layers and ops. Under `phasepoint stack measure`, of the levels that this process is run for.

    Raises:
        UsageError: unknown levels, too few repeats, or a framework that cannot be told.

    Example:
        >>> import torch
        >>> found = measure(torch.nn.Linear(8, 8), [torch.ones(2, 8)], levels="ML", repeats=3)
        >>> sum(layer.latency_ps for layer in found.layers) + found.unattributed_ps == found.model_ps
        True
    """
    chosen = choose_levels(levels)
    if repeats < 1 or warmups < 0:
        raise UsageError(f"repeats {repeats}, warmups {warmups}: expected at least 1 and 0")
    call = _TimedCall(fn, args, kwargs or {})
    launched = launched_sampler()
    if launched is not None:
        chosen = launched.levels
    if instrument is None:
        instrument = make_instrument(framework or _framework_of(call))
    sampler = Sampler(instrument, clocks)
    chosen, unavailable = _warm_up(sampler, call, chosen, warmups)
    for number in range(repeats):
        for level in chosen if number % 2 == 0 else reversed(chosen):
            call.run(sampler, level, patience=patience)
    if launched is not None:
        launched.hand_over(sampler, unavailable)
    return level_samples(
        sampler.samples,
        framework=instrument.framework,
        framework_version=instrument.version(),
        devices=tuple(instrument.devices()),
        unavailable=(*unavailable, *_missing_counters(chosen)),
    )


def choose_levels(levels: Iterable[str]) -> tuple[Level, ...]:
    """The levels in their order, M always among them.

    Raises:
        UsageError: an unknown level, or K without L.
    """
    wanted = {level.strip().upper() for level in levels}
    unknown = sorted(wanted - set(LEVEL_NAMES))
    if unknown:
        known = ", ".join(f"{level} ({name})" for level, name in LEVEL_NAMES.items())
        raise UsageError(f"no level {', '.join(map(repr, unknown))}; the levels are {known}")
    if "K" in wanted and "L" not in wanted:
        raise UsageError("level K needs L: ops are held against the latency of their layer")
    return tuple(level for level in LEVEL_ORDER if level in wanted | {"M"})


PRIMING_CALLS, PRIMING_NS = 5, 50_000_000
"""So many calls go before the one that counts, or so long. After a profiled run the next ones take 78, 13, 4, 4 and 1 %
longer than usual (an LSTM of 1 ms in PyTorch, two x86-64 cores, medians of 12, 2026-11-21): profilers cool caches."""


class _TimedCall:
    """The work: a function and its arguments."""

    def __init__(self, fn: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.fn, self.args, self.kwargs = fn, tuple(args), dict(kwargs)

    def once(self) -> object:
        """Call it."""
        return self.fn(*self.args, **self.kwargs)

    def run(self, sampler: Sampler, level: Level, *, patience: int = 0) -> None:
        """Take one sample of it; up to `patience` times another instead, while other processes are in the way."""
        taken = len(sampler.samples)
        while len(sampler.samples) == taken:
            context = sampler.sample(level, drain=False, prime=lambda: self.warm(sampler), undisturbed=patience > 0)
            with context:
                self.ready(sampler)
            patience -= 1

    def warm(self, sampler: Sampler) -> None:
        """Call it until the processor's caches hold it again."""
        begin_ns = sampler.now_ns()
        for _ in range(PRIMING_CALLS):
            self.ready(sampler)
            if sampler.now_ns() - begin_ns >= PRIMING_NS:
                return

    def ready(self, sampler: Sampler) -> None:
        """Call it and wait for the result."""
        sampler.instrument.wait(self.once())


def _warm_up(
    sampler: Sampler, call: _TimedCall, levels: Sequence[Level], warmups: int
) -> tuple[tuple[Level, ...], tuple[NotMeasured, ...]]:
    """Run every level for nothing; the levels that work, and why others do not."""
    works: list[Level] = []
    unavailable: list[NotMeasured] = []
    for level in levels:
        try:
            for _ in range(max(warmups, 1)):
                call.run(sampler, level)
            works.append(level)
        except RecordError as error:
            unavailable.append(NotMeasured(level, str(error)))
    sampler.samples.clear()
    return tuple(level for level in works if level != "K" or "L" in works), tuple(unavailable)


def _missing_counters(levels: Sequence[Level]) -> tuple[NotMeasured, ...]:
    if "C" not in levels:
        return ()
    from phasepoint.measure.counters import available_counters

    reason = available_counters()[1]
    return () if reason is None else (NotMeasured("counters", reason),)


def _framework_of(call: _TimedCall) -> str:
    """The framework whose values go in, or whose module it is, or whose values come out.

    Raises:
        UsageError: none of them is, or both are.
    """
    found = frameworks_of([call.fn, *call.args, *call.kwargs.values()])
    if len(found) != 1:
        imported = {name for name in FRAMEWORKS if name in sys.modules}
        found = imported if len(imported) == 1 else found | frameworks_of([call.once()])
    if len(found) != 1:
        raise UsageError("neither the arguments nor the result say whether this is torch or jax; give framework=")
    return found.pop()
