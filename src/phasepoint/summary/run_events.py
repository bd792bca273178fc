"""What happened in a run, one sentence each: compilations, checkpoints, evaluation, stalls, slow steps, restarts.

Each finder is one function over the same view of the run; `tell_events` puts them in order of time.
"""

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.statistics import median_ps
from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio
from phasepoint.phases.clock.marked_checkpoints import ESTIMATED, UNKNOWN
from phasepoint.phases.clock.steps import RunClock, Stretch, find_stretches, sum_ps
from phasepoint.phases.detection.result import Phase
from phasepoint.summary.types import RunEvent


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
    for row in rows:
        row["again"] &= not any(word in (row["why"] or "") for word in _MODES)
    return tuple(ToldCompilation(**row) for row in rows)


_MODES = ("grad_mode", "inference_mode", ".training")
"""Words of Dynamo's reasons that name another mode of the same function: no recompilation."""


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


@dataclass(frozen=True)
class CompiledPrograms:
    """What is known of the programs that steps in a row compiled.

    Attributes:
        told: what the framework told of them.
        seen: the main programs first seen in a window from the first of these steps on and before the next ones that
            compile, which are taken to be theirs; the largest first.
        known: name of what took most of the time to compile, where a program of this name was compiled or seen before;
            None where it was not, has no name, or no program took most of it.
    """

    told: tuple[ToldCompilation, ...]
    seen: tuple[ProgramSeen, ...]
    known: str | None = None

    @property
    def again(self) -> tuple[ProgramSeen, ...]:
        """Those of `seen` that were known by name before."""
        return tuple(program for program in self.seen if program.version)


def compiled_programs(
    clock: RunClock, stretches: Sequence[Stretch], programs: pa.Table, windows: pa.Table, compilations: pa.Table
) -> list[CompiledPrograms]:
    """What each of the stretches that compiled made, in their order.

    Args:
        clock: the run's steps.
        stretches: all that compiled, in order.
        programs: `Run.table("programs")`.
        windows: `Run.table("windows")`.
        compilations: `Run.table("compilations")`.
    """
    seen, told = programs_seen(programs, windows), told_compilations(compilations)
    named = [row for row in _rows(compilations, ["host", "attempt", "step", "name", "dur_ps"]) if row["name"]]
    named = [row for row in named if "<" not in row["name"]]  # jit(<lambda>): any of them may be meant
    found = []
    for stretch, following in zip(stretches, [*stretches, None][1:], strict=True):
        key = (stretch.session.host, stretch.session.attempt)
        first, last, until = int(clock.step[stretch.first]), int(clock.step[stretch.last]), math.inf
        if following is not None and following.session is stretch.session:
            until = int(clock.step[following.first])
        mine = [p for p in seen if p.main and (p.host, p.attempt) == key and first <= p.step < until]
        of_framework = (one for one in told if (one.host, one.attempt) == key and first <= one.step <= last)
        before = {p.name for p in seen if (p.host, p.attempt) == key and p.step < first}
        known = _known_before([row for row in named if (row["host"], row["attempt"]) == key], first, last, before)
        found.append(CompiledPrograms(tuple(of_framework), tuple(sorted(mine, key=lambda p: -p.instructions)), known))
    return found


def _known_before(compiled: list[dict[str, Any]], first: int, last: int, seen: set[str]) -> str | None:
    """Name of what took most of the compiling in some steps, where a program of this name is known from before them."""
    took_ps: Counter[str] = Counter()
    for row in compiled:
        if row["step"] is not None and first <= row["step"] <= last:
            took_ps[_program_name(row["name"])] += row["dur_ps"]
    if not took_ps:
        return None
    longest, longest_ps = took_ps.most_common(1)[0]
    if 2 * longest_ps < took_ps.total():
        return None
    earlier = {_program_name(row["name"]) for row in compiled if row["step"] is None or row["step"] < first}
    return longest if longest in seen | earlier else None


def _program_name(compiled: str) -> str:
    """`jit_step` for the `jit(step)` of JAX's compile events: what the compiled module is called."""
    return re.sub(r"\W", "_", compiled.removesuffix(")"))


def _name_compilation(made: CompiledPrograms, *, is_start: bool) -> tuple[str, str]:
    """Kind of event of a compilation, and the words for it.

    `compile` for the first of a session, `shape-change` where a function known before was compiled again, `recompile`
    otherwise.
    """
    told_again = [one for one in made.told if one.again]
    known = told_again or made.told or made.again or made.seen
    listed = [one.name for one in known] or [made.known]
    names = "".join(f" {name}" for name in list(dict.fromkeys(name for name in listed if name))[:3])
    if told_again:
        why = next((f": {one.why}" for one in told_again if one.why), "")
        return "shape-change", f"compiled{names} again{why}"
    if (made.again or made.known) and not made.told:
        return "shape-change", f"compiled{names} again, for new shapes or options"
    if is_start:
        return "compile", f"compiled{names}"
    unnamed = "" if made.told else " a new program"
    return "recompile", f"compiled{names or unnamed} in the middle of the run"


