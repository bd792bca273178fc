"""`loader`: what users call, and the `TunedLoader` that they get."""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakMethod, finalize

from phasepoint.recorder.resume.request import VARIABLE as REPLAY_VARIABLE
from phasepoint.tune.adapters import adapt
from phasepoint.tune.apply import Applied, this_machine
from phasepoint.tune.journal import RunJournal, TrialEnd, TuneState, TuneVerdict
from phasepoint.tune.knobs import Effect, Knob, allowed_knobs
from phasepoint.tune.limits import parse_bytes, tree_bytes, usable_cpus, usable_memory_bytes
from phasepoint.tune.live.memory_watch import MemoryWatch
from phasepoint.tune.live.tuner import LoaderPass, Tuner

if TYPE_CHECKING:
    from phasepoint.recorder import Recording

Batch = TypeVar("Batch")


def loader(
    make_loader: Callable[..., Iterable[Batch]],
    *,
    run: "Recording | None" = None,
    memory: str | int | None = None,
    cpus: int | None = None,
    knobs: Mapping[str, Sequence[Any]] | Sequence[Knob] | None = None,
    allow: Sequence[str] = (),
    name: str = "loader",
    seed: int = 0,
) -> "TunedLoader[Batch]":
    """A loader that is tuned while the job runs.

    The order of samples and what is in the batches stay as they are without tuning. What is tried was predicted to be
    faster, is compared on the job's own steps, and goes back at once where it is not.

    Args:
        make_loader: makes the loader from values of knobs: `lambda **knobs: DataLoader(data, batch_size=64, **knobs)`.
            Without any it makes the loader as it would be without tuning.
        run: the recording that keeps what was tried; None is the one in progress, if there is one.
        memory: most that the process and all that it starts may take: `"8GB"`; None is nine tenths of the machine's.
        cpus: cores that loading and training may use; None is all that the process may.
        knobs: what may be turned, and to which values, in place of what is found in the loader.
        allow: what may change beside speed: `cache`, `changes numerics`, `changes random numbers`, `changes order`.
            With `changes random numbers` each batch of a PyTorch loader has random numbers of its own, also where
            nothing is tuned, so that they depend on no worker.
        name: of this loader in the run, where there are several.
        seed: of the order in which settings are compared, and of random numbers where `allow` names them.

    Raises:
        ValueError: an argument is outside its range.
        TypeError: `make_loader` cannot be called without arguments.

    Example:
        >>> numbers = loader(lambda **knobs: range(3))
        >>> list(numbers), numbers.verdict
        ([0, 1, 2], 'undecided')
    """
    limit = usable_memory_bytes() if memory is None else parse_bytes(memory)
    if cpus is not None and cpus < 1:
        raise ValueError(f"cpus is {cpus!r}; expected 1 or more")
    cores = usable_cpus() if cpus is None else float(cpus)
    declared = _declared(knobs)
    allowed_knobs(declared, allow)
    applied = Applied.from_environ()
    try:
        written = make_loader()
    except TypeError as error:
        raise TypeError(
            f"make_loader could not be called without arguments ({error}); give each knob a default: "
            "lambda **knobs: DataLoader(data, batch_size=64, **knobs)"
        ) from error
    reseed = seed if Effect.RANDOM_NUMBERS in allow else None
    if applied.is_off and reseed is None:
        return TunedLoader(written, None, "tuning is switched off")
    source = adapt(
        make_loader, written, accepted=_accepted(make_loader), cpus=int(cores), declared=declared, reseed=reseed
    )
    if source is None:
        return TunedLoader(written, None, f"nothing is known to turn in a {type(written).__name__}")
    setting = {key: value for key, value in applied.settings.get(name, {}).items() if key in source.as_written}
    is_same_machine = applied.machine == this_machine()
    cache_bytes = WeakMethod(source.cache_bytes)  # the watch has a thread, which must not keep the loader
    tuner = Tuner(
        source,
        tuple(allow),
        cores,
        MemoryWatch(limit, lambda: tree_bytes() + (cache_bytes() or int)()),
        RunJournal(run, name),
        start={**source.as_written, **setting} if is_same_machine else None,
        first={**source.as_written, **setting} if setting and not is_same_machine else None,
        seed=seed,
        is_on=not applied.is_off and REPLAY_VARIABLE not in os.environ,
    )
    return TunedLoader(written, tuner, "")


class TunedLoader(Generic[Batch]):
    """Made by `loader`. What it does not have itself is the first loader's: `tuned.sampler`, `tuned.dataset`."""

    def __init__(self, written: Iterable[Batch], tuner: Tuner | None, reason: str) -> None:
        self._written, self._tuner, self._reason = written, tuner, reason
        if tuner is not None:
            finalize(self, tuner.source.close).atexit = False

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._written) if self._tuner is None else TunedIterator(self, self._tuner)

    def __len__(self) -> int:
        length = len(self._written) if self._tuner is None else self._tuner.source.length()  # type: ignore[arg-type]
        if length is None:
            raise TypeError(f"{type(self._written).__name__} has no length")
        return length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._written, name)

    @property
    def state(self) -> TuneState | None:
        """Where the tuning stands; None where there is none."""
        return None if self._tuner is None else self._tuner.state

    @property
    def trials(self) -> Sequence[TrialEnd]:
        """What was tried so far, in order."""
        return () if self._tuner is None else self._tuner.journal.trials

    @property
    def verdict(self) -> str:
        """`tuned`, `nothing to tune` or `undecided`, so far."""
        return TuneVerdict.NOTHING.value if self._tuner is None else self._tuner.state.verdict.value

    @property
    def reason(self) -> str:
        """Of the verdict, in one sentence."""
        return self._reason if self._tuner is None else self._tuner.state.reason


class TunedIterator(Iterator[Batch]):
    """One pass over a tuned loader, which lives as long."""

    def __init__(self, loader: TunedLoader[Batch], tuner: Tuner) -> None:
        self._loader, self._tuner = loader, tuner
        self._epoch: LoaderPass | None = tuner.begin_epoch()

    def __next__(self) -> Batch:
        if self._epoch is None:
            raise StopIteration
        try:
            batch: Batch = self._tuner.take(self._epoch)
        except StopIteration:
            self._end()
            raise
        return batch

    def _end(self) -> None:
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            self._tuner.end_epoch(epoch)

    def __del__(self) -> None:
        if getattr(self, "_epoch", None) is not None:
            self._end()


def _declared(knobs: Mapping[str, Sequence[Any]] | Sequence[Knob] | None) -> tuple[Knob, ...]:
    if knobs is None:
        return ()
    if isinstance(knobs, Mapping):
        return tuple(Knob(name, tuple(values)) for name, values in knobs.items())
    return tuple(knobs)


def _accepted(make_loader: Callable[..., Any]) -> frozenset[str] | None:
    """Names that a factory takes; None where it takes any."""
    try:
        parameters = inspect.signature(make_loader).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(parameter.name for parameter in parameters if parameter.kind in by_name)
