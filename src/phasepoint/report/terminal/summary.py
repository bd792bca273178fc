"""The summary in the terminal: verdict first, then phases, time, ops, what was not seen, what it cost.

The strip: a run's phases over time, cut into as many equal cells as there is room for.
"""

from collections.abc import Iterator, Sequence

import rich.table
from rich.console import Console
from rich.text import Text

from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.findings.finding import Findings
from phasepoint.phases.clock.breakdown import FEW, MEASURED, Breakdown, OpTime, PartTime
from phasepoint.phases.clock.hosts import HostSummary
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.terminal import grid
from phasepoint.report.terminal.findings import render_first
from phasepoint.report.words.anatomy import anatomy_lines
from phasepoint.report.words.names import printable, share_bar, shorten
from phasepoint.report.words.palette import part_colour, phase_colours, phase_keys
from phasepoint.report.words.wording import (
    account_basis,
    category_name,
    cost_line,
    cost_parts,
    estimate_basis,
    headline,
    hosts_title,
    interval_text,
    not_seen_lines,
    ops_title,
    part_interval,
    period_text,
    slower_text,
    steps_line,
)
from phasepoint.summary.types import PhaseSummary, RunEvent, RunSummary, StripSegment


def strip_cells(strip: Sequence[StripSegment], cells: int) -> list[int | None]:
    """Phase id per cell, each the one that takes most of the cell's time; `[cells]`, or empty for an empty strip.

    Integer arithmetic throughout: cell `i` is from `i·total/cells` to `(i+1)·total/cells`.
    """
    if not strip or cells <= 0:
        return []
    begin, end = strip[0].start_ps, strip[-1].start_ps + strip[-1].dur_ps
    total = end - begin
    if total <= 0:
        return [strip[0].phase] * cells
    found: list[int | None] = []
    first = 0
    for cell in range(cells):
        low, high = begin + cell * total // cells, begin + (cell + 1) * total // cells
        while first + 1 < len(strip) and strip[first].start_ps + strip[first].dur_ps <= low:
            first += 1
        found.append(_dominant(strip, first, low, high))
    return found


def _dominant(strip: Sequence[StripSegment], first: int, low: int, high: int) -> int | None:
    """The phase with the most time between two instants; the earlier one of equals."""
    times: dict[int | None, int] = {}
    for index in range(first, len(strip)):
        segment = strip[index]
        if segment.start_ps >= high and times:
            break
        overlap = min(high, segment.start_ps + segment.dur_ps) - max(low, segment.start_ps)
        times[segment.phase] = times.get(segment.phase, 0) + max(overlap, 0)
    return max(times, key=lambda phase: times[phase])


_GAP = 1
"""Blanks between columns: a choice, so that the phases fit into 80 characters."""

_WIDE = 100
"""Characters from which the tables have their optional columns: a choice, what these take beside the others."""

_MOST_PHASES, _MOST_OPS, _MOST_EVENTS, _MOST_HOSTS = 12, 6, 12, 32
"""Rows of each table: a choice, so that a summary stays about a screen long."""

_OPS_OF_PHASES = 3
"""Phases whose ops are listed one by one; the others have at most a few percent of the time."""

_MOST_GAPS = 12
"""Lines of what was not seen that are printed; the page and `--json` have all."""


def render_summary(summary: RunSummary, console: Console, findings: Findings | None = None) -> None:
    """Print a whole summary to a console, with the first findings; colour and width are the console's."""
    _print_head(summary, console)
    if findings is not None and any(finding.low_ps for finding in findings.findings):
        _print_section(console, "What would win most", "all of it: phasepoint findings RUN")
        render_first(findings, console)
    _print_phases(summary, console)
    _print_time(summary, console)
    for title, table in _ops_tables(summary, console.width):
        _print_section(console, title)
        console.print(table)
    if summary.events:
        _print_section(console, "Noticed")
        console.print(_events_table(summary.events, console.width))
    if len(summary.hosts) > 1:
        _print_section(console, hosts_title(summary))
        console.print(_hosts_table(summary.hosts))
    _print_not_seen(summary, console)
    _print_cost(summary, console)


def render_phases(summary: RunSummary, console: Console) -> None:
    """Print the phases alone: the strip and the table."""
    _print_head(summary, console)
    _print_phases(summary, console)
    for title, table in _ops_tables(summary, console.width):
        _print_section(console, title)
        console.print(table)


def _print_head(summary: RunSummary, console: Console) -> None:
    console.print(Text(printable(summary.verdict), style="bold"))
    if summary.time_went not in summary.verdict:
        console.print(Text(printable(summary.time_went)))
    console.print(Text(headline(summary), style="dim"))
    if line := steps_line(summary):
        console.print(Text(line, style="dim"))
    for note in summary.notes:
        console.print(Text.assemble(("! ", "bold yellow"), printable(note)))


def _print_section(console: Console, title: str, aside: str = "") -> None:
    console.print()
    console.print(Text.assemble((title, "bold"), (f"  {aside}" if aside else "", "dim")))


