"""What a trace in Chrome's JSON says beside its events: the rank, the devices, from when its times count."""

import json
import re
from dataclasses import dataclass
from typing import Any

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})')
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*"?(\d{1,9})')
_TIMES = re.compile(rb'"ts"\s*:\s*"?(-?\d{1,17})(?!\d)')
_LIMIT_NS = 1 << 62
"""A clock that began later than 2116 is damaged."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class KinetoHead:
    """Facts of a file.

    Attributes:
        rank: of the process, None where the file does not say.
        devices: `gpu:0 NVIDIA H100 80GB HBM3`, …
        base_unix_ns: Unix ns from which its times count; 0 where they are Unix times themselves.
    """

    rank: int | None = None
    devices: tuple[str, ...] = ()
    base_unix_ns: int = 0


def find_events(text: bytes) -> int | None:
    """Where the array of events begins, behind its `[`; None where there is none."""
    begin = len(_BOM) if text.startswith(_BOM) else 0
    stripped = text[begin:].lstrip()
    if stripped[:1] == b"[":
        return len(text) - len(stripped) + 1
    found = _EVENTS.search(text) if stripped[:1] == b"{" else None
    return found.end() if found else None


def is_empty_trace(text: bytes) -> bool:
    """Whether a file without a list of events is whole all the same: an object that has no such key."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and "traceEvents" not in fields


def typical_time_us(text: bytes) -> int:
    """A time among the first events', whole µs; 0 where there is none. Metadata may stand at 0, or years away."""
    times = sorted(int(found) for found in _TIMES.findall(text))
    return times[len(times) // 2] if times else 0


def read_head(before: bytes, behind: bytes) -> tuple[KinetoHead, bool]:
    """The facts, and whether the file is whole JSON around its events.

    Args:
        before: what stands before the events, with their `[`.
        behind: what stands behind their `]`.
    """
    is_list = before.strip().removeprefix(_BOM) == b"["
    text = (before + b"]" + behind).removeprefix(_BOM)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        base, rank = _BASE.search(text), _RANK.search(text)
        return KinetoHead(int(rank[1]) if rank else None, (), _base_ns(base[1].decode() if base else None)), False
    if is_list or not isinstance(fields, dict):
        return KinetoHead(), True
    distributed = fields.get("distributedInfo")
    rank_number = whole_number(distributed.get("rank")) if isinstance(distributed, dict) else None
    listed = fields.get("deviceProperties")
    devices = tuple(
        f"gpu:{one['id']} {one['name']}".encode("utf-8", "replace").decode("utf-8")  # an escape may be half a character
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict) and {"id", "name"} <= one.keys()
    )
    base_ns = _base_ns(fields.get("baseTimeNanoseconds"))
    return KinetoHead(rank_number if rank_number is None or rank_number >= 0 else None, devices, base_ns), True


def _base_ns(value: Any) -> int:
    number = whole_number(value)
    return number if number is not None and 0 <= number < _LIMIT_NS else 0


def whole_number(value: Any) -> int | None:
    """An integer given as a number or as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None
