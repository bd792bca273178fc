"""The sections of the page beside the timeline."""

from collections.abc import Iterable, Mapping, Sequence

from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio
from phasepoint.phases.summary_types import Breakdown, OpTime, PartTime, PhaseSummary, RunEvent, RunSummary
from phasepoint.report.markup import Content, Markup, element, join, swatch, table
from phasepoint.report.names import shorten
from phasepoint.report.palette import part_colours, phase_colours
from phasepoint.report.wording import (
    category_name,
    cost_line,
    cost_parts,
    estimate_basis,
    headline,
    interval_text,
    not_seen_lines,
    part_interval,
    small_ratio,
)

_OPEN_PHASES = 2
"""Phases whose ops are unfolded when the page opens."""

_MOST_EVENTS = 15
_MOST_PARTS = 12
"""Rows shown at once; the others are a click away, or drawn together."""

_NOTHING = Markup("")


def head_section(summary: RunSummary) -> Markup:
    """Verdict, run, notes, and the figures that everyone asks for first."""
    figures = (
        ("elapsed", format_ps(summary.elapsed_ps)),
        ("steps", format_count(summary.steps)),
        ("inside steps", format_ratio(summary.inside_ps / summary.wall_ps if summary.wall_ps else None)),
        ("captured in full", f"{small_ratio(summary.not_seen.captured_step_share)} of the steps"),
        ("recording cost", "–" if summary.cost.share is None else small_ratio(summary.cost.share)),
    )
    cards = (element("div", element("dt", name), element("dd", value)) for name, value in figures)
    notes = (element("p", note, class_="note") for note in summary.notes)
    return element(
        "header",
        element("h1", summary.verdict),
        element("p", headline(summary), class_="dim"),
        *notes,
        element("dl", *cards, class_="cards"),
    )


def phases_section(summary: RunSummary) -> Markup:
    """The table of phases."""
    if not summary.phases:
        return _NOTHING
    colours = phase_colours(summary.phases)
    columns = [("phase", "left")]
    columns += [(title, "right") for title in ("share", "time", "steps", "times", "median step", "5 – 95 %", "period")]
    columns += [("input wait", "right"), ("captured", "right"), ("stands for it", "left"), ("restart from", "left")]
    rows = (_phase_row(phase, colours[phase.id]) for phase in summary.phases)
    return _section("Phases", "classes of steps that behave alike", table(columns, rows, label="Phases"))


def _phase_row(phase: PhaseSummary, colour: str) -> Sequence[Content]:
    step = phase.representative_step
    stands_for = "–" if step is None else f"step {format_count(step)}"
    if phase.representative_window is not None:
        stands_for += f", window {phase.representative_window}"
    period = "–" if phase.period_steps is None else f"{phase.period_steps:,.0f} steps"
    return (
        join([swatch(colour), " ", phase.name]),
        format_ratio(phase.share),
        format_ps(phase.total_ps),
        format_count(phase.steps),
        format_count(phase.segments),
        format_ps(phase.median_ps),
        f"{format_ps(phase.p05_ps)} – {format_ps(phase.p95_ps)}",
        period,
        format_ps(phase.input_ps),
        format_count(phase.captured_steps),
        stands_for,
        _path(phase.restart_from),
    )


def _path(path: str | None) -> Content:
    """A path in the room a table has; the whole of it shows on hover, and stands among the checkpoints."""
    return "–" if path is None else element("code", shorten(path, 30), title=path)


def time_section(summary: RunSummary) -> Markup:
    """The clock's account beside the categories."""
    colours = part_colours(summary)
    account = _breakdown("Where the clock says the time went", "measured, adds up exactly", summary.account, colours)
    categories = _NOTHING
    if summary.inside_ps:
        basis = estimate_basis(summary.categories)
        categories = _breakdown("What the steps' time went into", basis, summary.categories, colours)
    return element("div", account, categories, class_="columns")


def _breakdown(title: str, aside: str, breakdown: Breakdown, colours: Mapping[str, str]) -> Markup:
    """Parts with bars; the intervals only where something is estimated."""
    parts = [part for part in breakdown.parts if part.total_ps][:_MOST_PARTS]
    is_estimated = any(part.basis == "estimated" for part in parts)
    columns = [("part", "left"), ("share", "left"), ("", "right"), ("time", "right")]
    columns += [("95 % interval", "left")] if is_estimated else []
    rows = [_part_cells(part, breakdown.total_ps, colours[part.name]) for part in parts]
    if is_estimated:
        rows = [[*cells, part_interval(part)] for cells, part in zip(rows, parts, strict=True)]
    notes = [element("p", note, class_="dim") for note in breakdown.notes]
    rest = [part for part in breakdown.parts if part.total_ps][_MOST_PARTS:]
    if rest:
        total_ps, share = sum(part.total_ps for part in rest), sum(part.share for part in rest)
        more = f"and {len(rest)} more parts: {format_ps(total_ps)}, {format_ratio(share)}"
        notes.insert(0, element("p", more, class_="dim"))
    return _section(title, aside, table(columns, rows, label=title), *notes)


def _part_cells(part: PartTime, total_ps: int, colour: str) -> list[Content]:
    name = join([swatch(colour), " ", category_name(part.name)])
    return [name, _bar(part, total_ps, colour), format_ratio(part.share), format_ps(part.total_ps)]


def _bar(part: PartTime, total_ps: int, colour: str) -> Markup:
    """A bar of the part's share with a whisker over its interval."""
    if not total_ps:
        return _NOTHING
    low, high = (_percent(time_ps, total_ps) for time_ps in (part.low_ps, part.high_ps))
    shapes = [element("rect", x=0, y=2, width=_percent(part.total_ps, total_ps), height=10, rx=2, fill=colour)]
    if part.low_ps != part.high_ps:
        shapes.append(element("line", x1=low, x2=high, y1=7, y2=7, class_="whisker"))
        shapes += [element("line", x1=x, x2=x, y1=4, y2=10, class_="whisker") for x in (low, high)]
    return element("svg", *shapes, class_="bar", height=14, aria_hidden="true")


