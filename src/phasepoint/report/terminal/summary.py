"""The summary in the terminal: verdict first, then phases, time, ops, what was not seen, what it cost.

The strip: a run's phases over time, cut into as many equal cells as there is room for.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from phasepoint.core.units import format_ps
from phasepoint.findings.finding import Findings
from phasepoint.report.terminal.findings import render_first
from phasepoint.report.terminal.summary_tables import (
    account_table,
    category_table,
    events_table,
    hosts_table,
    ops_tables,
    phases_table,
)
from phasepoint.report.words.names import printable
from phasepoint.report.words.palette import phase_colours, phase_keys
from phasepoint.report.words.wording import (
    cost_line,
    cost_parts,
    estimate_basis,
    headline,
    hosts_title,
    not_seen_lines,
    steps_line,
)
from phasepoint.summary.types import RunSummary, StripSegment


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


_MOST_GAPS = 12
"""Lines of what was not seen that are printed; the page and `--json` have all."""


def render_summary(summary: RunSummary, console: Console, findings: Findings | None = None) -> None:
    """Print a whole summary to a console, with the first findings; colour and width are the console's."""
    _print_head(summary, console)
    if findings is not None and findings.findings:
        _print_section(console, "What would win most", "all of it: phasepoint findings RUN")
        render_first(findings, console)
    _print_phases(summary, console)
    _print_time(summary, console)
    for title, table in ops_tables(summary, console.width):
        _print_section(console, title)
        console.print(table)
    if summary.events:
        _print_section(console, "Noticed")
        console.print(events_table(summary.events, console.width))
    if len(summary.hosts) > 1:
        _print_section(console, hosts_title(summary))
        console.print(hosts_table(summary.hosts))
    _print_not_seen(summary, console)
    _print_cost(summary, console)


def render_phases(summary: RunSummary, console: Console) -> None:
    """Print the phases alone: the strip and the table."""
    _print_head(summary, console)
    _print_phases(summary, console)
    for title, table in ops_tables(summary, console.width):
        _print_section(console, title)
        console.print(table)


def _print_head(summary: RunSummary, console: Console) -> None:
    console.print(Text(printable(summary.verdict), style="bold"))
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
    console.print(phases_table(summary, console.width, coloured=_is_coloured(console)))


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
        _print_section(console, "Where the clock says the time went", "measured, adds up exactly")
        console.print(account_table(summary, console.width))
    if summary.categories.parts and summary.inside_ps:
        _print_section(console, "What the steps' time went into", estimate_basis(summary.categories))
        console.print(category_table(summary, console.width))
        for note in summary.categories.notes:
            console.print(Text(f"  {printable(note)}", style="dim"))


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
