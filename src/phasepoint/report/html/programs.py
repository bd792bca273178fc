"""A plan of a training step on a slice as a page: what a step is made of by batch, its memory, what techniques win."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version

from phasepoint.core.units import format_bytes, format_count, format_ps
from phasepoint.learn.predict.tpu.topology import Topology
from phasepoint.report.html.bars import parts_bars
from phasepoint.report.html.page import page_html
from phasepoint.report.tables import Table
from phasepoint.report.tables.html import data_table
from phasepoint.report.tables.plans import program_columns, technique_columns
from phasepoint.report.words.layouts import experiment_sentence, program_sentence
from phasepoint.report.words.markup import Content, element, join, section
from phasepoint.scale.plan.program import ProgramRow
from phasepoint.scale.plan.what_if import TechniqueLeftOut


def program_html(
    what: str,
    topology: Topology,
    rows: Sequence[ProgramRow],
    notes: Sequence[str],
    without: Sequence[TechniqueLeftOut] = (),
) -> str:
    """The page.

    Args:
        what: the step, as it was asked for.
        topology: the slice.
        rows: for each batch; with techniques one: the step as it is.
        notes: for the reader.
        without: the step without each technique.
    """
    head: list[Content] = [
        element("p", f"{what} on {topology.name}, {format_count(topology.chips)} chips", class_="dim"),
        element("h1", program_sentence(rows)),
        element("p", experiment_sentence(rows, topology)),
        *(element("p", note, class_="note") for note in notes),
    ]
    parts: list[Content] = [element("header", *head)]
    named = [(f"batch {format_count(row.batch)}", row) for row in rows]
    used = [other for other in without if other.is_used]
    named += [(f"without {other.technique}", other.row) for other in used]
    fitting = [(name, row) for name, row in named if row.fits]
    if fitting:
        longest = max(row.step_ps for _, row in fitting) if without else 0
        told = "on one scale" if without else "as shares"
        steps = [(name, step_parts(row), format_ps(row.step_ps)) for name, row in fitting]
        parts.append(section("What a step is made of", told, parts_bars(steps, whole=longest)))
    limit = rows[0].limit_bytes
    if limit:
        memory = [(name, {"needed": row.memory_bytes}, format_bytes(row.memory_bytes)) for name, row in named]
        most = max(limit, *(row.memory_bytes for _, row in named))
        bars = parts_bars([*memory, ("a device has", {"limit": limit}, format_bytes(limit))], whole=most)
        parts.append(section("Memory of a device", f"of {format_bytes(limit)}", bars))
    parts.append(section("Steps", "by batch", data_table(Table(program_columns(rows), rows, "Steps"))))
    if used:
        table = Table(technique_columns(rows[0]), used, "Techniques")
        parts.append(section("Techniques", "what each saves", data_table(table)))
    footer = element("footer", f"Phasepoint {version('phasepoint')}")
    return page_html(what, join([element("main", *parts), footer]))


def step_parts(row: ProgramRow) -> Mapping[str, float]:
    """Of a step, by name."""
    return {
        "kernels": row.compute_ps,
        "links": row.exposed_ps,
        "input": row.input_ps,
        "slowest host": row.slowest_ps,
    }
