"""Merged parts: one file that stands for several, and how a reader tells that it does.

A merged part names its sources in its metadata for good. A reader that sees both a merged part and its sources
(the merging process was killed, or has not come to deleting them) reads the merged part alone; and a source that is
written again later, as a conversion that is done twice does, stays covered.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from itertools import pairwise

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

MERGED_PREFIX = "merged-"
MERGED_KEY = b"phasepoint.merged"

_NUMBERED = re.compile(r"(.*?)(\d{1,18})")


class _Names(msgspec.Struct, frozen=True):
    """Part names, those that count upwards as ranges: a merged part of a week's run has 100,000 sources."""

    ranges: tuple[tuple[str, int, int, int], ...]  # prefix, digits, first, last
    others: tuple[str, ...]


def merged_name(sources: Iterable[str]) -> str:
    """Name of the part merged from these sources: equal for equal sources."""
    digest = sha256("\n".join(sorted(sources)).encode()).hexdigest()
    return f"{MERGED_PREFIX}{digest[:24]}"


def merged_metadata(sources: Collection[str]) -> dict[bytes, bytes]:
    """Key-value metadata that names a merged part's sources."""
    return {MERGED_KEY: msgspec.json.encode(_encode_names(sources))}


def merged_sources(data: pa.Buffer) -> frozenset[str]:
    """The sources of a merged part; none if the file cannot be read, which reading its rows will report."""
    try:
        metadata = pq.read_metadata(pa.BufferReader(data)).metadata or {}
        return _decode_names(msgspec.json.decode(metadata.get(MERGED_KEY, b""), type=_Names))
    except (pa.ArrowException, OSError, msgspec.DecodeError):
        return frozenset()


def select_parts(plain: Collection[str], merged: Mapping[str, frozenset[str]]) -> list[str]:
    """The parts to read so that every row counts once, in the order of their first sources.

    A merged part whose sources are all in others (it was merged again) is passed over. Two merged parts can overlap
    otherwise only if two compactions ran at once on an object store; one can then be passed over if all of its
    sources are there or in the other.

    Args:
        plain: names of the parts that are no merged ones.
        merged: name of each merged part to its sources.
    """
    kept = dict(merged)
    for name in sorted(merged, key=lambda n: (len(merged[n]), n)):
        others: set[str] = set().union(*(sources for other, sources in kept.items() if other != name))
        if kept[name] & others and kept[name] <= others | set(plain):
            del kept[name]
    covered: set[str] = set().union(*kept.values())
    names = [*kept, *(name for name in plain if name not in covered)]
    return sorted(names, key=lambda n: (min(merged.get(n) or (n,)), n))


def _encode_names(names: Collection[str]) -> _Names:
    numbers: dict[tuple[str, int], list[int]] = {}
    others = []
    for name in sorted(names):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            others.append(name)
        else:
            numbers.setdefault((match[1], len(match[2])), []).append(int(match[2]))
    ranges = [
        (prefix, digits, first, last)
        for (prefix, digits), values in numbers.items()
        for first, last in _runs_of(sorted(values))
    ]
    return _Names(tuple(ranges), tuple(others))


def _runs_of(values: list[int]) -> list[tuple[int, int]]:
    """Sorted integers as maximal runs without a hole, each with its first and its last."""
    breaks = [(a, b) for a, b in pairwise(values) if b != a + 1]
    return list(zip([values[0], *(b for _, b in breaks)], [*(a for a, _ in breaks), values[-1]], strict=True))


def _decode_names(names: _Names) -> frozenset[str]:
    total = sum(max(0, last - first + 1) for _, _, first, last in names.ranges)
    if total > 10_000_000:  # a run is untrusted: weeks of parts every second are 2 million
        return frozenset()
    numbered = (
        f"{prefix}{number:0{digits}d}"
        for prefix, digits, first, last in names.ranges
        for number in range(first, last + 1)
    )
    return frozenset(numbered) | frozenset(names.others)
