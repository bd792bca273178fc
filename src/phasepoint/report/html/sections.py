"""The sections of the page beside findings, timeline and phases.

The timeline's place on the page: heading, controls and legend; the script draws the lanes.
"""

from collections.abc import Iterable, Sequence

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.replay.checkpoints import IndexedCheckpoint
from phasepoint.report.html.markup import Content, Markup, element, join, swatch
from phasepoint.report.html.tables import Cell, breakdown_table, count, data_table, duration, figures, ratio, size, text
from phasepoint.report.words.palette import part_colours, phase_colours
from phasepoint.report.words.recorded_line import small_ratio
from phasepoint.report.words.wording import (
    contents,
    cost_line,
    cost_parts,
    estimate_basis,
    headline,
    hosts_title,
    not_seen_lines,
    steps_line,
)
from phasepoint.summary.details import MethodSummary, ReportDetails
from phasepoint.summary.timeline import Timeline
from phasepoint.summary.types import RunEvent, RunSummary

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
    cards = (element("div", element("dt", name), element("dd", value)) for name, value in figures_shown)
    notes = (element("p", note, class_="note") for note in summary.notes)
    return element(
        "header",
        element("p", headline(summary), class_="dim"),
        element("h1", summary.verdict),
        *([element("p", steps_line(summary), class_="dim")] if steps_line(summary) else []),
        *notes,
        advice,
        element("dl", *cards, class_="cards"),
    )


def time_section(summary: RunSummary) -> Markup:
    """The clock's account beside the categories."""
    colours = part_colours(summary)
    title = "Where the clock says the time went"
    account = _section(title, "measured, adds up exactly", breakdown_table(summary.account, colours, label=title))
    categories = _NOTHING
    if summary.inside_ps:
        title = "What the steps' time went into"
        basis = estimate_basis(summary.categories)
        categories = _section(title, basis, breakdown_table(summary.categories, colours, label=title))
    return element("div", account, categories, class_="columns", id="where-time-went")


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
        blocks.append(_indexed(indexed) if indexed else _checkpoints(summary))
    aside = f"the {_MOST_EVENTS} with most at stake" if len(summary.events) > _MOST_EVENTS else ""
    return _section("Noticed", aside, *blocks, anchor="noticed") if blocks else _NOTHING


def _events_table(events: Sequence[RunEvent], label: str) -> Markup:
    columns = [text("kind"), text("what"), figures("first step", "first_step"), figures("at stake", "cost_ps")]
    rows = ((event.kind, event.text, count(event.first_step), duration(event.cost_ps)) for event in events)
    return data_table(columns, rows, label=label)


def _checkpoints(summary: RunSummary) -> Markup:
    columns = [
        figures("step", "step"),
        figures("at", "start_ps"),
        figures("the job waited", "dur_ps"),
        figures("size", "bytes"),
        text("path"),
    ]
    rows = (
        (
            count(one.step),
            duration(one.start_ps),
            duration(one.dur_ps),
            size(one.size_bytes),
            element("code", one.path),
        )
        for one in summary.checkpoints
    )
    title = element("summary", format_counted(len(summary.checkpoints), "checkpoint"))
    return element("details", title, data_table(columns, rows, label="Checkpoints"))


def _indexed(checkpoints: Sequence[IndexedCheckpoint]) -> Markup:
    columns = [
        figures("after step", "step"),
        figures("at", "start_ps"),
        figures("the job waited", "dur_ps"),
        figures("size", "bytes"),
        text("state"),
        text("in it", "contents"),
        text("path"),
    ]
    rows = (
        (
            count(one.step),
            duration(one.start_ps),
            duration(one.dur_ps),
            size(one.size_bytes),
            element("span", one.state, title=one.problem or one.state),
            contents(one) or "–",
            element("code", one.path, title=one.path),
        )
        for one in checkpoints
    )
    title = element("summary", format_counted(len(checkpoints), "checkpoint"))
    return element("details", title, data_table(columns, rows, label="Checkpoints"))


def hosts_section(summary: RunSummary) -> Markup:
    """The hosts side by side, where there is more than one."""
    if len(summary.hosts) < 2:
        return _NOTHING
    columns = [
        figures("host", "host"),
        text("state"),
        figures("steps", "steps"),
        figures("median step", "median_ps"),
        figures("input wait", "input_ps"),
        figures("windows", "windows"),
        figures("slower", "slower"),
        text("note"),
    ]
    rows = (
        (
            Cell(str(host.host), host.host),
            host.state,
            count(host.steps),
            duration(host.median_ps),
            duration(host.input_ps),
            count(host.windows),
            Cell("–" if host.slower is None else f"{100 * host.slower:+.1f} %", host.slower),
            host.note or "",
        )
        for host in summary.hosts
    )
    title = hosts_title(summary)
    return _section(title, "", data_table(columns, rows, label=title), anchor="hosts")


def methods_section(details: ReportDetails | None) -> Markup:
    """The methods of phase detection side by side."""
    if details is None or not details.methods:
        return _NOTHING
    columns = [
        text("method"),
        figures("phases", "phases"),
        figures("stretches", "segments"),
        figures("time in the three largest", "top_share"),
        figures("agreement", "adjusted_rand_index"),
        text("note"),
    ]
    table = data_table(columns, map(_method_row, details.methods), label="Methods")
    strips = element("div", class_="timeline", id="method-strips", aria_hidden="true")
    aside = "how each cuts the same run; agreement is the adjusted Rand index with the method of this report"
    return _section("Methods side by side", aside, table, strips, anchor="methods")


def _method_row(one: MethodSummary) -> Sequence[Content | Cell]:
    agreement = Cell("–" if one.agreement is None else f"{one.agreement:.2f}", one.agreement)
    note = "this report rests on it" if one.chosen else one.why_not or ""
    return (one.method, count(one.phases), count(one.segments), ratio(one.top_share), agreement, note)


def not_seen_section(summary: RunSummary) -> Markup:
    """What was not observed beside what recording cost."""
    not_seen = _section("Not seen", "", _list(not_seen_lines(summary.not_seen)), anchor="not-seen")
    parts = (f"{name}: {format_ps(time_ps)}" for name, time_ps in cost_parts(summary.cost) if time_ps)
    line = element("p", cost_line(summary.cost))
    cost = _section("What recording cost", "", line, _list(parts), anchor="recording-cost")
    return element("div", not_seen, cost, class_="columns")


def environment_section(summary: RunSummary) -> Markup:
    """Where and how the run was recorded."""
    if not summary.environment:
        return _NOTHING
    rows = (element("div", element("dt", name), element("dd", value)) for name, value in summary.environment)
    return _section("Environment", "", element("dl", *rows, class_="facts"), anchor="environment")


def _section(title: str, aside: str, *content: Content, anchor: str = "") -> Markup:
    after = join([" ", element("small", aside)]) if aside else _NOTHING
    heading = element("h2", title, after)
    attributes = {"id": anchor} if anchor else {}
    return element("section", heading, *content, **attributes)


def _list(lines: Iterable[str]) -> Markup:
    return element("ul", *(element("li", line) for line in lines))
