"""What changed between programs of one name: the parameters whose shape or element type differs."""

import re
from dataclasses import dataclass
from itertools import pairwise

import pyarrow.compute as pc

from phasepoint.findings.view import FindingsView

_LAYOUT = re.compile(r"\{[^{}]*\}")
_MOST_SHAPES = 4


@dataclass(frozen=True)
class Change:
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


def program_changes(view: FindingsView, name: str) -> tuple[Change, ...]:
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
            changes.append(Change(parameter, told, differing))
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