def _print_phases(summary: RunSummary, console: Console) -> None:
    if not summary.phases:
        return
    _print_section(console, "Phases")
    console.print(_strip_line(summary, console), no_wrap=True)
    console.print(_axis_line(summary, console.width), no_wrap=True)
    if any(segment.phase is None for segment in summary.strip):
        key, style = phase_keys(summary.phases)[None], ""
        if _is_coloured(console):
            key, style = "▌", phase_colours(summary.phases)[None]
        console.print(Text.assemble((key, style), (" time outside steps", "dim")))
    console.print(_phases_table(summary, console.width, coloured=_is_coloured(console)))
    for phase in summary.phases[:_MOST_PHASES]:
        if phase.differs:
            console.print(Text(printable(f"  {phase.name}: {phase.differs}"), style="dim"))


def _is_coloured(console: Console) -> bool:
    return console.color_system is not None and not console.no_color


def _strip_line(summary: RunSummary, console: Console) -> Text:
    """Phases over time: half-cells of colour, or a letter a cell where there is no colour."""
    line = Text()
    if not _is_coloured(console):
        keys = phase_keys(summary.phases)
        return Text("".join(keys.get(phase, "?") for phase in strip_cells(summary.strip, console.width)))
    colours = phase_colours(summary.phases)
    halves = strip_cells(summary.strip, 2 * console.width)
    for left, right in zip(halves[::2], halves[1::2], strict=True):
        line.append("▌", style=f"{colours[left]} on {colours[right]}")
    return line


