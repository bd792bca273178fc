"""A checkpoint in words: for its mark on the timeline and for tables."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from phasepoint.core.units import format_bytes, format_ps
from phasepoint.replay.checkpoints import IndexedCheckpoint
from phasepoint.replay.restart_points import refusal

_PARTS = (
    ("has_model", "model"),
    ("has_optimizer", "optimizer"),
    ("has_prng", "random state"),
    ("has_iterator", "data iterator"),
)

_KEY = ("host", "attempt", "step", "path")


def contents(one: IndexedCheckpoint) -> str:
    """What is in it and what is not, as far as it is known: `model, optimizer; no data iterator`."""
    held = ", ".join(name for part, name in _PARTS if getattr(one, part) is True)
    absent = " or ".join(name for part, name in _PARTS if getattr(one, part) is False)
    loader = "loader's state beside it" if one.iterator_state is not None else ""
    return "; ".join(text for text in (held, f"no {absent}" if absent else "", loader) if text)


def checkpoint_text(one: IndexedCheckpoint) -> str:
    """One line: step, size, time to write, state, contents, path."""
    step = "before the first step" if one.step is None else f"after step {one.step:,}"
    size = "" if one.size_bytes is None else f", {format_bytes(one.size_bytes)}"
    waited = f", the job waited {format_ps(one.dur_ps)}" if one.dur_ps else ""
    state = f", {one.state}" if one.state != "unknown" else ""
    held = contents(one)
    return f"checkpoint {step}{size}{waited}{state}{f' ({held})' if held else ''}: {one.path}"


def tell_checkpoints(checkpoints: Iterable[IndexedCheckpoint]) -> Callable[[Mapping[str, Any]], tuple[str, bool]]:
    """What the timeline says of a row of `checkpoints`, and whether no replay can start from it."""
    told = {tuple(getattr(one, name) for name in _KEY): one for one in checkpoints}

    def tell(row: Mapping[str, Any]) -> tuple[str, bool]:
        one = told[tuple(row[name] for name in _KEY)]
        return checkpoint_text(one), refusal(one) is not None

    return tell
