"""A compact of a run on a terminal: the whole, its categories and phases, the windows that weigh most."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.replay.compact_result import Compact, CompactWindow, PartEstimate
from phasepoint.report.names import shorten


def render_compact(found: Compact, console: Console, *, top: int) -> None:
    """Print a compact.

    Args:
        found: what to print.
        console: where to.
        top: windows to show, the ones that stand for most time first.
    """
    share = format_ratio(found.steps_used / found.steps_total)
    used = f"{format_count(found.steps_used)} of {format_counted(found.steps_total, 'step')} ({share})"
    console.print(Text(f"{used} in {format_counted(len(found.windows), 'window')} stand for the run", style="bold"))
    header = ("time inside steps", "steps", "estimate", f"{format_ratio(found.confidence)}", "recorded", "off by")
    whole = PartEstimate("all", found.steps_total, found.estimate_ps, found.low_ps, found.high_ps, found.actual_ps)
    console.print(_grid(header, [_row(whole, found.actual_ps)]))
    for title, parts in (("category", found.by_category), ("phase", found.by_phase)):
        if parts:
            console.print()
            console.print(_grid((title, *header[1:]), [_row(one, found.actual_ps) for one in parts]))
    console.print()
    console.print(f"outside steps: {format_ps(found.outside_ps)}, measured, in none of the above")
    console.print()
    _render_windows(found, console, top)


def _render_windows(found: Compact, console: Console, top: int) -> None:
    ranked = sorted(found.windows, key=lambda one: (-one.weight * one.dur_ps, one.attempt, one.first_step))
    console.print(_grid(("window", "phase", "time", "weight", "stands for", "captured"), map(_window, ranked[:top])))
    if len(ranked) > top:
        rest_ps = sum(one.weight * one.dur_ps for one in ranked[top:])
        left = f"… {len(ranked) - top:,} more that stand for {format_ps(rest_ps)}; --top shows them"
        console.print(Text(left, style="dim"))


def _row(one: PartEstimate, whole_ps: int) -> tuple[str, ...]:
    high = "not known" if one.high_ps is None else format_ps(one.high_ps)
    off = None if one.actual_ps is None or not whole_ps else (one.estimate_ps - one.actual_ps) / whole_ps
    return (
        shorten(one.name, 40),
        "" if one.steps is None else format_count(one.steps),
        format_ps(one.estimate_ps),
        f"{format_ps(one.low_ps)} – {high}",
        format_ps(one.actual_ps),
        "–" if off is None else f"{100 * off:+.2f} %",
    )


def _window(one: CompactWindow) -> tuple[str, ...]:
    steps = f"{one.first_step}" if one.n_steps == 1 else f"{one.first_step} – {one.last_step}"
    return (
        steps if not one.attempt else f"{steps} (attempt {one.attempt})",
        shorten(one.phase, 40),
        format_ps(one.dur_ps),
        f"{one.weight:.4g}",
        format_ps(one.weight * one.dur_ps),
        "yes" if one.captured else "no",
    )


def _grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, name in enumerate(header):
        grid.add_column(name, justify="left" if index == 0 or name in {"phase", "captured"} else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return grid