def _rows(table: pa.Table, columns: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.select(columns).to_pylist()
    return rows


MAX_EVENTS_OF_A_KIND = 100
"""Events kept of each kind, those with the most time at stake; what is left out is said in the last one's text."""

COMPILE_LEAST_PS = 5_000_000_000
"""Compilation below 5 ms in a step is a cache look-up or a constant, not an event."""

STALL_SHARE = 0.2
"""A step stalls on its input from a fifth of its time on."""
STALL_LEAST_STEPS = 5  # a choice, as are the next two: a stall shorter, or cheaper, is not worth a line
STALL_LEAST_SHARE = 0.01
"""A stall is told if it lasts for 5 steps, or costs 1 % of the time inside steps."""
STALL_BRIDGE = 5
"""So many steps without a stall do not end a stretch of it."""

DRIFT_PARTS, DRIFT_LEAST, DRIFT_LEAST_STEPS = 10, 0.05, 200
"""A phase drifts if the medians of its tenths rise (or fall) throughout, by 5 % over all, in 200 steps or more.

A choice: tenths of 200 steps are medians of 20, which scatter by a quarter of what single steps do (1.25 / √20)."""


@dataclass(frozen=True, eq=False)
class RunView:
    """What the finders look at.

    Attributes:
        clock: the run's steps.
        labels: `[n_steps]` phase id per row of the clock.
        phases: by id.
        slow: `[n_steps]`, steps that lasted far longer than their phase does.
        checkpoints: as `Analysis` has it.
        windows: `Run.table("windows")`.
        programs: `Run.table("programs")`.
        compilations: `Run.table("compilations")`.
    """

    clock: RunClock
    labels: Int64s
    phases: Sequence[Phase]
    slow: Bools
    checkpoints: pa.Table
    windows: pa.Table
    programs: pa.Table
    compilations: pa.Table


def tell_events(view: RunView) -> tuple[RunEvent, ...]:
    """All events of a run, in order of time; per kind at most 100, those with the most at stake."""
    found = [event for finder in _FINDERS for event in _largest(finder(view))]
    return tuple(sorted(found, key=lambda event: (event.start_ps or 0, event.host, event.kind)))


def _largest(events: Iterable[RunEvent]) -> list[RunEvent]:
    by_kind: dict[str, list[RunEvent]] = {}
    for event in events:
        by_kind.setdefault(event.kind, []).append(event)
    kept = []
    for same in by_kind.values():
        same.sort(key=lambda event: -(event.cost_ps or 0))
        left = same[MAX_EVENTS_OF_A_KIND:]
        del same[MAX_EVENTS_OF_A_KIND:]
        if left:
            cost_ps = sum(event.cost_ps or 0 for event in left)
            more = f"{format_count(len(left))} smaller ones with {format_ps(cost_ps)} are not listed"
            same[-1] = replace(same[-1], text=f"{same[-1].text}; {more}")
        kept += same
    return kept


def _event(view: RunView, kind: str, stretch: Stretch, cost_ps: int | None, text: str) -> RunEvent:
    return RunEvent(
        kind=kind,
        host=stretch.session.host,
        attempt=stretch.session.attempt,
        first_step=int(view.clock.step[stretch.first]),
        last_step=int(view.clock.step[stretch.last]),
        start_ps=stretch.start_ps(view.clock),
        dur_ps=stretch.dur_ps(view.clock),
        cost_ps=cost_ps,
        text=text,
    )


def _find_compilations(view: RunView) -> Iterable[RunEvent]:
    """Compilation on the step clock; where the clock has none, steps of phases taken for compilation."""
    clock = view.clock
    if clock.compile_known:
        holds = clock.compile_ps >= COMPILE_LEAST_PS
    else:
        holds = np.isin(view.labels, [phase.id for phase in view.phases if phase.kind == "compile"])
    found = find_stretches(clock, holds)
    made = compiled_programs(clock, found, view.programs, view.windows, view.compilations)
    for stretch, programs in zip(found, made, strict=True):
        cost_ps = sum_ps((clock.compile_ps if clock.compile_known else clock.dur_ps)[stretch.rows])
        kind, what = _name_compilation(programs, is_start=stretch.first == stretch.session.first_row)
        yield _event(view, kind, stretch, cost_ps, f"{stretch.named(clock)}: {what}, {format_ps(cost_ps)}")


def _find_checkpoints(view: RunView) -> Iterable[RunEvent]:
    for row in view.checkpoints.to_pylist():
        session = view.clock.session(row["host"], row["attempt"])
        where = f"step {row['step']}" if row["step"] is not None else "outside steps"
        size = f", {format_bytes(row['bytes'])}" if row["bytes"] is not None else ""
        held = f"held the job for {'about ' if row['basis'] == ESTIMATED else ''}{format_ps(row['dur_ps'])}"
        held = "was marked; how long it held the job is not known" if row["basis"] == UNKNOWN else held
        yield RunEvent(
            kind="checkpoint",
            host=row["host"],
            attempt=row["attempt"],
            first_step=row["step"],
            last_step=row["step"],
            start_ps=row["start_ps"] + (session.offset_ps if session else 0),
            dur_ps=row["dur_ps"],
            cost_ps=row["dur_ps"],
            text=f"{where}: checkpoint {row['path']} ({row['framework']}{size}) {held}",
        )


def _find_evaluation(view: RunView) -> Iterable[RunEvent]:
    clock = view.clock
    for phase in view.phases:
        if phase.kind != "eval":
            continue
        for stretch in find_stretches(clock, view.labels == phase.id):
            cost_ps = sum_ps(clock.dur_ps[stretch.rows])
            yield _event(view, "eval", stretch, cost_ps, f"{stretch.named(clock)}: {phase.name}, {format_ps(cost_ps)}")


def _find_stalls(view: RunView) -> Iterable[RunEvent]:
    clock = view.clock
    stalled = clock.input_ps > STALL_SHARE * clock.dur_ps
    for stretch in find_stretches(clock, stalled, bridge=STALL_BRIDGE):
        wait_ps, dur_ps = sum_ps(clock.input_ps[stretch.rows]), sum_ps(clock.dur_ps[stretch.rows])
        long = int(stalled[stretch.rows].sum()) >= STALL_LEAST_STEPS
        if not long and wait_ps < STALL_LEAST_SHARE * clock.inside_ps:
            continue
        took = f"{format_ps(wait_ps)} of {format_ps(dur_ps)} ({format_ratio(wait_ps / dur_ps)})"
        text = f"{stretch.named(clock)}: waiting for input took {took}"
        yield _event(view, "input-stall", stretch, wait_ps, text)


def _find_slow_steps(view: RunView) -> Iterable[RunEvent]:
    """Outliers of each phase: the time over the phase's median, and the worst step."""
    clock = view.clock
    for phase in view.phases:
        mine = view.labels == phase.id
        slow, usual = mine & view.slow, mine & ~view.slow
        if not slow.any() or not usual.any():
            continue
        usual_ps = median_ps(clock.dur_ps[usual])
        excess_ps = np.where(slow, np.maximum(clock.dur_ps - usual_ps, 0), 0)
        worst = int(np.argmax(excess_ps))
        session = next(s for s in clock.sessions if s.first_row <= worst < s.end_row)
        count, lost_ps = int(slow.sum()), sum_ps(excess_ps)
        many = (
            f"{format_count(count)} slow {'step' if count == 1 else 'steps'} in {phase.name} lost {format_ps(lost_ps)}"
        )
        longest = f"the worst is step {clock.step[worst]} with {format_ps(int(clock.dur_ps[worst]))}"
        text = f"{many}; {longest} (median {format_ps(usual_ps)})"
        yield _event(view, "slow-steps", Stretch(session, worst, worst), lost_ps, text)


def _find_drift(view: RunView) -> Iterable[RunEvent]:
    clock = view.clock
    for phase in view.phases:
        for session in clock.sessions:
            rows = np.flatnonzero(view.labels[session.rows] == phase.id) + session.first_row
            if len(rows) < DRIFT_LEAST_STEPS:
                continue
            medians = np.array([median_ps(clock.dur_ps[part]) for part in np.array_split(rows, DRIFT_PARTS)])
            change = float(medians[-1] / max(medians[0], 1) - 1)
            steady = (np.sign(np.diff(medians)) == np.sign(change)).sum() >= DRIFT_PARTS - 2
            if not steady or abs(change) < DRIFT_LEAST:
                continue
            stretch = Stretch(session, int(rows[0]), int(rows[-1]))
            cost_ps = max(int((medians - medians[0]).sum()) * (len(rows) // DRIFT_PARTS), 0)
            fromto = f"from {format_ps(int(medians[0]))} to {format_ps(int(medians[-1]))} ({change:+.0%})"
            yield _event(view, "drift", stretch, cost_ps, f"{stretch.named(clock)}: {phase.name} steps drift {fromto}")


def _find_restarts(view: RunView) -> Iterable[RunEvent]:
    for session in view.clock.sessions:
        before = view.clock.session(session.host, session.attempt - 1)
        if before is None:
            continue
        down_ps = max(session.offset_ps - before.offset_ps - before.wall_ps, 0)
        steps = view.clock.step[session.rows]
        first = int(steps[0]) if len(steps) else None
        yield RunEvent(
            kind="restart",
            host=session.host,
            attempt=session.attempt,
            first_step=first,
            last_step=first,
            start_ps=session.offset_ps,
            dur_ps=down_ps,
            cost_ps=down_ps,
            text=f"host {session.host} was started again (attempt {session.attempt}), {format_ps(down_ps)} after "
            f"the last sign of attempt {before.attempt}",
        )


_FINDERS: tuple[Callable[[RunView], Iterable[RunEvent]], ...] = (
    _find_compilations,
    _find_checkpoints,
    _find_evaluation,
    _find_stalls,
    _find_slow_steps,
    _find_drift,
    _find_restarts,
)
