"""A total and its parts as a table with bars and intervals."""

from collections.abc import Mapping

from phasepoint.core.units import format_ps, format_ratio
from phasepoint.phases.breakdown import Breakdown, PartTime
from phasepoint.report.html_tables import Cell, Column, data_table, duration, figures, ratio, text
from phasepoint.report.markup import Content, Markup, element, join, swatch
from phasepoint.report.wording import category_name, part_interval

_MOST_PARTS = 12
"""Parts listed one by one; the others are added up below the table."""


def breakdown_table(breakdown: Breakdown, colours: Mapping[str, str], *, label: str) -> Markup:
    """Parts with bars; the column of intervals only where something is estimated."""
    parts = [part for part in breakdown.parts if part.total_ps]
    shown, rest = parts[:_MOST_PARTS], parts[_MOST_PARTS:]
    is_estimated = any(part.basis == "estimated" for part in shown)
    columns = [text("part"), Column("", ""), figures("share", "share"), figures("time", "total_ps")]
    columns += [text("95 % interval", "interval")] if is_estimated else []
    rows = [_part_cells(part, breakdown.total_ps, colours[part.name], with_interval=is_estimated) for part in shown]
    notes: list[Content] = [element("p", note, class_="dim") for note in breakdown.notes]
    if rest:
        total_ps, share = sum(part.total_ps for part in rest), sum(part.share for part in rest)
        more = f"and {len(rest)} more parts: {format_ps(total_ps)}, {format_ratio(share)}"
        notes.insert(0, element("p", more, class_="dim"))
    return join([data_table(columns, rows, label=label, with_filter=False), *notes])


def _part_cells(part: PartTime, total_ps: int, colour: str, *, with_interval: bool) -> list[Content | Cell]:
    name = join([swatch(colour), " ", category_name(part.name)])
    cells: list[Content | Cell] = [name, _bar(part, total_ps, colour), ratio(part.share), duration(part.total_ps)]
    return [*cells, part_interval(part)] if with_interval else cells


def _bar(part: PartTime, total_ps: int, colour: str) -> Markup:
    """A bar of the part's share with a whisker over its interval."""
    if not total_ps:
        return Markup("")
    low, high = (_percent(time_ps, total_ps) for time_ps in (part.low_ps, part.high_ps))
    shapes = [element("rect", x=0, y=2, width=_percent(part.total_ps, total_ps), height=10, rx=1, fill=colour)]
    if part.low_ps != part.high_ps:
        shapes.append(element("line", x1=low, x2=high, y1=7, y2=7, class_="whisker"))
        shapes += [element("line", x1=x, x2=x, y1=4, y2=10, class_="whisker") for x in (low, high)]
    return element("svg", *shapes, class_="bar", height=14, aria_hidden="true")


def _percent(time_ps: int, total_ps: int) -> str:
    return f"{100 * min(max(time_ps, 0), total_ps) / total_ps:.2f}%"
