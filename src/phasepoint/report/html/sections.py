"""The sections of the page beside findings, timeline and phases.

The timeline's place on the page: heading, controls and legend; the script draws the lanes.
"""

from collections.abc import Sequence
from functools import partial

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.phases.clock.hosts import HostSummary
from phasepoint.replay.checkpoints import IndexedCheckpoint
from phasepoint.report.tables import Cell, Table, TableColumn
from phasepoint.report.tables.html import data_table
from phasepoint.report.words.markup import Content, Markup, bullets, element, facts, heading, join, section, swatch
from phasepoint.report.words.palette import phase_colours
from phasepoint.report.words.recorded_line import small_ratio
from phasepoint.report.words.wording import (
    contents,
    cost_line,
    cost_parts,
    headline,
    hosts_title,
    not_seen_lines,
    slower_text,
    steps_line,
)
from phasepoint.summary.details import MethodSummary, ReportDetails
from phasepoint.summary.timeline import Timeline
from phasepoint.summary.types import CheckpointSummary, RunEvent, RunSummary

_LEGEND = 12
"""Phases named in the legend, the largest; the table of phases names all."""


def timeline_section(summary: RunSummary, timeline: Timeline | None) -> Markup:
    """The section, empty where there is no time to draw."""
    if not summary.strip:
        return Markup("")
    host = f"host {summary.reference_host}" if len(summary.hosts) > 1 else ""
    shown = "" if timeline is None or timeline.all_steps else "band: 5 – 95 % of the steps; points: the slowest"
    aside = " · ".join(part for part in (host, shown, "drag to zoom, double-click for all") if part)
    controls = element("div", class_="controls", id="timeline-controls", role="group", aria_label="Zoom")
    label = "Timeline of the run; + and - zoom, arrows move, Home shows all"
    drawing = element("div", class_="timeline", id="timeline", role="group", aria_label=label)
    without = element("noscript", element("p", "The charts of this page need its script.", class_="note"))
    bar = element("div", heading("h2", "Timeline", aside), controls, class_="bar-head")
    return element("section", bar, _legend(summary), drawing, without, id="run-over-time")


def _legend(summary: RunSummary) -> Markup:
    colours = phase_colours(summary.phases)
    names: list[tuple[str, str]] = [(phase.name, colours[phase.id]) for phase in summary.phases[:_LEGEND]]
    if any(segment.phase is None for segment in summary.strip):
        names.append(("outside steps", colours[None]))
    items = [element("span", swatch(colour), " ", name) for name, colour in names]
    if len(summary.phases) > _LEGEND:
        items.append(element("span", f"and {len(summary.phases) - _LEGEND} smaller phases", class_="dim"))
    return element("p", join(items), class_="legend")


_MOST_EVENTS = 12
"""Rows shown at once; the others are a click away."""

_NOTHING = Markup("")


def head_section(summary: RunSummary, advice: Markup) -> Markup:
    """Verdict, run, notes, the findings, and the figures that everyone asks for first."""
    figures_shown = (
        ("elapsed", format_ps(summary.elapsed_ps)),
        ("steps", format_count(summary.steps)),
        ("inside steps", format_ratio(summary.inside_ps / summary.wall_ps if summary.wall_ps else None)),
        ("captured in full", f"{small_ratio(summary.not_seen.captured_step_share)} of the steps"),
        ("recording cost", "–" if summary.cost.share is None else small_ratio(summary.cost.share)),
    )
    notes = (element("p", note, class_="note") for note in summary.notes)
    return element(
        "header",
        element("p", headline(summary), class_="dim"),
        element("h1", summary.verdict.removesuffix(summary.advice).rstrip()),
        *([element("p", summary.advice, class_="advice")] if summary.advice else []),
        *([element("p", summary.time_went)] if summary.time_went not in summary.verdict else []),
        *([element("p", steps_line(summary), class_="dim")] if steps_line(summary) else []),
        *notes,
        advice,
        facts(figures_shown, "cards"),
    )


def events_section(summary: RunSummary, indexed: Sequence[IndexedCheckpoint] = ()) -> Markup:
    """What was noticed, the costliest first where it is much, and the checkpoints, with what is left of each."""
    blocks: list[Content] = []
    if summary.events:
        costliest = sorted(summary.events, key=lambda event: -(event.cost_ps or 0))[:_MOST_EVENTS]
        blocks.append(_events_table([event for event in summary.events if event in costliest], "Noticed"))
    if len(summary.events) > _MOST_EVENTS:
        title = element("summary", f"All {format_count(len(summary.events))}, in order of time")
        blocks.append(element("details", title, _events_table(summary.events, "All that was noticed")))
    if summary.checkpoints:
        blocks.append(_checkpoints(indexed or summary.checkpoints, indexed=bool(indexed)))
    aside = f"the {_MOST_EVENTS} with most at stake" if len(summary.events) > _MOST_EVENTS else ""
    return section("Noticed", aside, *blocks, anchor="noticed") if blocks else _NOTHING


