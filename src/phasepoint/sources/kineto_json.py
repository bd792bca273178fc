"""Kineto's JSON as typed events, whole or as far as it can be read.

Numbers of time are kept as the text they are: a float has no room for nanoseconds since 1970.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from phasepoint.core.errors import SourceError

_NO_NUMBER = msgspec.Raw(b"")


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that are read; their types vary from release to release."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    name: Any = None


class Event(msgspec.Struct, gc=False):
    """One event of the Chrome trace format, times as text in microseconds."""

    ph: str = ""
    cat: str = ""
    name: Any = ""
    ts: msgspec.Raw = _NO_NUMBER
    dur: msgspec.Raw = _NO_NUMBER
    pid: Any = None
    tid: Any = None
    args: Args | None = None


class _Trace(msgspec.Struct, gc=False):
    events: list[Event] = msgspec.field(name="traceEvents", default_factory=list)
    base_ns: Any = msgspec.field(name="baseTimeNanoseconds", default=0)


@dataclass(frozen=True)
class KinetoTrace:
    """What a file holds.

    Attributes:
        events: the events that could be read, in the file's order.
        base_ns: Unix ns from which their times count.
        unreadable: events that could not be read, as far as they can be told apart.
        problem: what was wrong with the file, None where nothing was.
    """

    events: list[Event]
    base_ns: int
    unreadable: int
    problem: str | None


def parse_kineto(data: bytes) -> KinetoTrace:
    """Read Kineto's JSON; of a damaged file all events that are whole.

    Raises:
        SourceError: it is no trace in Chrome's JSON format at all.
    """
    try:
        if data.lstrip()[:1] == b"[":
            return KinetoTrace(msgspec.json.decode(data, type=list[Event]), 0, 0, None)
        trace = msgspec.json.decode(data, type=_Trace)
        return KinetoTrace(trace.events, whole_number(trace.base_ns) or 0, 0, None)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _salvage(data, str(error))


def whole_number(value: Any) -> int | None:
    """An integer given as a number or as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_BASE = re.compile(r'"baseTimeNanoseconds"\s*:\s*"?(\d+)')
_NEXT_EVENT = re.compile(r'\{\s*"(?:ph|name|cat|args)"\s*:')


def _salvage(data: bytes, reason: str) -> KinetoTrace:
    """Read event by event with a forgiving decoder; what cannot be read is counted."""
    text = data.decode("utf-8", "replace")
    opening = _EVENTS.search(text)
    start = opening.end() if opening else (1 if text.startswith("[") else -1)
    if start < 0:
        raise SourceError(f"no Kineto trace in {len(data)} bytes: {reason}")
    events: list[Event] = []
    unreadable = 0
    for fields in _read_objects(text, start):
        event = _event_of(fields) if fields is not None else None
        unreadable += event is None
        if event is not None:
            events.append(event)
    base = _BASE.search(text)
    problem = f"damaged JSON ({reason}); {len(events)} events were read, {unreadable} could not be"
    return KinetoTrace(events, int(base[1]) if base else 0, unreadable, problem)


def _read_objects(text: str, place: int) -> Iterator[dict[str, Any] | None]:
    """Objects of the array that starts at `place`; None for each stretch that is no object."""
    decoder = json.JSONDecoder(parse_float=str, parse_int=str, strict=False)
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        if place >= len(text) or text[place] == "]":
            return
        try:
            value, place = decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError):
            value = None
            following = _NEXT_EVENT.search(text, place + 1)
            place = following.start() if following else len(text)
        yield value if isinstance(value, dict) else None


def _event_of(fields: dict[str, Any]) -> Event | None:
    texts = [fields.get(key, "") for key in ("ph", "cat", "ts", "dur")]
    if not all(isinstance(text, str) for text in texts):
        return None
    ph, cat, ts, dur = texts
    args = fields.get("args")
    known = {key: args.get(key) for key in Args.__struct_fields__} if isinstance(args, dict) else {}
    return Event(
        ph=ph,
        cat=cat,
        name=fields.get("name", ""),
        ts=msgspec.Raw(ts.encode()),
        dur=msgspec.Raw(dur.encode()),
        pid=fields.get("pid"),
        tid=fields.get("tid"),
        args=Args(**known) if known else None,
    )