def _percent(time_ps: int, total_ps: int) -> str:
    return f"{100 * min(max(time_ps, 0), total_ps) / total_ps:.2f}%"


def ops_section(summary: RunSummary) -> Markup:
    """Top ops of every phase that was captured, else of the run."""
    captured = [phase for phase in summary.phases if phase.top_ops]
    blocks: list[Content] = [
        _ops_block(phase.name, format_ratio(phase.share), phase.top_ops, is_open=index < _OPEN_PHASES)
        for index, phase in enumerate(captured)
    ]
    if not captured and summary.top_ops:
        blocks = [_ops_block("the whole run", "", summary.top_ops, is_open=True)]
    if not blocks:
        return _NOTHING
    missing = [phase.name for phase in summary.phases if not phase.top_ops]
    if missing and captured:
        blocks.append(element("p", f"Never captured: {', '.join(missing)}.", class_="dim"))
    aside = "by self time, summed over devices and threads; ± is a 95 % interval"
    return _section("Top ops", aside, *blocks)


def _ops_block(name: str, share: str, ops: Sequence[OpTime], *, is_open: bool) -> Markup:
    columns = [("op", "left"), ("category", "left"), ("self time", "right"), ("", "left"), ("share", "right")]
    columns += [("executions", "right"), ("layer or program", "left")]
    rows = (
        (
            element("code", op.op),
            category_name(op.category),
            format_ps(op.self_ps),
            interval_text(op.self_ps, op.low_ps, op.high_ps),
            format_ratio(op.share),
            format_count(op.count),
            element("code", op.layer or op.program or "–"),
        )
        for op in ops
    )
    title = element("summary", name, " ", element("span", share, class_="dim"))
    attributes = {"open": "open"} if is_open else {}
    return element("details", title, table(columns, rows, label=f"Top ops of {name}"), **attributes)


def events_section(summary: RunSummary) -> Markup:
    """What was noticed, the costliest first where it is much, and the checkpoints."""
    blocks: list[Content] = []
    if summary.events:
        costliest = sorted(summary.events, key=lambda event: -(event.cost_ps or 0))[:_MOST_EVENTS]
        blocks.append(_events_table([event for event in summary.events if event in costliest]))
    if len(summary.events) > _MOST_EVENTS:
        title = element("summary", f"All {format_count(len(summary.events))}, in order of time")
        blocks.append(element("details", title, _events_table(summary.events)))
    if summary.checkpoints:
        blocks.append(_checkpoints(summary))
    aside = f"the {_MOST_EVENTS} with most at stake" if len(summary.events) > _MOST_EVENTS else ""
    return _section("Noticed", aside, *blocks) if blocks else _NOTHING


def _events_table(events: Sequence[RunEvent]) -> Markup:
    columns = [("kind", "left"), ("what", "left"), ("at stake", "right")]
    rows = ((event.kind, event.text, format_ps(event.cost_ps)) for event in events)
    return table(columns, rows, label="Noticed")


def _checkpoints(summary: RunSummary) -> Markup:
    columns = [("step", "right"), ("at", "right"), ("the job waited", "right"), ("size", "right"), ("path", "left")]
    rows = (
        (
            format_count(one.step),
            format_ps(one.start_ps),
            format_ps(one.dur_ps),
            format_bytes(one.size_bytes),
            element("code", one.path),
        )
        for one in summary.checkpoints
    )
    title = element("summary", f"{format_count(len(summary.checkpoints))} checkpoints")
    return element("details", title, table(columns, rows, label="Checkpoints"))


def hosts_section(summary: RunSummary) -> Markup:
    """The hosts side by side, where there is more than one."""
    if len(summary.hosts) < 2:
        return _NOTHING
    columns = [("host", "right"), ("state", "left"), ("steps", "right"), ("median step", "right")]
    columns += [("input wait", "right"), ("windows", "right"), ("slower", "right"), ("", "left")]
    rows = (
        (
            str(host.host),
            host.state,
            format_count(host.steps),
            format_ps(host.median_ps),
            format_ps(host.input_ps),
            format_count(host.windows),
            "–" if host.slower is None else f"{100 * host.slower:+.1f} %",
            host.note or "",
        )
        for host in summary.hosts
    )
    return _section("Hosts", "", table(columns, rows, label="Hosts"))


def not_seen_section(summary: RunSummary) -> Markup:
    """What was not observed beside what recording cost."""
    not_seen = _section("Not seen", "", _list(not_seen_lines(summary.not_seen)))
    parts = (f"{name}: {format_ps(time_ps)}" for name, time_ps in cost_parts(summary.cost) if time_ps)
    cost = _section("What recording cost", "", element("p", cost_line(summary.cost)), _list(parts))
    return element("div", not_seen, cost, class_="columns")


def environment_section(summary: RunSummary) -> Markup:
    """Where and how the run was recorded."""
    if not summary.environment:
        return _NOTHING
    rows = (element("div", element("dt", name), element("dd", value)) for name, value in summary.environment)
    return _section("Environment", "", element("dl", *rows, class_="facts"))


def _section(title: str, aside: str, *content: Content) -> Markup:
    after = join([" ", element("small", aside)]) if aside else _NOTHING
    heading = element("h2", title, after)
    return element("section", heading, *content)


def _list(lines: Iterable[str]) -> Markup:
    return element("ul", *(element("li", line) for line in lines))
