"""Where the time went: a total and its parts as a table with bars and intervals."""

from collections.abc import Mapping

from phasepoint.core.units import format_ps, format_ratio
from phasepoint.phases.clock.breakdown import FEW, Anatomy, Breakdown, PartTime
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.html import data_table
from phasepoint.report.words.anatomy import anatomy_basis, anatomy_line, anatomy_title, part_title, passes_line
from phasepoint.report.words.markup import Content, Markup, element, heading, join, section, swatch
from phasepoint.report.words.palette import part_colour, phase_colours
from phasepoint.report.words.wording import account_basis, category_name, estimate_basis, part_interval
from phasepoint.summary.types import RunSummary

_MOST_PARTS = 12
"""Parts listed one by one; the others are added up below the table."""


def time_section(summary: RunSummary) -> Markup:
    """The clock's account beside the categories."""
    colours = phase_colours(summary.phases)
    title = "Where the clock says the time went"
    account = section(title, account_basis(summary.account), breakdown_table(summary.account, colours, label=title))
    categories = Markup("")
    if summary.inside_ps:
        title = "What the steps' time went into"
        basis = estimate_basis(summary.categories)
        categories = section(title, basis, breakdown_table(summary.categories, colours, label=title))
    return element("div", account, categories, class_="columns", id="where-time-went")


def anatomy_band(anatomy: Anatomy | None, name: str) -> Markup:
    """The step as a band cut into its parts, in the order of a step, and below it what each is and how much."""
    if anatomy is None or not anatomy.total_ps:
        return Markup("")
    parts = [part for part in anatomy.parts if part.total_ps]
    shapes, at_ps = [], 0
    for part in parts:
        x, width = (_percent(time_ps, anatomy.total_ps) for time_ps in (at_ps, part.total_ps))
        told = element("title", f"{part_title(part.name)}: {format_ps(part.total_ps)}, {format_ratio(part.share)}")
        shapes.append(element("rect", told, x=x, y=0, width=width, height=18, fill=part_colour(part, {})))
        at_ps += part.total_ps
    label = f"{anatomy_title(name)}: {anatomy_line(anatomy)}"
    band = element("svg", *shapes, width="100%", height=18, role="img", aria_label=label)
    keys = [
        join([swatch(part_colour(part, {})), f" {part_title(part.name)} {format_ratio(part.share)}"]) for part in parts
    ]
    below = [element("p", join(keys, "  "))]
    passes = passes_line(anatomy)
    if passes:
        below.append(element("p", passes, class_="dim"))
    return element("div", heading("h3", anatomy_title(name), anatomy_basis(anatomy)), band, *below, class_="anatomy")


def breakdown_table(breakdown: Breakdown, of_phase: Mapping[int | None, str], *, label: str) -> Markup:
    """Parts with bars; times only where windows are enough, and intervals only where something is estimated."""
    parts = [part for part in breakdown.parts if part.total_ps]
    shown, rest = parts[:_MOST_PARTS], parts[_MOST_PARTS:]
    columns = [
        TableColumn("part", lambda part: join([swatch(part_colour(part, of_phase)), " ", category_name(part.name)])),
        TableColumn("", lambda part: _bar(part, breakdown.total_ps, part_colour(part, of_phase))),
        TableColumn("share", lambda part: part.share, "ratio"),
    ]
    if breakdown.basis != FEW:
        columns.append(TableColumn("time", lambda part: part.total_ps, "ps", "total_ps"))
    if breakdown.basis != FEW and any(part.basis == "estimated" for part in shown):
        columns.append(TableColumn("95 % interval", part_interval, "", "interval"))
    notes: list[Content] = [element("p", note, class_="dim") for note in breakdown.notes]
    if rest:
        total_ps, share = sum(part.total_ps for part in rest), sum(part.share for part in rest)
        more = f"and {len(rest)} more parts: {format_ps(total_ps)}, {format_ratio(share)}"
        notes.insert(0, element("p", more, class_="dim"))
    return join([data_table(Table(columns, shown, label), with_filter=False), *notes])


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
