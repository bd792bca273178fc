"""The tables of the terminal summary. Every cell is a `Text`: names are never read as markup."""

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.phases.clock.breakdown import Breakdown, OpTime, PartTime
from phasepoint.phases.clock.hosts import HostSummary
from phasepoint.report.words.names import share_bar, shorten
from phasepoint.report.words.palette import part_colours, phase_colours, phase_keys
from phasepoint.report.words.wording import category_name, interval_text, part_interval
from phasepoint.summary.types import PhaseSummary, RunEvent, RunSummary

_MOST_PHASES = 12
_MOST_OPS = 6
_MOST_EVENTS = 12
_OPS_OF_PHASES = 3
"""Phases whose ops are listed one by one; the others have at most a few percent of the time."""


def phases_table(summary: RunSummary, width: int, *, coloured: bool) -> Table:
    """One row a phase: share, time, steps, how often it comes back, step time, and how well it was seen."""
    wide = width >= 100
    table = _table(("", "left"), ("phase", "left"), ("share", "right"), ("time", "right"), ("steps", "right"))
    for title in ("times", "median", *(("p05 – p95", "period", "input") if wide else ()), "captured"):
        table.add_column(title, justify="right", no_wrap=True)
    colours, keys = phase_colours(summary.phases), phase_keys(summary.phases)
    for phase in summary.phases[:_MOST_PHASES]:
        key = Text("■", style=colours[phase.id]) if coloured else Text(keys[phase.id])
        table.add_row(key, *_phase_cells(phase, wide=wide, name_width=24 if wide else 18))
    rest = summary.phases[_MOST_PHASES:]
    if rest:
        share = format_ratio(sum(phase.share for phase in rest))
        table.add_row(Text(""), Text(f"{len(rest)} more", style="dim"), Text(share, style="dim"))
    return table


def _phase_cells(phase: PhaseSummary, *, wide: bool, name_width: int) -> Iterator[Text]:
    yield Text(shorten(phase.name, name_width))
    yield Text(format_ratio(phase.share))
    yield Text(format_ps(phase.total_ps))
    yield Text(format_count(phase.steps))
    yield Text(format_count(phase.segments))
    yield Text(format_ps(phase.median_ps))
    if wide:
        yield Text(f"{format_ps(phase.p05_ps)} – {format_ps(phase.p95_ps)}")
        yield Text("–" if phase.period_steps is None else f"{phase.period_steps:,.0f} steps")
        yield Text(format_ps(phase.input_ps))
    yield Text(format_count(phase.captured_steps), style="" if phase.captured_steps else "yellow")


def account_table(summary: RunSummary, width: int) -> Table:
    """The clock's account: parts of the wall time, exact."""
    return _parts_table(summary, summary.account, width, show_interval=False)


def category_table(summary: RunSummary, width: int) -> Table:
    """Time inside steps by category, each with its interval."""
    return _parts_table(summary, summary.categories, width, show_interval=True)


def _parts_table(summary: RunSummary, breakdown: Breakdown, width: int, *, show_interval: bool) -> Table:
    table = _table(("", "left"), ("", "left"), ("", "right"), ("", "left"), ("", "right"))
    table.show_header = False
    colours = part_colours(summary)
    shown = [part for part in breakdown.parts if part.total_ps]
    bar_width = max(width - 62, 12)
    for part in shown[:_MOST_PHASES]:
        bar = Text(share_bar(part.share, bar_width).ljust(bar_width), style=colours[part.name])
        interval = part_interval(part) if show_interval else ""
        name = Text(shorten(category_name(part.name), 24))
        share = Text(format_ratio(part.share))
        table.add_row(name, bar, Text(format_ps(part.total_ps)), Text(interval, style="dim"), share)
    rest = shown[_MOST_PHASES:]
    if rest:
        table.add_row(*_rest_of_parts(rest))
    return table


def _rest_of_parts(rest: Sequence[PartTime]) -> tuple[Text, ...]:
    total = format_ps(sum(part.total_ps for part in rest))
    share = format_ratio(sum(part.share for part in rest))
    return Text(f"{len(rest)} more", style="dim"), Text(""), Text(total), Text(""), Text(share)


def ops_tables(summary: RunSummary, width: int) -> Iterator[tuple[str, Table]]:
    """Title and table of the top ops: of the largest phases where they were captured, else of the run."""
    captured = [phase for phase in summary.phases if phase.top_ops]
    for phase in captured[:_OPS_OF_PHASES]:
        yield f"Top ops of {shorten(phase.name, 40)}, by self time", _ops_table(phase.top_ops, width)
    if not captured and summary.top_ops:
        yield "Top ops, by self time", _ops_table(summary.top_ops, width)


def _ops_table(ops: Sequence[OpTime], width: int) -> Table:
    room = width - 46
    wide = width >= 100
    op_width = room * 3 // 5 if wide else room
    table = _table(("op", "left"), ("category", "left"), ("self time", "right"), ("", "left"), ("share", "right"))
    if wide:
        table.add_column("layer or program", no_wrap=True)
    listed = [op for op in ops if op.category != "mixed"][:_MOST_OPS]
    for op in listed + [op for op in ops if op.category == "mixed"]:
        cells = [
            Text(shorten(op.op, op_width)),
            Text(category_name(op.category)),
            Text(format_ps(op.self_ps)),
            Text(interval_text(op.self_ps, op.low_ps, op.high_ps), style="dim"),
            Text(format_ratio(op.share)),
        ]
        if wide:
            cells.append(Text(shorten(op.layer or op.program or "–", room - op_width - 2), style="dim"))
        table.add_row(*cells)
    return table


def events_table(events: Sequence[RunEvent], width: int) -> Table:
    """What was noticed, in order of time; the costliest where there are too many."""
    kept = sorted(events, key=lambda event: -(event.cost_ps or 0))[:_MOST_EVENTS]
    table = _table(("", "left"), ("", "right"))
    table.show_header = False
    for event in events:
        if event in kept:
            table.add_row(Text(shorten(event.text, 400)), Text(format_ps(event.cost_ps)))
    if len(events) > len(kept):
        table.add_row(Text(f"… and {len(events) - len(kept)} more; see --json", style="dim"), Text(""))
    table.columns[0].no_wrap = False
    table.columns[0].ratio = 1
    table.expand = True
    table.width = width
    return table


def hosts_table(hosts: Sequence[HostSummary]) -> Table:
    """One row a host, with what makes it stand out."""
    table = _table(("host", "right"), ("state", "left"), ("steps", "right"), ("median", "right"), ("input", "right"))
    table.add_column("slower", justify="right")
    table.add_column("")
    for host in hosts:
        slower = "–" if host.slower is None else f"{100 * host.slower:+.1f} %"
        style = "bold yellow" if host.straggler else ""
        table.add_row(
            Text(str(host.host)),
            Text(host.state),
            Text(format_count(host.steps)),
            Text(format_ps(host.median_ps)),
            Text(format_ps(host.input_ps)),
            Text(slower, style=style),
            Text(shorten(host.note or "", 60), style=style),
        )
    return table


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for title, justify in columns:
        table.add_column(title, justify="right" if justify == "right" else "left", no_wrap=True)
    return table
