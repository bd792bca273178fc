"""A replay's folder: that nothing of the original is in its way, what the processes tell in it, and how it ended."""

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from phasepoint.core.errors import OutputExistsError, RecordError, ReplayError, StoreError, UsageError
from phasepoint.store.removal import remove_run

if TYPE_CHECKING:
    from phasepoint.replay.plan.plan import ReplayPlan

RECORD_NAME = "replay.json"
VERSION = 1
"""Of the record's layout; it grows when a field changes its meaning or goes."""

ReplayStatus = Literal["done", "ignored", "failed", "ended-early"]
"""done: all steps were done and captured. ignored: the program did not follow the request and was stopped. failed: the
program or the protocol failed. ended-early: the job was over before the last step."""


@dataclass(frozen=True, kw_only=True)
class ReplayRecord:
    """What a run is a replay of.

    Attributes:
        version: of this file's layout.
        original: path of the run that was replayed.
        phase, phase_id: the phase, as `phasepoint phases` names it.
        host, attempt: of the original whose steps were replayed.
        checkpoint: what was restored; None: from the start of the job.
        checkpoint_step: step in which it was noted; None where that was before the first.
        first_step: the first step done.
        target_first, target_last: the steps captured.
        last_step: the last step to do.
        command: the command that was started.
        status: how it ended.
        reason: why it ended so; None where it was done.
    """

    version: int = VERSION
    original: str
    phase: str
    phase_id: int
    host: int = 0
    attempt: int = 0
    checkpoint: str | None
    checkpoint_step: int | None = None
    first_step: int
    target_first: int
    target_last: int
    last_step: int
    command: tuple[str, ...]
    status: ReplayStatus
    reason: str | None = None


def read_replay(path: str | PathLike[str]) -> ReplayRecord | None:
    """The record of a replay's run; None where the run is no replay.

    Args:
        path: the run's folder.

    Raises:
        StoreError: the record cannot be read or is broken.
    """
    name = Path(path) / RECORD_NAME
    try:
        if name.exists() and not name.is_file():
            raise StoreError(f"{name}: is no regular file; put a copy of the replay's record there, or remove it")
        record = msgspec.json.decode(name.read_bytes(), type=ReplayRecord)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{name}: cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(
            f"{name}: broken record of a replay: {error}; expected what `phasepoint replay run` writes. "
            "Replay again, or remove the file to use the run by itself"
        ) from error
    if record.version != VERSION:
        raise StoreError(f"{name}: has version {record.version}; expected {VERSION}; upgrade Phasepoint")
    return record


def write_replay(path: str | PathLike[str], record: ReplayRecord) -> None:
    """Write the record into a replay's run; it appears when it is complete.

    Raises:
        StoreError: it cannot be written.
    """
    name = Path(path) / RECORD_NAME
    part = name.with_name(f".{RECORD_NAME}.part")
    try:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2))
        part.replace(name)
    except OSError as error:
        raise StoreError(f"{name}: cannot be written: {error.strerror or error}") from error


HANDSHAKE_NAME = "replay.handshake.jsonl"
SAVES_NAME = "saves"


def prepare_output(plan: "ReplayPlan", out: str, *, force: bool) -> Path:
    """Make the replay's folder, empty, and return its absolute path.

    Raises:
        UsageError: `out` is a URL, or holds the original or a checkpoint of it.
        OutputExistsError: there is something at `out`, and no `force`; or something that is no run.
        RecordError: the folder cannot be made.
    """
    if "://" in out:
        raise UsageError(f"--out {out}: a replay is written to a folder of this machine")
    folder = Path(out).resolve()
    for place in (plan.run, *plan.protected, *([plan.checkpoint] if plan.checkpoint else [])):
        if "://" not in place and folder in (Path(place).resolve(), *Path(place).resolve().parents):
            raise UsageError(f"--out {out}: {place} of the original lies there; choose another place with --out")
    try:
        _clear(folder, out, force=force)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{error.filename or out}: {error.strerror}; choose another place with --out") from error
    return folder


def check_checkpoint(plan: "ReplayPlan") -> None:
    """Refuse a plan whose checkpoint is not there any more.

    Raises:
        ReplayError: it is gone.
    """
    if plan.checkpoint is None or "://" in plan.checkpoint:
        return
    if not Path(plan.checkpoint).exists():
        raise ReplayError(
            f"{plan.checkpoint}: the checkpoint of step {plan.checkpoint_step} is not there any more; put it back, "
            "or replay from the start of the job with --from-start"
        )


def _clear(folder: Path, out: str, *, force: bool) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise OutputExistsError(f"{out}: exists and is no folder; choose another place with --out")
    if not any(folder.iterdir()):
        return
    is_run = (folder / "run.json").is_file() or (folder / HANDSHAKE_NAME).is_file()
    if not is_run and not _is_replay_that_failed(folder):
        raise OutputExistsError(f"{out}: exists and is no run; choose another place with --out")
    if not force:
        raise OutputExistsError(f"{out}: exists already; give --force to replace it, or --out for another place")
    remove_run(folder, out, more=(RECORD_NAME, HANDSHAKE_NAME, SAVES_NAME))


def _is_replay_that_failed(folder: Path) -> bool:
    """Whether it holds the record of a replay whose program ended before it recorded anything."""
    try:
        return read_replay(folder) is not None
    except StoreError:
        return False


REFUSALS = ("ignored", "unrecorded", "failed")
"""Events after which nothing good can come: the program is ended."""


@dataclass
class Handshake:
    """The parent's side of the handshake file: reads what the replay's processes tell as it grows.

    Attributes:
        path: of the file.
        events: all lines so far.
    """

    path: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    _offset: int = 0

    def read(self) -> None:
        """Take the lines written since the last call; one that is not complete yet waits."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        complete, end, _ = data.rpartition(b"\n")
        if not end:
            return
        self._offset += len(complete) + 1
        for line in complete.splitlines():
            event = _decoded(line)
            if event is not None:
                self.events.append(event)

    def first(self, *names: str) -> dict[str, Any] | None:
        """The first event of one of these names."""
        return next((event for event in self.events if event["event"] in names), None)

    def all_of(self, name: str) -> set[int]:
        """Processes that told this."""
        return {event["pid"] for event in self.events if event["event"] == name}

    @property
    def is_done(self) -> bool:
        """Whether every process that began is done."""
        begun = self.all_of("begun")
        return bool(begun) and begun <= self.all_of("done")


def _decoded(line: bytes) -> dict[str, Any] | None:
    """An event; None for a line that is none (the disk was full)."""
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return event if isinstance(event, dict) and "event" in event and isinstance(event.get("pid"), int) else None