def _axis_line(summary: RunSummary, width: int) -> Text:
    """Start, middle and end of the strip, in time."""
    if not summary.strip:
        return Text()
    end = summary.strip[-1].start_ps + summary.strip[-1].dur_ps
    middle, last = format_ps((summary.strip[0].start_ps + end) // 2), format_ps(end)
    left = "0 s".ljust((width - len(middle)) // 2) + middle
    return Text(left + last.rjust(max(width - len(left), len(last) + 1)), style="dim")


def _print_time(summary: RunSummary, console: Console) -> None:
    if summary.account.parts:
        _print_section(console, "Where the clock says the time went", account_basis(summary.account))
        console.print(_parts_table(summary, summary.account, console.width))
    if summary.categories.parts and summary.inside_ps:
        _print_section(console, "What the steps' time went into", estimate_basis(summary.categories))
        console.print(_parts_table(summary, summary.categories, console.width))
        for note in summary.categories.notes:
            console.print(Text(f"  {printable(note)}", style="dim"))
        for line, aside in anatomy_lines(summary):
            console.print(Text(printable(line)))
            console.print(Text(f"  {aside}", style="dim"))


def _print_not_seen(summary: RunSummary, console: Console) -> None:
    _print_section(console, "Not seen")
    lines = not_seen_lines(summary.not_seen)
    for line in lines[:_MOST_GAPS]:
        console.print(Text(line))
    if len(lines) > _MOST_GAPS:
        console.print(Text(f"… and {len(lines) - _MOST_GAPS} more; see --json", style="dim"))


def _print_cost(summary: RunSummary, console: Console) -> None:
    _print_section(console, "What recording cost")
    console.print(Text(cost_line(summary.cost)))
    parts = [f"{name} {format_ps(time_ps)}" for name, time_ps in cost_parts(summary.cost) if time_ps]
    if parts:
        console.print(Text("; ".join(parts), style="dim"))


def _phases_table(summary: RunSummary, width: int, *, coloured: bool) -> rich.table.Table:
    """One row a phase: share, time, steps, how often it comes back, step time, and how well it was seen."""
    wide = width >= _WIDE
    colours, keys = phase_colours(summary.phases), phase_keys(summary.phases)

    def captured(phase: PhaseSummary) -> Text:
        return Text(format_count(phase.captured_steps), style="" if phase.captured_steps else "yellow")

    columns = [
        TableColumn("", lambda phase: Text("■", style=colours[phase.id]) if coloured else keys[phase.id]),
        TableColumn("phase", lambda phase: phase.name, width=24 if wide else 18),
        TableColumn("share", lambda phase: phase.share, "ratio"),
        TableColumn("time", lambda phase: phase.total_ps, "ps"),
        TableColumn("steps", lambda phase: phase.steps, "count"),
        TableColumn("stretches", lambda phase: phase.segments, "count"),
        TableColumn("median", lambda phase: phase.median_ps, "ps"),
    ]
    if wide:
        columns += [
            TableColumn("p05 – p95", lambda phase: f"{format_ps(phase.p05_ps)} – {format_ps(phase.p95_ps)}", "ps"),
            TableColumn("period", lambda phase: period_text(phase.period_steps), "steps"),
            TableColumn("input", lambda phase: phase.input_ps, "ps"),
        ]
    columns.append(TableColumn("captured", captured, "count"))
    shown = grid(Table(columns, summary.phases[:_MOST_PHASES]), gap=_GAP)
    rest = summary.phases[_MOST_PHASES:]
    if rest:
        share = format_ratio(sum(phase.share for phase in rest))
        shown.add_row(Text(""), Text(f"{len(rest)} more", style="dim"), Text(share, style="dim"))
    return shown


def _parts_table(summary: RunSummary, breakdown: Breakdown, width: int) -> rich.table.Table:
    """Parts of the wall time by the clock, or categories of the time inside steps, each with its interval."""
    colours = phase_colours(summary.phases)
    of_steps = breakdown is summary.categories and summary.categories.basis != MEASURED
    is_few = breakdown.basis == FEW
    bar_width = max(width - 62, 12)  # what the other columns take, and the least that shows a difference

    def bar(part: PartTime) -> Text:
        return Text(share_bar(part.share, bar_width).ljust(bar_width), part_colour(part, colours))

    def interval(part: PartTime) -> str:
        told = (of_steps and not is_few) or (not of_steps and part.basis != "measured")
        return part_interval(part) if told else ""

    columns = (
        TableColumn("", lambda part: category_name(part.name), width=24),
        TableColumn("", bar),
        TableColumn("", lambda part: "" if is_few else part.total_ps, "ps"),
        TableColumn("", lambda part: Text(interval(part), "dim")),
        TableColumn("", lambda part: part.share, "ratio"),
    )
    parts = [part for part in breakdown.parts if part.total_ps]
    shown, rest = grid(Table(columns, parts[:_MOST_PHASES]), gap=_GAP), parts[_MOST_PHASES:]
    if rest:
        total, share = format_ps(sum(part.total_ps for part in rest)), format_ratio(sum(part.share for part in rest))
        shown.add_row(Text(f"{len(rest)} more", style="dim"), "", total, "", share)
    return shown


def _ops_tables(summary: RunSummary, width: int) -> Iterator[tuple[str, rich.table.Table]]:
    """Title and table of the top ops: of the largest phases that windows tell of, else of the run."""
    captured = [phase for phase in summary.phases if phase.top_ops and phase.breakdown.basis != FEW]
    for phase in captured[:_OPS_OF_PHASES]:
        yield ops_title(phase.breakdown, shorten(phase.name, 40)), _ops_table(phase.top_ops, width)
    if not captured and summary.top_ops:
        yield ops_title(summary.categories, ""), _ops_table(summary.top_ops, width)


def _ops_table(ops: Sequence[OpTime], width: int) -> rich.table.Table:
    room = width - 46  # what the columns beside names take
    wide = width >= _WIDE
    op_width = room * 3 // 5 if wide else room
    columns = [
        TableColumn("op", lambda op: op.op, width=op_width),
        TableColumn("category", lambda op: category_name(op.category)),
        TableColumn("self time", lambda op: op.self_ps, "ps"),
        TableColumn("", lambda op: Text(interval_text(op.self_ps, op.low_ps, op.high_ps), "dim")),
        TableColumn("share", lambda op: op.share, "ratio"),
    ]
    if wide:
        of_op = room - op_width - 2
        place = TableColumn("layer or program", lambda op: Text(shorten(op.layer or op.program or "–", of_op), "dim"))
        columns.append(place)
    listed = [op for op in ops if op.category != "mixed"][:_MOST_OPS]
    return grid(Table(columns, [*listed, *(op for op in ops if op.category == "mixed")]), gap=_GAP)


def _events_table(events: Sequence[RunEvent], width: int) -> rich.table.Table:
    """What was noticed, in order of time; the costliest where there are too many."""
    kept = sorted(events, key=lambda event: -(event.cost_ps or 0))[:_MOST_EVENTS]
    columns = (
        TableColumn("", lambda event: event.text, width=400, wraps=True),
        TableColumn("", lambda event: event.cost_ps, "ps"),
    )
    shown = grid(Table(columns, [event for event in events if event in kept]), gap=_GAP)
    if len(events) > len(kept):
        shown.add_row(Text(f"… and {len(events) - len(kept)} more; see --json", style="dim"), "")
    shown.columns[0].ratio = 1
    shown.expand, shown.width = True, width
    return shown


def _hosts_table(hosts: Sequence[HostSummary]) -> rich.table.Table:
    """One row a host, with what makes it stand out; of too many those that stand out, and the slowest."""
    by_interest = sorted(hosts, key=lambda host: (not host.straggler, host.state == "closed", -(host.slower or 0)))
    kept = by_interest[:_MOST_HOSTS]

    def marked(host: HostSummary, text: str) -> Text:
        return Text(text, style="bold yellow" if host.straggler else "")

    columns = (
        TableColumn("host", lambda host: str(host.host), is_figure=True),
        TableColumn("state", lambda host: host.state),
        TableColumn("steps", lambda host: host.steps, "count"),
        TableColumn("median", lambda host: host.median_ps, "ps"),
        TableColumn("input", lambda host: host.input_ps, "ps"),
        TableColumn("slower", lambda host: marked(host, slower_text(host.slower)), "ratio", wraps=True),
        TableColumn("", lambda host: marked(host, shorten(host.note or "", 60)), wraps=True),
    )
    shown = grid(Table(columns, sorted(kept, key=lambda host: host.host)), gap=_GAP)
    if len(hosts) > len(kept):
        shown.caption = Text(f"… and {len(hosts) - len(kept)} more; see --json", style="dim")
        shown.caption_justify = "left"
    return shown
