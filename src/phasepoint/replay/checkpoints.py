"""The checkpoint index: what checkpoints a run wrote, in which phase, what is in them, and whether they are whole.

A look at a checkpoint opens files. Where there are many, listings of a few folders say which of them are gone, and the
caller says which of the others are looked at.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from phasepoint.checkpoints.facts import CheckpointContents, CheckpointFacts, CheckpointState
from phasepoint.checkpoints.formats import inspect_checkpoint
from phasepoint.store.session import this_process
from phasepoint.summary.analysis import Analysis

MOST_FOLDERS = 8
"""Folders listed at most; where checkpoints stand in more, those above are listed. A choice: one listing of a folder on
a network takes tens of milliseconds."""
_MOST_LEVELS = 3
"""Folders above a checkpoint that are tried: its own, and two for managers that give each step a folder of parts."""


def find_gone(paths: Iterable[str]) -> frozenset[str]:
    """Of many paths those that are gone: their folder lists others of them, and not these.

    A folder that cannot be listed, or that holds none of them, tells nothing: it may be one on another machine.
    """
    gone: set[str] = set()
    for folder, below in _by_folder([path for path in paths if "://" not in path]).items():
        listed: set[str] = set()
        with suppress(OSError), os.scandir(folder) as entries:
            listed = {entry.name for entry in entries}
        if listed.intersection(below):
            gone.update(path for name, held in below.items() if name not in listed for path in held)
    return frozenset(gone)


def _by_folder(paths: list[str]) -> dict[str, dict[str, list[str]]]:
    """Paths by folder and by name in it: the folder in which they stand, or, where those are many, one above them."""
    for level in range(1, _MOST_LEVELS + 1):
        found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for path in paths:
            parts = path.rstrip("/").split("/")
            if len(parts) > level:
                found["/".join(parts[:-level]) or "/"][parts[-level]].append(path)
        if len(found) <= MOST_FOLDERS:
            return found
    return {}


Row = Mapping[str, Any]

_FILES = ("torch", "safetensors", "lightning", "keras")
"""Frameworks whose checkpoints are single files, of which the recorder notes the size once they are written."""

_FOLDERS = ("files", "transformers", "dcp")
"""Formats of folders, to which a job may add files of its own afterwards."""


@dataclass(frozen=True)
class IndexedCheckpoint:
    """One checkpoint that the run wrote; a path that several hosts wrote together has a row for each.

    Attributes:
        host: rank that noted it.
        attempt: restarts of the rank before.
        step: step after which its state stands; None where it was written before the first step.
        phase: name of that step's phase; None where the step is not in the run.
        path: where it was written.
        framework: what wrote it, as the table `checkpoints` names it; user: the job noted it.
        start_ps: when writing began, from the beginning of the host's first attempt.
        dur_ps: how long the job waited for it.
        size_bytes: bytes on disk now; where that cannot be told, as noted when written; None where neither is known.
        asynchronous: whether writing went on in the background; None where it is not known.
        state: whole, incomplete, corrupt, missing, or unknown (cannot be told from here).
        problem: why it is not whole, in words; None where it is.
        format: what it was found to be (`sources.checkpoints.FORMATS`); None where it was not looked at.
        has_model: parameters of the model are in it; None where it cannot be told, as in the next three.
        has_optimizer: state of the optimizer is in it.
        has_prng: state of a random generator is in it.
        has_iterator: state of the data iterator is in it.
        iterator_state: the loader's state as the recorder kept it, JSON; None where it kept none.
    """

    host: int
    attempt: int
    step: int | None
    phase: str | None
    path: str
    framework: str
    start_ps: int
    dur_ps: int
    size_bytes: int | None
    asynchronous: bool | None
    state: CheckpointState
    problem: str | None
    format: str | None
    has_model: bool | None
    has_optimizer: bool | None
    has_prng: bool | None
    has_iterator: bool | None
    iterator_state: str | None


@dataclass(frozen=True)
class CheckpointIndex:
    """The checkpoints of a run, by time.

    Attributes:
        run: path or URL of the run.
        checkpoints: by start, then host.
        notes: what limits the index, in words.
    """

    run: str
    checkpoints: tuple[IndexedCheckpoint, ...]
    notes: tuple[str, ...] = ()


NOT_LOOKED_AT = "not looked at: a report looks at few; phasepoint replay RUN looks at all"

GONE = "gone: its folder holds others, and not this one"


def index_checkpoints(
    analysis: Analysis, *, looked_at: Collection[str] | None = None, gone: Collection[str] = ()
) -> CheckpointIndex:
    """List a run's checkpoints and look at them where they lie.

    Every path is looked at once. A path that was written again holds what was written last; the earlier ones are
    `missing`, which `problem` says.

    Args:
        analysis: of the run.
        looked_at: paths that are looked at; all by default. The others are `unknown`, with the size as noted.
        gone: paths of the others that are known to be gone (`find_gone`).
    """
    table = analysis.table("checkpoints")
    rows, at = table.to_pylist(), analysis.clock.rows_of(table).tolist()
    last = _last_writes(analysis, rows)
    looks: dict[str, CheckpointFacts] = {}
    found = []
    for index, (row, step_row) in enumerate(zip(rows, at, strict=True)):
        phase = analysis.names[int(analysis.labels[step_row])] if step_row >= 0 else None
        if looked_at is None or row["path"] in looked_at:
            facts = _facts(analysis, row, rows[last[index]], looks)
        else:
            noted = CheckpointContents(has_iterator=row["has_iterator"])
            is_gone = row["path"] in gone
            problem = GONE if is_gone else NOT_LOOKED_AT
            facts = CheckpointFacts(None, "missing" if is_gone else "unknown", problem, contents=noted)
        found.append(_indexed(analysis, row, phase, facts))
    found.sort(key=lambda one: (one.start_ps, one.host))
    return CheckpointIndex(analysis.run.path, tuple(found), ())


def _indexed(analysis: Analysis, row: Row, phase: str | None, facts: CheckpointFacts) -> IndexedCheckpoint:
    session = analysis.clock.session(row["host"], row["attempt"])
    contents = facts.contents
    gone = facts.state == "missing"
    return IndexedCheckpoint(
        **{name: row[name] for name in ("host", "attempt", "step", "path", "framework", "dur_ps", "asynchronous")},
        phase=phase,
        start_ps=row["start_ps"] + (session.offset_ps if session else 0),
        size_bytes=row["bytes"] if facts.size_bytes is None else facts.size_bytes,
        state=facts.state,
        problem=facts.problem,
        format=facts.format,
        has_model=contents.has_model,
        has_optimizer=contents.has_optimizer,
        has_prng=contents.has_prng,
        has_iterator=True if row["has_iterator"] and not gone else contents.has_iterator,
        iterator_state=row["iterator_state"],
    )


def _facts(analysis: Analysis, row: Row, last: Row, looks: dict[str, CheckpointFacts]) -> CheckpointFacts:
    """What is on disk of the checkpoint of a row, given the row that wrote its path last."""
    if (row["attempt"], row["step"]) != (last["attempt"], last["step"]) or (
        row["host"] == last["host"] and row["start_ps"] != last["start_ps"]
    ):
        when = "later" if last["step"] is None else f"in step {last['step']}"
        return CheckpointFacts(None, "missing", f"overwritten: the same path was written again {when}")
    path = row["path"]
    if path not in looks:
        looks[path] = _look(path, row["framework"], looks)
    facts = looks[path]
    if facts.state == "missing" and "://" not in path and (problem := _unreachable(analysis, row)) is not None:
        return CheckpointFacts(None, "unknown", problem)
    if facts.state in {"whole", "unknown"} and _another(row, facts):
        problem = f"overwritten: it has {facts.size_bytes:,} bytes; when this run had written it, {row['bytes']:,}"
        return CheckpointFacts(None, "missing", problem)
    return facts


def _look(path: str, framework: str, looks: dict[str, CheckpointFacts]) -> CheckpointFacts:
    """Look at a path; one in a bucket that did not answer is not asked for, because each takes seconds to fail."""
    bucket = "/".join(path.split("/", 3)[:3]) if "://" in path else None
    if bucket is not None and bucket in looks:
        return looks[bucket]
    facts = inspect_checkpoint(path, framework)
    if bucket is not None and facts.state == "unknown" and facts.format is None:
        looks[bucket] = facts
    return facts


def _another(row: Row, facts: CheckpointFacts) -> bool:
    """Whether what stands there is another checkpoint, by the size of a file that was complete when it was noted."""
    known = row["framework"] in _FILES and row["bytes"] is not None and facts.size_bytes is not None
    return bool(known and facts.format not in _FOLDERS and row["bytes"] != facts.size_bytes)


def _unreachable(analysis: Analysis, row: Row) -> str | None:
    """Why a path that is not found here may yet be there; None where it is this machine's own."""
    if not os.path.isabs(row["path"]):  # noqa: PTH117 - it may be no path of this system
        return "its path is relative to the folder of the job, which is not known; not found from here"
    owners = {
        shard.session.owner.hostname
        for shard in analysis.run.shards
        if (shard.host, shard.attempt) == (row["host"], row["attempt"])
    }
    elsewhere = sorted(owners - {this_process().hostname})
    return f"not found here; it was written on the machine {elsewhere[0]}" if elsewhere else None


def _last_writes(analysis: Analysis, rows: list[dict[str, Any]]) -> list[int]:
    """For every row, the row that wrote its path last, by the clocks of the machines."""
    epochs_ns = {(shard.host, shard.attempt): shard.session.epoch_unix_ns for shard in analysis.run.shards}
    last: dict[str, int] = {}

    def order(index: int) -> tuple[int, int, int]:
        row = rows[index]
        # An attempt begins after the one before has ended, whatever the clocks say.
        written_ps = epochs_ns.get((row["host"], row["attempt"]), 0) * 1000 + row["start_ps"]
        return row["attempt"], written_ps, index

    for index, row in enumerate(rows):
        known = last.get(row["path"])
        if known is None or order(index) > order(known):
            last[row["path"]] = index
    return [last[row["path"]] for row in rows]


USABLE = ("whole", "unknown")
"""States of a checkpoint from which a replay may try to start; `unknown`: it cannot be reached from here."""


def refusal(checkpoint: IndexedCheckpoint) -> str | None:
    """Why no replay can start from it, in a word or two; None where one can."""
    if checkpoint.state not in USABLE:
        return checkpoint.state
    return "holds no model" if checkpoint.has_model is False else None
