"""Bars of what several things are made of, on one scale or as shares: pages of plans draw them.

Its own file: pages of layouts and of programs share it.
"""

from collections.abc import Mapping, Sequence

from phasepoint.core.units import format_ratio
from phasepoint.report.words.markup import Markup, drawing, element, join, swatch
from phasepoint.report.words.palette import OUTSIDE_COLOUR, cycle_colours

_WIDTH, _ROW = 1000, 26  # of the drawing, and of a bar with the gap to the next one
_NAMED = 7  # parts with a colour of their own; the others are one


def parts_bars(rows: Sequence[tuple[str, Mapping[str, float], str]], whole: float = 0.0) -> Markup:
    """A bar for each row, made of its parts; `whole` is what a full bar stands for, 0 for each row's own sum."""
    totals: dict[str, float] = {}
    for _, parts, _ in rows:
        for name, value in parts.items():
            totals[name] = totals.get(name, 0.0) + value / (sum(parts.values()) or 1.0)
    order = sorted((name for name in totals if totals[name]), key=lambda name: -totals[name])
    colours = dict(zip(order[:_NAMED], cycle_colours(_NAMED), strict=False))
    items = [element("span", swatch(colour), " ", name) for name, colour in colours.items()]
    if len(order) > _NAMED:
        items.append(element("span", swatch(OUTSIDE_COLOUR), " all others"))
    drawn: list[Markup] = []
    label = 250
    room = _WIDTH - label - 90
    for number, (name, parts, total) in enumerate(rows):
        top, at = number * _ROW, float(label)
        drawn.append(element("text", name, x=label - 8, y=top + 15, text_anchor="end"))
        scale = room / (whole or sum(parts.values()) or 1.0)
        for part in order:
            width = parts.get(part, 0.0) * scale
            if width >= 0.05:
                share = format_ratio(parts[part] / sum(parts.values()))
                title = element("title", f"{part}: {share}")
                fill = colours.get(part, OUTSIDE_COLOUR)
                drawn.append(
                    element("rect", title, x=round(at, 1), y=top + 3, width=round(width, 1), height=_ROW - 8, fill=fill)
                )
                at += width
        drawn.append(element("text", total, x=round(at, 1) + 6, y=top + 15, class_="strong"))
    bars = drawing(drawn, _WIDTH, len(rows) * _ROW, "Parts of each, as bars")
    return join([element("p", join(items), class_="legend"), bars])
