"""Knobs: what may be turned, to which values, at what cost, and what turning it may change in the job."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Setting = Mapping[str, Any]
"""Values of knobs by name."""


class Effect(StrEnum):
    """What a knob may change in a job's results. The last four are turned only where `allow` names them."""

    NOTHING = "keeps order and results"
    RESULTS_KEPT = "keeps results"
    NUMERICS = "changes numerics"
    CACHE = "cache"
    RANDOM_NUMBERS = "changes random numbers"
    ORDER = "changes order"


class Turn(StrEnum):
    """When a knob can be turned."""

    LIVE = "live"
    REBUILD = "loader rebuilt in the background"
    EPOCH = "at an epoch's end"


WORKERS_PER_CORE = 8
"""A choice: making a batch may wait for a disk or a server, and then more workers than cores are of use."""

EACH_COUNT = 16
"""A choice: up to so many workers each number is tried, and beyond it those that are an eighth apart."""


FREE = frozenset({Effect.NOTHING, Effect.RESULTS_KEPT})
"""What may be turned without being asked."""


@dataclass(frozen=True)
class Knob:
    """One knob.

    Attributes:
        name: as the factory takes it.
        values: what it may be set to, cheapest first.
        effect: what it may change in the job's results.
        turn: when it can be turned.
        threads: whether its value is a number of threads.
        apply: sets it while the loader runs, for `Turn.LIVE`.

    Raises:
        ValueError: it has no values.
    """

    name: str
    values: tuple[Any, ...]
    effect: Effect = Effect.NOTHING
    turn: Turn = Turn.REBUILD
    threads: bool = False
    apply: Callable[[Any], None] | None = None

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"knob {self.name!r} has no values; give those that may be tried, cheapest first")


def allowed_knobs(knobs: Sequence[Knob], allow: Sequence[str]) -> tuple[Knob, ...]:
    """Those that may be turned: they change nothing, or what they change was named.

    Args:
        knobs: all there are.
        allow: effects that the user names: `cache`, `changes order`, …

    Raises:
        ValueError: there is no such effect.
    """
    unknown = sorted(set(allow) - {effect.value for effect in Effect})
    if unknown:
        raise ValueError(
            f"allow names {', '.join(map(repr, unknown))}; there are {', '.join(map(repr, map(str, Effect)))}"
        )
    return tuple(knob for knob in knobs if knob.effect in FREE or knob.effect in allow)


def worker_counts(cpus: int, written: int) -> tuple[int, ...]:
    """Numbers of workers that may be tried, those beyond the cores for batches that mostly wait.

    Args:
        cpus: cores that the job may use.
        written: the number as written, which is among them.

    Example:
        >>> worker_counts(1, 12)
        (0, 1, 2, 3, 4, 5, 6, 7, 8, 12)
        >>> worker_counts(3, 0)[-6:]
        (15, 16, 18, 20, 22, 24)
    """
    most = WORKERS_PER_CORE * max(cpus, 1)
    counts = {written, *range(min(most, EACH_COUNT) + 1)}
    count = EACH_COUNT
    while count + count // 8 <= most:
        count += count // 8
        counts.add(count)
    return tuple(sorted(counts))


def describe_setting(setting: Setting) -> str:
    """A setting in words: `num_workers 4, prefetch_factor 2`."""
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "as written"
