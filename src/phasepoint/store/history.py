"""Which attempts of a rank make up the run's history."""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Attempt(Protocol):
    """What is asked of a shard to place it."""

    @property
    def host(self) -> int:
        """Rank."""

    @property
    def attempt(self) -> int:
        """How often the rank was started before."""

    @property
    def ended_well(self) -> bool:
        """Whether it was closed with status `ok`."""


_A = TypeVar("_A", bound=Attempt)


def select_history(shards: Sequence[_A]) -> tuple[_A, ...]:
    """Of each rank the newest attempt and, back from it, those that did not end well; by host and attempt.

    An attempt that ended well and was followed by another is a different recording into the same directory: it and
    all before it are kept on disk, but not mixed in.
    """
    chosen: list[_A] = []
    newest_host: int | None = None
    taking = True
    for shard in sorted(shards, key=lambda s: (s.host, -s.attempt)):
        if shard.host != newest_host:
            newest_host, taking = shard.host, True
        elif shard.ended_well:
            taking = False
        if taking:
            chosen.append(shard)
    return tuple(sorted(chosen, key=lambda s: (s.host, s.attempt)))
