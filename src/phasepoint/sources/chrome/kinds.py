"""What becomes of an event, by its phase, category and name; and the accounts of it."""

from enum import IntEnum
from typing import NamedTuple

from phasepoint.sources.events.layers import is_layer_mark, is_module_call
from phasepoint.sources.events.operator_names import (
    OPTIMIZER_STEP,
    category_of_kernel,
    category_of_op,
    is_step_mark,
    is_wait,
    place_and_level,
)
from phasepoint.sources.events.tables import Account, Kind


class Fate(IntEnum):
    """What becomes of the events of a kind; those below `BEGIN` have a row in the order of time."""

    SPAN = 0
    ALLOCATION = 1
    COUNTER = 2
    METRICS = 3
    BEGIN = 4
    FINISH = 5
    NAME = 6
    SKIP = 7


class Event(NamedTuple):
    """What all events of one kind share.

    Attributes:
        phase: the format's letter for what the event is.
        cat: its category, as the file has it.
        name: its name.
        device: device on which it ran, `gpu:0`; empty for the host's.
    """

    phase: str
    cat: str
    name: str
    device: str


_PAIRS = {"B": Fate.BEGIN, "b": Fate.BEGIN, "S": Fate.BEGIN, "E": Fate.FINISH, "e": Fate.FINISH, "F": Fate.FINISH}
_MERGED = {
    Fate.ALLOCATION: "a row of allocations",
    Fate.COUNTER: "rows of counters",
    Fate.METRICS: "rows of metrics",
    Fate.FINISH: "the end of the span that began with it",
    Fate.NAME: "the name of a track",
}
_UNPLACED = {
    Fate.SPAN: "no time or duration that can be read",
    Fate.ALLOCATION: "no time that can be read",
    Fate.COUNTER: "no time that can be read",
    Fate.METRICS: "no time that can be read",
    Fate.BEGIN: "begun and never ended",
    Fate.FINISH: "an end without its beginning",
}
_NAMES = frozenset({"thread_name", "process_name"})
_REPEATING_ACCOUNTS = {
    "gpu_user_annotation": "the host's annotation again, on the device",
    "cuda_sync": "a wait that the host's call shows too",
    "trace": "the profiler's own session",
    "ac2g": "an arrow: correlation ids say the same",
    "fwdbwd": "an arrow between spans that are kept",
}
_PHASES = {"s": "flow", "t": "flow", "f": "flow", "i": "instant", "I": "instant", "n": "instant", "M": "metadata"}
_SKIPPED = {
    "flow": "an arrow between spans that are kept",
    "instant": "an instant: no time passes in it",
    "metadata": "how a viewer sorts and labels",
}


def fate_of(event: Event) -> Fate:
    """What becomes of events of this kind."""
    if event.phase == "X":
        if event.cat == "cuda_profiler_range":
            return Fate.METRICS
        return Fate.SKIP if place_and_level(event.cat)[0] == "ignored" else Fate.SPAN
    if event.phase in _PAIRS:
        return _PAIRS[event.phase]
    if event.phase == "C":
        return Fate.COUNTER
    if event.phase in "iI" and event.name == "[memory]":
        return Fate.ALLOCATION
    return Fate.NAME if event.phase == "M" and event.name in _NAMES else Fate.SKIP


def device_of(cat: str, device: int | None, pid: str) -> str:
    """Device of an event of this category: its argument, else the process that stands for it; empty for the host's."""
    if place_and_level(cat)[0] != "device":
        return ""
    if device is None or device < 0:
        device = int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 10 else 0
    return f"{'mtia' if cat.lower().startswith('mtia') else 'gpu'}:{device}"


def kind_of(event: Event, *, has_device: bool) -> Kind:
    """The kind of the spans that such events become."""
    name, (place, level) = event.name, place_and_level(event.cat)
    if event.device:
        return Kind(name, event.device, level, category_of_kernel(name), True)
    if is_layer_mark(name):
        return Kind(name, "host", "layer", "host", False)
    if place == "cpu" and not has_device:
        return Kind(name, "cpu:0", level, category_of_op(name), True)
    if place == "host" and is_step_mark(name):
        return Kind(name, "host", "model", "host", False)
    if is_module_call(name):
        return Kind(name, "host", "layer", "host", True)
    return Kind(name, "host", level, "host", level != "runtime" or not is_wait(name))


def may_bound_steps(event: Event) -> bool:
    """Whether steps may be found by spans of this kind."""
    return is_step_mark(event.name) or OPTIMIZER_STEP.fullmatch(event.name) is not None


def label_of(event: Event) -> str:
    """The kind's name in accounts: the category, or what the format calls it."""
    word = _PHASES.get(event.phase)
    if event.phase in "XBbS":
        return event.cat or "no category"
    if word == "metadata" or event.phase == "C":
        return f"{word or 'counter'} {event.name}"
    if word is not None:
        return f"{word} {event.cat or event.name}"
    return f"end {event.cat}".strip() if event.phase in "EeF" else f"phase {event.phase or 'missing'}"


def accounts_of(events: list[Event], used: list[int], lost: list[int], unreadable: int) -> list[Account]:
    """Every event of a file in one account.

    Args:
        events: the kinds.
        used: how many of each became what its fate says.
        lost: how many of each could not be placed.
        unreadable: events that could not be read.
    """
    sums: dict[tuple[str, str, str], int] = {}
    for event, n_used, n_lost in zip(events, used, lost, strict=True):
        fate = fate_of(event)
        unplaced = ("skipped", label_of(event), _UNPLACED.get(fate, ""))
        for count, key in ((n_used, _what_became(event, fate)), (n_lost, unplaced)):
            if count:
                sums[key] = sums.get(key, 0) + count
    if unreadable:
        sums["skipped", "unreadable", "no JSON that can be read"] = unreadable
    return [Account(*key, count) for key, count in sums.items()]


def is_dropped(account: Account) -> bool:
    """Whether an account's events could not be read or placed, and were not left out by design."""
    return account.what == "unreadable" or account.reason in _UNPLACED.values()


def _what_became(event: Event, fate: Fate) -> tuple[str, str, str]:
    label = label_of(event)
    if fate in (Fate.SPAN, Fate.BEGIN):
        return "kept", label, ""
    if fate in _MERGED:
        return "merged", label, _MERGED[fate]
    default = _SKIPPED.get(_PHASES.get(event.phase, ""), "not a stretch of time, or not known")
    return "skipped", label, _REPEATING_ACCOUNTS.get(event.cat.lower(), default)
