"""RUN/replay.json: what a replay's run is a replay of, and how the replay ended."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal

import msgspec

from phasepoint.core.errors import StoreError

RECORD_NAME = "replay.json"
VERSION = 1

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
        record = msgspec.json.decode(name.read_bytes(), type=ReplayRecord)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{name}: cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
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
