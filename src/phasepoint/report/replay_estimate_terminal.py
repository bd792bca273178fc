"""An estimate under a change on a terminal: the answer, what was exchanged, what it rests on, what it costs."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.replay.estimate_types import Cost, Estimate, Exchange, ScalarChange, Value
from phasepoint.report.names import printable, shorten
from phasepoint.report.wording import category_name

_OP_CHARACTERS = 48


def render_estimate(found: Estimate, console: Console) -> None:
    """Print an estimate; its notes are the caller's to print.

    Args:
        found: the estimate.
        console: where to.
    """
    console.print(Text(_headline(found), style="bold"))
    if found.exchanges:
        console.print(_saving(found))
    if found.from_windows is not None:
        few = found.from_windows
        console.print(
            f"Its representatives, {format_count(few.steps_used)} of {format_counted(few.steps_total, 'step')}, say "
            f"{format_ps(few.estimate.value_ps)} in steps{_between(few.estimate, found.confidence)}."
        )
    for line in _cost_lines(found.cost):
        console.print(line)
    for one in found.exchanges:
        console.print()
        _render_exchange(one, console, found.confidence)
    if found.kept:
        console.print()
        kept = ", ".join(f"{printable(one.name)} {format_ps(one.time_ps)}" for one in found.kept)
        console.print(Text(f"kept as it was: {kept}"))


def _headline(found: Estimate) -> str:
    if not found.exchanges:
        return f"The run takes {format_ps(found.before_ps)}, {format_ps(found.steps_before_ps)} of it in steps."
    return (
        f"The run would take {format_ps(found.after.value_ps)} instead of {format_ps(found.before_ps)}"
        f"{_between(found.after, found.confidence)}."
    )


def _saving(found: Estimate) -> str:
    saved, ratio = found.saved, abs(1 - found.ratio)
    verb = "saves" if saved.value_ps >= 0 else "costs"
    ends = sorted(abs(end) for end in (saved.low_ps, saved.high_ps) if end is not None)
    unsure = saved.low_ps is not None and saved.high_ps is not None and saved.low_ps < 0 < saved.high_ps
    interval = f", {format_ps(ends[0])} to {format_ps(ends[1])}" if ends and not unsure else ""
    doubt = "; the interval holds no change at all" if unsure else ""
    return f"It {verb} {format_ps(abs(saved.value_ps))} ({format_ratio(ratio)}){interval}{doubt}."


def _cost_lines(cost: Cost | None) -> Iterable[str]:
    if cost is None:
        return
    each = "host" if cost.unit == "host-hours" else "device"
    yield f"{cost.unit}: {cost.before:.4g} → {cost.after:.4g} ({format_count(cost.devices)} × the run's time)"
    if cost.price_per_hour is not None and cost.money_before is not None and cost.money_after is not None:
        span = ""
        if cost.money_after_low is not None and cost.money_after_high is not None:
            span = f" ({cost.money_after_low:,.2f} to {cost.money_after_high:,.2f})"
        yield (
            f"money: {cost.money_before:,.2f} → {cost.money_after:,.2f}{span} at {cost.price_per_hour:,.2f} an hour "
            f"for each {each}; saved {cost.money_saved or 0:,.2f}"
        )


def _render_exchange(one: Exchange, console: Console, confidence: float) -> None:
    percent = f"{100 * confidence:.0f} %"
    interval = "" if one.low is None or one.high is None else f" ({one.low:.3f} to {one.high:.3f}, {percent})"
    console.print(Text(f"exchanged: {printable(', '.join(one.phases))}, {format_count(one.steps)} steps", style="bold"))
    console.print(
        Text(f"  step: {format_ps(one.step_before_ps)} → {format_ps(one.step_after_ps)}, × {one.ratio:.3f}{interval}")
    )
    if one.steps_ratio != 1:
        console.print(Text(f"  steps: × {one.steps_ratio:g}"))
    console.print(
        Text(f"  time: {format_ps(one.before_ps)} → {format_ps(one.after.value_ps)}{_between(one.after, confidence)}")
    )
    against = f"against {', '.join(one.baselines)}" if one.baselines else "against the original's same steps"
    steps = f"{format_count(one.compared_steps)} of steps {one.first_step}–{one.last_step}"
    console.print(Text(printable(f"  from {', '.join(one.changes)}: {steps}, {against}")))
    if one.machine_ratio is not None:
        console.print(Text(f"  machine: a step of the baseline took × {one.machine_ratio:.3f} of the original's"))
    if one.within is not None:
        place = "not seen" if one.place is None else format_ratio(one.place)
        console.print(
            Text(f"  unsure by: scatter of the steps {format_ratio(one.within)}, choice of the stretch {place}")
        )
    _render_parts(one, console)
    for scalar in one.scalars:
        console.print(Text(_scalar_line(scalar)))


def _render_parts(one: Exchange, console: Console) -> None:
    parts = [
        (category_name(part.category), format_ps(part.before_ps), format_ps(part.after_ps)) for part in one.categories
    ]
    ops = [(shorten(op.op, _OP_CHARACTERS), format_ps(op.before_ps), format_ps(op.after_ps)) for op in one.ops]
    for header, rows in (("category", parts), ("op, self time", ops)):
        if rows:
            console.print(_grid((f"  {header}", "before", "after"), rows))


def _scalar_line(one: ScalarChange) -> str:
    return (
        f"  {printable(one.name)}, mean of {format_counted(one.steps, 'step')} {one.first_step}–{one.last_step}: "
        f"{one.before:.6g} → {one.after:.6g}; largest difference {one.largest_difference:+.3g} "
        f"in step {one.largest_step}"
    )


def _between(value: Value, confidence: float) -> str:
    if value.low_ps is None or value.high_ps is None:
        return " (no interval: a single step was compared)"
    return f" ({format_ps(value.low_ps)} to {format_ps(value.high_ps)}, {100 * confidence:.0f} %)"


def _grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(header):
        grid.add_column(name, justify="right" if number else "left", no_wrap=True)
    for name, *cells in rows:
        grid.add_row(Text(f"  {name}"), *(Text(cell) for cell in cells))
    return grid
