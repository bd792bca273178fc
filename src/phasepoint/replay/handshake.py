"""The parent's side of the handshake file: what the processes of a replay have told so far."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

REFUSALS = ("ignored", "unrecorded", "failed")
"""Events after which nothing good can come: the program is ended."""


@dataclass
class Handshake:
    """Reads the file as it grows.

    Attributes:
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
