"""A plan of a transformer's layouts as a page: time against devices, what a step is made of, memory, the layouts."""

import math
from collections.abc import Sequence
from importlib.metadata import version
from itertools import chain

from phasepoint.core.units import format_bytes, format_count, format_ps
from phasepoint.report.html.bars import parts_bars
from phasepoint.report.html.page import page_html
from phasepoint.report.tables import Table
from phasepoint.report.tables.html import data_table
from phasepoint.report.tables.plans import layout_columns
from phasepoint.report.words.layouts import layout_words, memory_lines, plan_sentence
from phasepoint.report.words.markup import Content, Markup, bullets, drawing, element, join, section
from phasepoint.scale.plan.layouts import BatchPlan, LayoutRow, Machine

_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE = 1000, 230, 64, 20, 10  # of a drawing, and its margins


def layouts_html(
    what: str,
    machine: Machine,
    plans: Sequence[BatchPlan],
    sizes: Sequence[tuple[int, LayoutRow]],
    notes: Sequence[str],
) -> str:
    """The page.

    Args:
        what: the model, as it was asked for.
        machine: the devices.
        plans: for each batch.
        sizes: the best layouts on fewer devices, of the batch that gives most tokens a second.
        notes: for the reader.
    """
    rows = list(chain.from_iterable(plan.best for plan in plans))
    head: list[Content] = [
        element("p", f"{what} on {format_count(machine.devices)} × {machine.device.name}", class_="dim"),
        element("h1", plan_sentence(rows)),
        *(element("p", note, class_="note") for note in notes),
    ]
    best = [(f"{format_count(row.batch)}: {layout_words(row)}", row) for row in rows]
    parts: list[Content] = [element("header", *head)]
    if len(sizes) > 1:
        batch = format_count(sizes[0][1].batch)
        parts.append(section("Time of a step", f"against devices, batch {batch}, 90 % interval", _curve(sizes)))
        named = [(f"{format_count(devices)} devices", row) for devices, row in sizes]
        shares = [(name, row.parts_ps, format_ps(row.step_ps)) for name, row in named]
        parts.append(section("What a step is made of", "as shares, on fewer devices and on all", parts_bars(shares)))
    if rows:
        shares = [(name, row.memory, format_bytes(row.memory_bytes)) for name, row in best]
        limit = rows[0].limit_bytes
        parts.append(section("Memory of a device", f"of {format_bytes(limit)}", parts_bars(shares, whole=limit)))
        parts.append(
            section("Layouts", "the fastest that fit", data_table(Table(layout_columns(rows), rows, "Layouts")))
        )
    parts.append(section("What memory forbids", "", bullets(memory_lines(plans))))
    footer = element("footer", f"Phasepoint {version('phasepoint')}")
    return page_html(what, join([element("main", *parts), footer]))


def _curve(sizes: Sequence[tuple[int, LayoutRow]]) -> Markup:
    """Time over devices, both by their logarithms, with its interval; dashed what perfect scaling would give."""
    first, last = sizes[0], sizes[-1]
    ideal = [(devices, first[1].step_ps * first[0] / devices) for devices, _ in sizes]
    least = math.log(min(*(row.low_ps for _, row in sizes), ideal[-1][1]))
    most = math.log(max(row.high_ps for _, row in sizes))

    def x(devices: float) -> float:
        inside = math.log(devices / first[0]) / math.log(last[0] / first[0])
        return round(_LEFT + 10 + inside * (_WIDTH - _LEFT - 50), 1)

    def y(time_ps: float) -> float:
        inside = (math.log(time_ps) - least) / (most - least)
        return round(_ABOVE + (1 - inside) * (_HEIGHT - _ABOVE - _BELOW), 1)

    def line(points: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x(devices)},{y(time_ps)}" for devices, time_ps in points)

    band = [(n, row.low_ps) for n, row in sizes] + [(n, row.high_ps) for n, row in reversed(sizes)]
    drawn = [element("polygon", points=line(band), fill="#0072b2", fill_opacity=0.18)]
    drawn.append(element("polyline", points=line(ideal), class_="grid", stroke_dasharray="4 4"))
    told = [(devices, row.step_ps) for devices, row in sizes]
    drawn.append(element("polyline", points=line(told), fill="none", stroke="#0072b2", stroke_width=1.6))
    for devices, row in sizes:
        title = f"{format_count(devices)} devices: {format_ps(row.step_ps)}, {layout_words(row)}"
        drawn.append(element("circle", element("title", title), cx=x(devices), cy=y(row.step_ps), r=4, fill="#0072b2"))
        drawn.append(element("text", format_ps(row.step_ps), x=x(devices) + 7, y=y(row.step_ps) - 6))
        drawn.append(element("text", format_count(devices), x=x(devices), y=_HEIGHT - 5, text_anchor="middle"))
    return drawing(drawn, _WIDTH, _HEIGHT, "Time of a step against the number of devices")
