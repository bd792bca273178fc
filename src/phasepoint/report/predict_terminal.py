"""A prediction on a terminal: the time with its interval, what it rests on, the longest kernels, what must be known."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.learn.predict_types import KernelEstimate, ProgramEstimate
from phasepoint.report.bars import share_bar
from phasepoint.report.names import printable, shorten

MOST_KERNELS = 15
"""Kernels shown; `--json` gives all."""

_WIDE = 110
_BAR = 16
_LITTLE, _MUCH = 0.5, 0.9
"""Shares of the time within range below which the headline warns, and from which it does not."""


def render_prediction(found: ProgramEstimate, console: Console, *, compile_s: float | None = None) -> None:
    """Print one program's prediction with its notes.

    Args:
        found: the prediction.
        console: where to.
        compile_s: seconds that tracing and compiling took before it.
    """
    console.print(_headline(found))
    for line in _facts(found, compile_s):
        console.print(line)
    if found.kernels:
        console.print()
        console.print(_kernel_table(found, console.width))
        _say_rest(found, console)
    if found.notes:
        console.print()
        for note in found.notes:
            console.print(Text(f"note: {printable(note)}", style="dim"))


def _headline(found: ProgramEstimate) -> Text:
    text = Text.assemble((printable(found.program), "bold"), " on ", (found.device, "bold"), "  ")
    if found.time_ps is None:
        return text.append("time not known: ", style="bold yellow").append(
            f"{format_ps(found.once_ps)} and {format_ps(found.iteration_ps)} for each iteration of its loops"
        )
    text.append(format_ps(found.time_ps), style="bold green")
    return text.append(f"  {_between(found.low_ps, found.high_ps)} with {100 * found.confidence:.0f} % confidence")


def _facts(found: ProgramEstimate, compile_s: float | None) -> list[Text]:
    bound = "what limits it is not known" if found.bound == "unknown" else f"mostly limited by {found.bound}"
    facts = [Text(f"{format_count(len(found.kernels))} kernels, {bound}; method {found.method}")]
    facts.append(_range(found))
    if found.time_ps is not None and found.method != "analytic":
        facts.append(Text(f"the analytic model alone says {format_ps(found.analytic_ps)}"))
    if found.measured is not None:
        facts.append(_measured(found))
    if compile_s is not None:
        facts.append(Text(f"traced and compiled here in {compile_s:.2g} s, which is not part of the time", style="dim"))
    return facts


def _range(found: ProgramEstimate) -> Text:
    if all(one.distance is None for one in found.kernels):
        return Text("nothing was learned for this device: times come from its specification alone", style="yellow")
    share = f"{format_ratio(found.in_range_ratio)} of the time is in kernels like those that the model learned from"
    return Text(
        share, style="" if found.in_range_ratio >= _MUCH else "yellow" if found.in_range_ratio >= _LITTLE else "red"
    )


def _measured(found: ProgramEstimate) -> Text:
    assert found.measured is not None
    text = Text(
        f"measured {format_ps(found.measured.time_ps)} on {printable(found.measured.device)}, "
        f"mean of {format_count(found.measured.executions)} executions"
    )
    if found.time_ps:
        text.append(f": × {found.measured.time_ps / found.time_ps:.2f} of the prediction")
    return text


def _kernel_table(found: ProgramEstimate, width: int) -> Table:
    wide = width >= _WIDE
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("kernel", no_wrap=True)
    for title in ("runs", "time", "90 % interval", *(["analytic"] if wide else [])):
        table.add_column(title, justify="right", no_wrap=True)
    measured = found.measured.kernels if found.measured is not None else None
    if measured is not None:
        table.add_column("measured", justify="right", no_wrap=True)
    for title in ("share", "", "bound", *(["distance"] if wide else [])):
        table.add_column(title, justify="right" if title == "share" else "left", no_wrap=True)
    whole = sum(_total_ps(one) for one in found.kernels)
    for one in _longest(found.kernels):
        share = _total_ps(one) / whole if whole else 0.0
        cells = [shorten(one.kernel, 34 if wide else 22), _runs(one), format_ps(one.time_ps)]
        cells += [_between(one.low_ps, one.high_ps), *([format_ps(one.analytic_ps)] if wide else [])]
        cells += [format_ps(measured.get(one.kernel))] if measured is not None else []
        cells += [format_ratio(share), share_bar(share, _BAR if wide else 8), one.bound]
        cells += [_distance(one)] if wide else []
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _say_rest(found: ProgramEstimate, console: Console) -> None:
    left = len(found.kernels) - MOST_KERNELS
    if left > 0:
        rest = sum(_total_ps(one) for one in sorted(found.kernels, key=_total_ps)[:left])
        console.print(
            Text(f"… and {format_count(left)} more, {format_ps(rest)} together; --json gives all", style="dim")
        )


def _longest(kernels: Sequence[KernelEstimate]) -> list[KernelEstimate]:
    return sorted(kernels, key=lambda one: -_total_ps(one))[:MOST_KERNELS]


def _total_ps(one: KernelEstimate) -> int:
    """All executions; one where their number is not known."""
    return one.time_ps * (1 if one.executions is None else one.executions)


def _runs(one: KernelEstimate) -> str:
    return "?" if one.executions is None else format_count(one.executions)


def _between(low_ps: int | None, high_ps: int | None) -> str:
    return f"{format_ps(low_ps)} – {format_ps(high_ps)}"


def _distance(one: KernelEstimate) -> str:
    if one.distance is None:
        return "not learned"
    return f"{one.distance:.2f}" if one.in_range else f"{one.distance:.2f} outside"
