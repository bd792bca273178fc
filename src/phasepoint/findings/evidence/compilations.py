"""Compilations on the step clock: what each cost, whether a program known before was compiled again, and what changed.

A change is told by the parameters whose shape or element type differs between programs of one name.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.statistics import median_ps
from phasepoint.findings.finding import Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import Stretch, find_stretches, sum_ps
from phasepoint.summary.run_events import COMPILE_LEAST_PS, CompiledPrograms, compiled_programs

_LAYOUT = re.compile(r"\{[^{}]*\}")
_MOST_SHAPES = 4  # told of one parameter: a choice, as many as a line holds


@dataclass(frozen=True)
class SignatureChange:
    """A parameter that differs between programs of one name.

    Attributes:
        parameter: the framework's name of it (`x`, `state['w']`), or the instruction's.
        shapes: its shapes in order of the programs, each told once.
        programs: how many of the programs differ from the one before.
    """

    parameter: str
    shapes: tuple[str, ...]
    programs: int

    @property
    def is_dtype(self) -> bool:
        """Whether only the element type differs."""
        return len({shape.partition("[")[2] for shape in self.shapes}) == 1

    @property
    def told(self) -> str:
        """`x: f32[256,64] → f32[248,64] → f32[240,64]`."""
        shown = " → ".join(self.shapes[:_MOST_SHAPES])
        left = len(self.shapes) - _MOST_SHAPES
        return f"{self.parameter}: {shown}" + (f" and {left} more" if left > 0 else "")


def program_changes(view: FindingsView, name: str) -> tuple[SignatureChange, ...]:
    """Parameters that differ between the programs called `name`, the one that differs most often first."""
    shapes: dict[str, list[str]] = {}
    for signature in _signatures(view, name):
        for parameter, shape in signature.items():
            shapes.setdefault(parameter, []).append(shape)
    changes = []
    for parameter, all_shapes in shapes.items():
        told = tuple(dict.fromkeys(all_shapes))
        if len(told) > 1:
            differing = sum(a != b for a, b in pairwise(all_shapes))
            changes.append(SignatureChange(parameter, told, differing))
    return tuple(sorted(changes, key=lambda change: (-change.programs, change.parameter)))


def _signatures(view: FindingsView, name: str) -> list[dict[str, str]]:
    """Parameter → shape of each program of this name, in the order in which they were made."""
    programs = view.table("programs")
    named = programs.filter(pc.equal(programs.column("name").cast("string"), name))
    instructions = view.table("instructions")
    holds = pc.and_(
        pc.and_(instructions.column("is_entry"), pc.equal(instructions.column("opcode").cast("string"), "parameter")),
        pc.is_in(instructions.column("program"), value_set=named.column("program").combine_chunks()),
    )
    columns = ["host", "attempt", "program", "op", "op_name", "shape"]
    by_program: dict[tuple[int, int, int], dict[str, str]] = {}
    for row in named.select(["host", "attempt", "program"]).to_pylist():
        by_program[row["host"], row["attempt"], row["program"]] = {}
    for row in instructions.filter(holds).select(columns).to_pylist():
        key = (row["host"], row["attempt"], row["program"])
        if key in by_program:
            by_program[key][row["op_name"] or row["op"]] = _LAYOUT.sub("", row["shape"])
    return [by_program[key] for key in sorted(by_program)]


LEAST_AGAIN = 3
"""Where no program was seen, compiling in the middle of the run counts as compiling again from the third time on that
costs half as much as the dearest: an evaluation and a last short batch each bring a program of their own, and beside
one of those a look-up of some ms is no compilation."""


@dataclass(frozen=True)
class Compilation:
    """Steps in a row that compiled.

    Attributes:
        stretch: the steps.
        is_again: whether it compiled something again.
        name: of the largest program that was compiled again; None where that is not known.
        why: what was different, where the framework said it.
    """

    stretch: Stretch
    is_again: bool
    name: str | None = None
    why: str | None = None


def need_compilations(view: FindingsView) -> None:
    """Raises `Unavailable` where the step clock did not watch compilation."""
    if not view.clock.compile_known:
        raise Unavailable(
            "the run holds no compile times: record a JAX job, or a PyTorch job in the process that calls "
            "torch.compile, with `phasepoint.record(…)`"
        )


def compile_cost_ps(view: FindingsView) -> Int64s:
    """`[n_steps]` what compiling held each step up: the compiler's own time, and the tracing around it.

    JAX and Dynamo time their compilers; a step that compiles for more than half of its excess over the usual step owes
    the rest of the excess to it too (tracing, loading, the first execution), as far as nothing else accounts for it.
    """
    clock, parts = view.clock, view.step_parts
    compiled = clock.compile_ps >= COMPILE_LEAST_PS
    cost_ps = np.where(compiled, clock.compile_ps, 0)
    if compiled.all() or not compiled.any():
        return cost_ps
    excess_ps = clock.dur_ps - clock.input_ps - median_ps(clock.dur_ps[~compiled])
    mostly = compiled & (2 * clock.compile_ps >= excess_ps)
    return np.where(mostly, np.clip(excess_ps, cost_ps, cost_ps + parts.rest_ps), cost_ps)


def find_compilations(view: FindingsView) -> list[Compilation]:
    """Every compilation of the run, in order."""
    clock = view.clock
    found = find_stretches(clock, clock.compile_ps >= COMPILE_LEAST_PS)
    tables = (view.table(name) for name in ("programs", "windows", "compilations"))
    judged = [
        _judge(view, stretch, made)
        for stretch, made in zip(found, compiled_programs(clock, found, *tables), strict=True)
    ]
    unseen_ps = [
        sum_ps(clock.compile_ps[stretch.rows]) for one, stretch in zip(judged, found, strict=True) if one is None
    ]
    often = sum(2 * one_ps >= max(unseen_ps) for one_ps in unseen_ps) >= LEAST_AGAIN
    return [one or Compilation(stretch, often) for one, stretch in zip(judged, found, strict=True)]


def cost_of(compilations: list[Compilation], cost_ps: Int64s) -> Int64s:
    """`[n_steps]` the cost of some compilations alone."""
    mine: Bools = np.zeros(len(cost_ps), bool)
    for compilation in compilations:
        mine[compilation.stretch.rows] = True
    return np.where(mine, cost_ps, 0)


def _judge(view: FindingsView, stretch: Stretch, made: CompiledPrograms) -> Compilation | None:
    """What the framework said of it, else what windows and earlier compilations know; None where these do not tell."""
    again = [one for one in made.told if one.again]
    if again and 2 * sum(one.dur_ps for one in again) >= sum(one.dur_ps for one in made.told):
        largest = max(again, key=lambda one: one.dur_ps)
        return Compilation(stretch, True, largest.name, largest.why)
    if made.told:
        return Compilation(stretch, False)
    if made.again or made.known:
        return Compilation(stretch, True, made.again[0].name if made.again else made.known)
    is_start = stretch.first == stretch.session.first_row or _starts_kind(view, stretch)
    return Compilation(stretch, False) if is_start or made.seen else None


def _starts_kind(view: FindingsView, stretch: Stretch) -> bool:
    """Whether it holds the session's first step of a kind that the user named (`run.phase("eval")`)."""
    kinds = view.table("steps").column("kind").slice(stretch.session.first_row).to_pylist()
    at = stretch.first - stretch.session.first_row
    return any(kind not in kinds[:at] for kind in kinds[at : at + stretch.last - stretch.first + 1])
