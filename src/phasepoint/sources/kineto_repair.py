"""Events that are no JSON: what a forgiving reader can still make of them."""

import json
import re
from dataclasses import dataclass
from typing import Any

from phasepoint.sources.kineto_blocks import NEXT_EVENT


class _Literal(str):
    """A number as it was written: a float has no room for nanoseconds since 1970."""

    __slots__ = ()


_DECODER = json.JSONDecoder(strict=False, parse_float=_Literal, parse_int=_Literal)
_VALUE = re.compile(
    r'("(?:name|cat|Call stack|Module Hierarchy|kernel)"\s*:\s*")(.*?)'
    r'(?="\s*(?:,\s*"[^"\\]{1,64}"\s*:|\}\s*[,}\]]|\}\s*$))',
    re.DOTALL,
)
"""A text whose quotes may not be escaped: up to the quote behind which the next key, or the object's end, stands."""
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_BARE_QUOTE = re.compile(r'(?<!\\)((?:\\\\)*)"')


def next_event(text: bytes, start: int) -> int | None:
    """Where the event behind a damaged one at `start` begins; None where there is none."""
    found = NEXT_EVENT.search(text, start + 1)
    return found.end() if found else None


@dataclass(frozen=True)
class Repaired:
    """What could be read of a stretch of text.

    Attributes:
        events: JSON of the events.
        unreadable: stretches that could not be read.
        behind: what stands behind the `]` of the events; None where they go on.
    """

    events: tuple[bytes, ...]
    unreadable: int
    behind: bytes | None


def repair_events(text: bytes) -> Repaired:
    """Read a stretch with at least one damaged event in it.

    Args:
        text: the stretch, from the beginning of the damaged event to the next event.
    """
    plain = text.decode("utf-8", "replace")
    read = _read(plain)
    if read.unreadable:
        again = _read(_escape(plain))
        read = again if again.unreadable < read.unreadable else read
    return read


def _read(text: str) -> Repaired:
    found: list[bytes] = []
    unreadable = place = 0
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        if place >= len(text):
            return Repaired(tuple(found), unreadable, None)
        if text[place] == "]":
            return Repaired(tuple(found), unreadable, text[place + 1 :].encode())
        try:
            value, place = _DECODER.raw_decode(text, place)
            event = _encode(value).encode("utf-8", "replace") if isinstance(value, dict) else None
        except (ValueError, RecursionError):
            event, place = None, len(text)
        if event is None:
            unreadable += 1
        else:
            found.append(event)


def _escape(text: str) -> str:
    """The text with bare quotes in names escaped, and backslashes that escape nothing doubled."""

    def escape(match: re.Match[str]) -> str:
        return match[1] + _BARE_QUOTE.sub(r'\1\\"', match[2])

    return _VALUE.sub(escape, _BAD_ESCAPE.sub(r"\\\\", text))


def _encode(value: Any) -> str:
    """JSON of a decoded value, numbers as they were written."""
    if isinstance(value, _Literal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_encode(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encode, value)) + "]"
    return json.dumps(value)
