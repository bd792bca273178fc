"""Which attempts of each rank make up the run's history."""

from collections.abc import Sequence
from itertools import groupby
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
    def started_unix_ns(self) -> int:
        """When it was started."""

    @property
    def ended_well_unix_ns(self) -> int | None:
        """When it was closed with status `ok`, None if it was not."""


_A = TypeVar("_A", bound=Attempt)


def select_history(shards: Sequence[_A]) -> tuple[_A, ...]:
    """Of each rank the newest attempt and, back from it, those that did not end well; by host and attempt.

    An attempt that ended well and was followed by another is a different recording into the same directory: it and
    all before it are kept on disk, but not mixed in. Nor is a rank that took part in that recording only (the job
    was started again with fewer ranks), which shows in that its newest attempt began before the recording ended.
    """
    chosen: dict[int, list[_A]] = {}
    ends_unix_ns: dict[int, int] = {}
    for host, attempts in groupby(sorted(shards, key=lambda s: (s.host, -s.attempt)), key=lambda s: s.host):
        newest, *before = attempts
        chosen[host] = [newest]
        for shard in before:
            if shard.ended_well_unix_ns is not None:
                ends_unix_ns[host] = shard.ended_well_unix_ns
                break
            chosen[host].insert(0, shard)
    if ends_unix_ns:
        earliest_end = min(ends_unix_ns.values())
        for host in set(chosen).difference(ends_unix_ns):
            if chosen[host][-1].started_unix_ns < earliest_end:
                del chosen[host]
    return tuple(shard for host in sorted(chosen) for shard in chosen[host])