def _events_table(events: Sequence[RunEvent], label: str) -> Markup:
    columns = (
        TableColumn("kind", lambda event: event.kind),
        TableColumn("what", lambda event: event.text),
        TableColumn("first step", lambda event: event.first_step, "count"),
        TableColumn("at stake", lambda event: event.cost_ps, "ps", "cost_ps"),
    )
    return data_table(Table(columns, events, label))


def _checkpoints(checkpoints: Sequence[CheckpointSummary] | Sequence[IndexedCheckpoint], *, indexed: bool) -> Markup:
    """The checkpoints; those that were looked at (`indexed`) with what is left of each."""
    columns = [
        TableColumn("after step" if indexed else "step", lambda one: one.step, "count", "step"),
        TableColumn("at", lambda one: one.start_ps, "ps", "start_ps"),
        TableColumn("the job waited", lambda one: one.dur_ps, "ps", "dur_ps"),
        TableColumn("size", lambda one: one.size_bytes, "bytes", "bytes"),
    ]
    if indexed:
        columns += [
            TableColumn("state", lambda one: element("span", one.state, title=one.problem or one.state)),
            TableColumn("in it", lambda one: contents(one) or "–", "", "contents"),
            TableColumn("path", lambda one: element("code", one.path, title=one.path)),
        ]
    else:
        columns.append(TableColumn("path", lambda one: element("code", one.path)))
    title = element("summary", format_counted(len(checkpoints), "checkpoint"))
    return element("details", title, data_table(Table(columns, checkpoints, "Checkpoints")))


_OF_HOSTS = ("forward", "backward", "optimizer", "communication")
"""Parts of the anatomy by which hosts are compared: a choice, what ranks share out among each other."""


def _anatomy_share(name: str, host: HostSummary) -> float | None:
    parts = host.anatomy.parts if host.anatomy else ()
    return next((part.share for part in parts if part.name == name), None)


def hosts_section(summary: RunSummary) -> Markup:
    """The hosts side by side, where there is more than one."""
    if len(summary.hosts) < 2:
        return _NOTHING
    columns = (
        TableColumn("host", lambda host: Cell(str(host.host), host.host), is_figure=True),
        TableColumn("state", lambda host: host.state),
        TableColumn("steps", lambda host: host.steps, "count"),
        TableColumn("median step", lambda host: host.median_ps, "ps", "median_ps"),
        TableColumn("input wait", lambda host: host.input_ps, "ps", "input_ps"),
        TableColumn("windows", lambda host: host.windows, "count"),
        TableColumn("slower", lambda host: Cell(slower_text(host.slower), host.slower), "ratio"),
        *(TableColumn(name, partial(_anatomy_share, name), "ratio") for name in _OF_HOSTS),
        TableColumn("note", lambda host: host.note or ""),
    )
    title = hosts_title(summary)
    return section(title, "", data_table(Table(columns, summary.hosts, title)), anchor="hosts")


def methods_section(details: ReportDetails | None) -> Markup:
    """The methods of phase detection side by side."""
    if details is None or not details.methods:
        return _NOTHING

    def agreement(one: MethodSummary) -> Cell:
        return Cell("–" if one.agreement is None else f"{one.agreement:.2f}", one.agreement)

    columns = (
        TableColumn("method", lambda one: one.method),
        TableColumn("phases", lambda one: one.phases, "count"),
        TableColumn("stretches", lambda one: one.segments, "count", "segments"),
        TableColumn("time in the three largest", lambda one: one.top_share, "ratio", "top_share"),
        TableColumn("agreement", agreement, "ratio", "adjusted_rand_index"),
        TableColumn("note", lambda one: "this report rests on it" if one.chosen else one.why_not or ""),
    )
    table = data_table(Table(columns, details.methods, "Methods"))
    strips = element("div", class_="timeline", id="method-strips", aria_hidden="true")
    aside = "how each cuts the same run; agreement is the adjusted Rand index with the method of this report"
    return section("Methods side by side", aside, table, strips, anchor="methods")


def not_seen_section(summary: RunSummary) -> Markup:
    """What was not observed beside what recording cost."""
    not_seen = section("Not seen", "", bullets(not_seen_lines(summary.not_seen)), anchor="not-seen")
    parts = (f"{name}: {format_ps(time_ps)}" for name, time_ps in cost_parts(summary.cost) if time_ps)
    line = element("p", cost_line(summary.cost))
    cost = section("What recording cost", "", line, bullets(parts), anchor="recording-cost")
    return element("div", not_seen, cost, class_="columns")


def environment_section(summary: RunSummary) -> Markup:
    """Where and how the run was recorded."""
    if not summary.environment:
        return _NOTHING
    return section("Environment", "", facts(summary.environment), anchor="environment")
