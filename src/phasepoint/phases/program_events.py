"""Which program a compilation made: by name, and whether the same function was compiled before with other shapes."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phasepoint.phases.stretches import Stretch


@dataclass(frozen=True)
class ProgramSeen:
    """A program and the step in or after whose window it was first seen.

    Attributes:
        host: rank.
        attempt: restarts before it.
        name: name of the compiled module.
        step: first step of the window in which it was first seen.
        version: programs of this name that were first seen in an earlier window.
        instructions: its size.
        main: whether it has at least a tenth of the instructions of the run's largest program; the others are the
            small programs that a framework makes for single operations.
    """

    host: int
    attempt: int
    name: str
    step: int
    version: int
    instructions: int
    main: bool


@dataclass(frozen=True)
class ToldCompilation:
    """A compilation of which the framework said whether it was the first.

    Attributes:
        host: rank.
        attempt: restarts before it.
        step: step in which it was compiled.
        name: what was compiled.
        again: whether it had been compiled before, for other arguments; False for another mode (gradients off, or
            evaluation): that is another program.
        why: what was different.
        dur_ps: what it cost.
    """

    host: int
    attempt: int
    step: int
    name: str | None
    again: bool
    why: str | None
    dur_ps: int


def told_compilations(compilations: pa.Table) -> tuple[ToldCompilation, ...]:
    """The rows of `compilations` that say whether they were the first, in order of time."""
    columns = ["host", "attempt", "step", "name", "again", "why", "dur_ps"]
    rows = [row for row in _rows(compilations, columns) if row["step"] is not None and row["again"] is not None]
    return tuple(ToldCompilation(**{**row, "again": row["again"] and not _is_mode(row["why"] or "")}) for row in rows)


def _is_mode(why: str) -> bool:
    return any(word in why for word in ("grad_mode", "inference_mode", ".training"))


def programs_seen(programs: pa.Table, windows: pa.Table) -> tuple[ProgramSeen, ...]:
    """Every program with the first step of its first window, in order of that step."""
    columns = ["host", "attempt", "window", "first_step"]
    first_step = {(row["host"], row["attempt"], row["window"]): row["first_step"] for row in _rows(windows, columns)}
    rows = []
    for row in _rows(programs, ["host", "attempt", "first_window", "name", "program", "instructions"]):
        step = first_step.get((row["host"], row["attempt"], row["first_window"]))
        if step is not None:
            rows.append((row["host"], row["attempt"], step, row["program"], row["name"], row["instructions"]))
    largest = max((row[-1] for row in rows), default=0)
    steps_of: dict[tuple[int, int, str], list[int]] = {}
    found = []
    for host, attempt, step, _, name, instructions in sorted(rows):
        steps = steps_of.setdefault((host, attempt, name), [])
        version = bisect_left(steps, step)
        steps.append(step)
        found.append(ProgramSeen(host, attempt, name, step, version, instructions, 10 * instructions >= largest))
    return tuple(found)


def name_compilation(
    stretch: Stretch,
    steps: tuple[int, int],
    until: int | None,
    programs: Sequence[ProgramSeen],
    told: Sequence[ToldCompilation] = (),
) -> tuple[str, str]:
    """What a compilation is called: its kind of event and its words.

    The programs it made are taken to be those first seen in a window from its first step on and before the next
    compilation.

    Args:
        stretch: the steps that compiled.
        steps: the first and the last of them.
        until: first step of the next compilation, None if there is none.
        programs: of the run.
        told: what the framework told of.

    Returns:
        `compile` for the first of a session, `shape-change` where a function known before was compiled again,
        `recompile` otherwise; and the words for it.
    """
    key, first = (stretch.session.host, stretch.session.attempt), steps[0]
    of_framework = [one for one in told if (one.host, one.attempt) == key and steps[0] <= one.step <= steps[1]]
    if of_framework:
        return _name_told(of_framework, is_start=stretch.first == stretch.session.first_row)
    mine = [p for p in programs if (p.host, p.attempt) == key and p.step >= first and (until is None or p.step < until)]
    again = [p for p in mine if p.version and p.main]
    named = sorted(again or [p for p in mine if p.main], key=lambda p: -p.instructions)
    names = "".join(f" {name}" for name in list(dict.fromkeys(p.name for p in named))[:3])
    if again:
        return "shape-change", f"compiled{names} again, for new shapes or options"
    if stretch.first == stretch.session.first_row:
        return "compile", f"compiled{names}"
    return "recompile", f"compiled{names or ' a new program'} in the middle of the run"


def _name_told(told: Sequence[ToldCompilation], *, is_start: bool) -> tuple[str, str]:
    again = [one for one in told if one.again]
    names = "".join(f" {name}" for name in list(dict.fromkeys(one.name for one in again or told if one.name))[:3])
    if again:
        why = next((f": {one.why}" for one in again if one.why), "")
        return "shape-change", f"compiled{names} again{why}"
    return ("compile", f"compiled{names}") if is_start else ("recompile", f"compiled{names} in the middle of the run")


def _rows(table: pa.Table, columns: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.select(columns).to_pylist()
    return rows
