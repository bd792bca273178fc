"""Which files are traces, of which format and rank: told by their first bytes, so that looking at thousands is fast."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phasepoint.core.errors import SourceError, UsageError
from phasepoint.core.packing import FREE_BYTES
from phasepoint.sources.ingest.formats import FORMAT_OF, HEAD_BYTES, describe_formats, detect_format, unpack

_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank[-_]?|w-)(\d{1,9})(?!\d)", re.IGNORECASE)
"""`rank0`, `trace_rank_12`, `rank-3.json.gz`; `w-3` is how TPU machines of a slice are named."""


@dataclass(frozen=True)
class FoundTrace:
    """A file that holds a trace.

    Attributes:
        path: where it is.
        format: a name of `FORMAT_OF`.
        size_bytes: as it lies there, packed or not.
        rank: of its process within the job as the content says, None where it does not.
    """

    path: Path
    format: str
    size_bytes: int
    rank: int | None


@dataclass(frozen=True)
class SkippedFile:
    """A file that nothing was imported from, and why."""

    path: str
    reason: str


def look_at(file: Path) -> FoundTrace:
    """What a file is.

    Raises:
        SourceError: it cannot be read, or holds no trace that is read.
    """
    if file.exists() and not file.is_file():
        raise SourceError(f"{file}: a pipe or a device, no file; write what it gives to a file, and import that")
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(0)
            head = opened.read(4 * HEAD_BYTES)
            opened.seek(max(len(head), size - HEAD_BYTES))
            tail = opened.read(HEAD_BYTES)
    except OSError as error:
        raise SourceError(f"{file}: cannot be read: {error.strerror}") from error
    if not head:
        raise SourceError(f"{file}: the file is empty")
    head = unpack(head, str(file), stop_at=FREE_BYTES)  # of the whole, its reader says how far it may unpack
    found = detect_format(head[:HEAD_BYTES])
    if found is None:
        raise SourceError(
            f"{file}: no trace that is known: it begins with {head[:16]!r}; expected one of: {describe_formats()}"
        )
    rank = FORMAT_OF[found].rank
    match = rank and (rank.search(head) or rank.search(tail))
    return FoundTrace(file, found, size, None if match is None else int(match[1]))


def find_traces(places: Sequence[str | os.PathLike[str]]) -> tuple[tuple[FoundTrace, ...], tuple[SkippedFile, ...]]:
    """The traces among files and, at any depth, in folders; and what else lies in those folders.

    Args:
        places: files, which must be traces, and folders, of which some file must be.

    Returns:
        The traces, in the order of the places and, within a folder, of their names; and the other files of folders.

    Raises:
        SourceError: a file that was named cannot be read or is no trace, or a folder holds none.
        UsageError: nothing is named.
    """
    if not places:
        raise UsageError("no file to import")
    traces: dict[Path, FoundTrace] = {}
    skipped: list[SkippedFile] = []
    for place in map(Path, places):
        if not place.is_dir():
            traces.setdefault(place, look_at(place))
            continue
        found, others = _in_folder(place)
        if not found:
            most = f", such as {others[0].reason}" if others else ""
            raise SourceError(f"{place}: no trace in this folder; {len(others)} files were looked at{most}")
        traces.update({one.path: one for one in found if one.path not in traces})
        skipped += others
    return tuple(traces.values()), tuple(skipped)


def _in_folder(folder: Path) -> tuple[list[FoundTrace], list[SkippedFile]]:
    found, others = [], []
    for path in sorted(_files_below(folder)):
        try:
            found.append(look_at(path))
        except SourceError as error:
            others.append(SkippedFile(str(path), str(error)))
    return found, others


def _files_below(folder: Path) -> list[Path]:
    """Regular files at any depth; links to folders are not followed, which may lead in circles."""
    return [
        Path(above) / name
        for above, _, names in os.walk(folder)
        for name in names
        if not name.startswith(".") and (Path(above) / name).is_file()
    ]


def assign_hosts(traces: Sequence[FoundTrace]) -> list[int]:
    """The shard of each trace: its rank as the content says, else as its name does, else the next number that is free.

    Names count only where they tell all files apart that do not say their rank: `node0/rank0`, `node1/rank0` are
    ranks within a machine.

    Raises:
        UsageError: two files say that they are of one rank.
    """
    by_rank: dict[int, Path] = {}
    for one in traces:
        if one.rank is None:
            continue
        if one.rank in by_rank:
            raise UsageError(
                f"{one.path} and {by_rank[one.rank]} both are of rank {one.rank}; import them into runs of their own"
            )
        by_rank[one.rank] = one.path
    silent = [one for one in traces if one.rank is None]
    in_names = [_RANK_IN_NAME.findall(one.path.name) for one in silent]
    named = [int(ranks[-1]) if ranks else None for ranks in in_names]
    counts = Counter([*by_rank, *named])
    if any(rank is None or counts[rank] > 1 for rank in named):
        named = [None] * len(silent)
    ranks = {one.path: rank for one, rank in zip(silent, named, strict=True) if rank is not None}
    ranks |= {path: rank for rank, path in by_rank.items()}
    free = iter(sorted(set(range(len(traces) + len(ranks))).difference(ranks.values())))
    return [ranks[one.path] if one.path in ranks else next(free) for one in traces]
