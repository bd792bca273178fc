"""A prediction on a terminal: the time with its interval, what it rests on, and the longest kernels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.learn.predict.types import KernelEstimate, ProgramEstimate
from phasepoint.report.words.names import printable, share_bar, shorten

MOST_ROWS = 15
"""Rows shown of any table; `--json` gives all."""

_LITTLE, _MUCH = 0.5, 0.9
"""Shares of the time within range below which the reader is warned, and from which not."""


@dataclass(frozen=True)
class _Row:
    """Kernels that compute the same, shown in one line.

    Attributes:
        like: the first of them.
        names: how many kernels.
        runs: executions of all; None where one's number is not known.
        measured_ps: mean of their measured times; None where none was measured.
    """

    like: KernelEstimate
    names: int
    runs: int | None
    measured_ps: int | None

    @property
    def total_ps(self) -> int:
        """Of all executions; of one for each kernel where their number is not known."""
        return self.like.time_ps * (self.names if self.runs is None else self.runs)


def render_predictions(found: Sequence[ProgramEstimate], console: Console, *, compile_s: float | None = None) -> None:
    """Print predictions; their notes are the caller's to print.

    Args:
        found: one per program; of several the first is shown in full.
        console: where to.
        compile_s: seconds that tracing and compiling took before.
    """
    if len(found) > 1:
        console.print(Text(f"{format_counted(len(found), 'program')} on {found[0].device}", style="bold"))
        console.print(_program_table(found))
        _say_left(console, len(found) - MOST_ROWS, None)
        console.print()
    _render_one(found[0], console, compile_s)


def _render_one(found: ProgramEstimate, console: Console, compile_s: float | None) -> None:
    console.print(_headline(found))
    for line in _facts(found, compile_s):
        console.print(line)
    rows = _rows(found)
    if rows:
        console.print()
        console.print(_kernel_table(found, rows, console.width))
        _say_left(console, sum(row.names for row in rows[MOST_ROWS:]), sum(row.total_ps for row in rows[MOST_ROWS:]))


def _headline(found: ProgramEstimate) -> Text:
    text = Text.assemble((printable(found.program), "bold"), " on ", (found.device, "bold"), ": ")
    if found.time_ps is None:
        once, iteration = found.once_interval_ps or (None, None), found.iteration_interval_ps or (None, None)
        text.append("time not known", style="bold yellow")
        return text.append(
            f"\n{format_ps(found.once_ps)} ({_between(*once)}) once, {format_ps(found.iteration_ps)} "
            f"({_between(*iteration)}) for each iteration of its loops"
        )
    text.append(format_ps(found.time_ps), style="bold green")
    return text.append(f", {100 * found.confidence:.0f} % interval {_between(found.low_ps, found.high_ps)}")


def _facts(found: ProgramEstimate, compile_s: float | None) -> Iterator[Text]:
    bound = "what limits it is not known" if found.bound == "unknown" else f"mostly limited by {found.bound}"
    yield Text(f"{format_count(len(found.kernels))} kernels, {bound}; predicted by the method {found.method}")
    yield _range(found)
    if found.analytic_ps is not None:
        yield Text(f"the plain analytic model (roofline) says {format_ps(found.analytic_ps)}")
    if found.measured is not None:
        yield _measured(found)
    if compile_s is not None:
        yield Text(f"traced and compiled here in {compile_s:.2g} s, which is no part of the time", style="dim")


def _range(found: ProgramEstimate) -> Text:
    if all(one.distance is None for one in found.kernels):
        return Text("nothing was learned for this device: times rest on its specification alone", style="yellow")
    share = f"{format_ratio(found.in_range_ratio)} of the time is in kernels like those that were learned from"
    doubt = "yellow" if found.in_range_ratio >= _LITTLE else "red"
    return Text(share, style="" if found.in_range_ratio >= _MUCH else doubt)


def _measured(found: ProgramEstimate) -> Text:
    assert found.measured is not None
    text = Text(
        f"measured {format_ps(found.measured.time_ps)} on {printable(found.measured.device)}, "
        f"mean of {format_counted(found.measured.executions, 'execution')}"
    )
    ratio = found.measured_ratio
    return text if ratio is None else text.append(f": × {ratio:.2f} of what is predicted")


def _program_table(found: Sequence[ProgramEstimate]) -> Table:
    table = _table("program", "kernels", "predicted", "90 % interval", "measured", "× predicted", "in range")
    for one in found[:MOST_ROWS]:
        measured = None if one.measured is None else one.measured.time_ps
        ratio = "–" if one.measured_ratio is None else f"{one.measured_ratio:.2f}"
        cells = (format_count(len(one.kernels)), format_ps(one.time_ps), _between(one.low_ps, one.high_ps))
        row = (shorten(one.program, 34), *cells, format_ps(measured), ratio, format_ratio(one.in_range_ratio))
        table.add_row(*map(Text, row))
    return table


def _kernel_table(found: ProgramEstimate, rows: Sequence[_Row], width: int) -> Table:
    columns = _columns(width, is_measured=found.measured is not None)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        table.add_column("" if name == "bar" else name, justify="left" if name in _LEFT else "right", no_wrap=True)
    whole, longest = sum(row.total_ps for row in rows), max(rows[0].total_ps, 1)
    names, bars = columns["kernel, + alike"], columns.get("bar", 0)
    for row in rows[:MOST_ROWS]:
        one = row.like
        cells = {
            "kernel, + alike": _name(row, names),
            "runs": "?" if row.runs is None else format_count(row.runs),
            "each": format_ps(one.time_ps),
            "90 % interval": _between(one.low_ps, one.high_ps),
            "roofline": format_ps(one.analytic_ps),
            "measured": format_ps(row.measured_ps),
            "share": format_ratio(row.total_ps / whole if whole else 0.0),
            "bar": share_bar(row.total_ps / longest, bars),
            "limit": one.bound,
            "distance": _distance(one),
        }
        table.add_row(*(Text(cells[name]) for name in columns))
    return table


_LEFT = ("kernel, + alike", "bar", "limit", "distance")
_WIDTHS = {
    **{"kernel, + alike": 24, "runs": 5, "each": 8, "90 % interval": 20, "measured": 8, "share": 6},
    **{"limit": 7, "distance": 12, "bar": 8, "roofline": 8},
}
"""Columns in the order in which they are given up where there is no room, the last first; characters of each."""


def _columns(width: int, *, is_measured: bool) -> dict[str, int]:
    """The columns that fit, in the order in which they are shown, with their widths; what is left goes to the bars."""
    fitting, room = {}, width
    for name, size in _WIDTHS.items():
        if name == "measured" and not is_measured:
            continue
        if room < size + 2:
            break
        fitting[name], room = size, room - size - 2
    if "bar" in fitting:
        fitting["bar"] += min(max(room, 0), 8)
    return {name: fitting[name] for name in _SHOWN if name in fitting}


_SHOWN = (
    *("kernel, + alike", "runs", "each", "90 % interval", "roofline", "measured", "share", "bar", "limit", "distance"),
)


def _rows(found: ProgramEstimate) -> list[_Row]:
    """Kernels that are alike together, those that take most time first."""
    alike: dict[object, list[KernelEstimate]] = {}
    for one in found.kernels:
        alike.setdefault(one.fingerprint or one.kernel, []).append(one)
    seen = found.measured.kernels if found.measured is not None else {}
    rows = []
    for group in alike.values():
        runs = [one.executions for one in group if one.executions is not None]
        times = [seen[one.kernel] for one in group if one.kernel in seen]
        measured_ps = sum(times) // len(times) if times else None
        rows.append(_Row(group[0], len(group), sum(runs) if len(runs) == len(group) else None, measured_ps))
    return sorted(rows, key=lambda row: -row.total_ps)


def _name(row: _Row, width: int) -> str:
    others = f" +{row.names - 1}" if row.names > 1 else ""
    return shorten(row.like.kernel, width - len(others)) + others


def _say_left(console: Console, count: int, total_ps: int | None) -> None:
    if count > 0:
        together = "" if total_ps is None else f", {format_ps(total_ps)} together"
        console.print(Text(f"… and {format_count(count)} more{together}; --json gives all", style="dim"))


def _between(low_ps: int | None, high_ps: int | None) -> str:
    return "–" if low_ps is None else f"{format_ps(low_ps)} – {format_ps(high_ps)}"


def _distance(one: KernelEstimate) -> str:
    if one.distance is None:
        return "not learned"
    return f"{one.distance:.2f}" if one.in_range else f"{one.distance:.2f} outside"


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for title in others:
        table.add_column(title, justify="right", no_wrap=True)
    return table
