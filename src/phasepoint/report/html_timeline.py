"""The timeline's place on the page: heading, controls and legend; the script draws the lanes."""

from phasepoint.phases.summary_types import RunSummary
from phasepoint.phases.timeline import Timeline
from phasepoint.report.markup import Markup, element, join, swatch
from phasepoint.report.palette import phase_colours

_LEGEND = 12
"""Phases named in the legend, the largest; the table of phases names all."""


def timeline_section(summary: RunSummary, timeline: Timeline | None) -> Markup:
    """The section, empty where there is no time to draw."""
    if not summary.strip:
        return Markup("")
    heading = element("h2", "Timeline ", element("small", _aside(summary, timeline)))
    controls = element("div", class_="controls", id="timeline-controls", role="group", aria_label="Zoom")
    label = "Timeline of the run; + and - zoom, arrows move, Home shows all"
    drawing = element("div", class_="timeline", id="timeline", role="group", aria_label=label)
    without = element("noscript", element("p", "The charts of this page need its script.", class_="note"))
    bar = element("div", heading, controls, class_="bar-head")
    return element("section", bar, _legend(summary), drawing, without, id="run-over-time")


def _aside(summary: RunSummary, timeline: Timeline | None) -> str:
    host = f"host {summary.reference_host}" if len(summary.hosts) > 1 else ""
    shown = "" if timeline is None or timeline.all_steps else "band: 5 – 95 % of the steps; points: the slowest"
    return " · ".join(part for part in (host, shown, "drag to zoom, double-click for all") if part)


def _legend(summary: RunSummary) -> Markup:
    colours = phase_colours(summary.phases)
    names: list[tuple[str, str]] = [(phase.name, colours[phase.id]) for phase in summary.phases[:_LEGEND]]
    if any(segment.phase is None for segment in summary.strip):
        names.append(("outside steps", colours[None]))
    items = [element("span", swatch(colour), " ", name) for name, colour in names]
    if len(summary.phases) > _LEGEND:
        items.append(element("span", f"and {len(summary.phases) - _LEGEND} smaller phases", class_="dim"))
    return element("p", join(items), class_="legend")
