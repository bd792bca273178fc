"""A comparison of two runs on a terminal: the answer first, then where the change is."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from phasepoint.core.units import format_ps, format_ratio
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.terminal import grid
from phasepoint.report.words.names import printable, shorten
from phasepoint.stack.diff.result import CHANGED, EVERYTHING, NOT_JUDGED, ONLY_BASE, ONLY_RUN, DiffRow, RunDiff

MOST_ROWS = 12
"""Rows shown of a level; `--json` and `--csv` give all."""

_MOST_NAMED = 3
"""Places of a change that the answer names; the parts list all."""

_MOST = 10.0
"""Larger ratios are shown as more than this: a choice, beyond it nobody compares percents."""

_TITLES = {
    "part": "The change in parts",
    "category": "By category, as captured",
    "layer": "By layer",
    "op": "By op",
}


def render_diff(diff: RunDiff, console: Console) -> None:
    """Print the answer and the rows behind it."""
    console.print(Text("\n".join(answer(diff)), style="bold"))
    for level, title in _TITLES.items():
        rows = diff.level(level)
        shown = _to_show(level, rows)
        if not shown:
            continue
        console.print()
        console.print(Text(title, style="bold"))
        console.print(grid(_table(level, shown)))
        if len(shown) < len(rows):
            console.print(Text(f"… {len(rows) - len(shown):,} more; --csv and --json print all", style="dim"))


def answer(diff: RunDiff) -> list[str]:
    """What changed, in one to three sentences, the first of which answers."""
    step, everything = diff.step, next(row for row in diff.level("part") if row.name == EVERYTHING)
    lines = [f"{diff.unrelated[:1].upper()}{diff.unrelated[1:]}."] if diff.unrelated else []
    if diff.verdict == NOT_JUDGED:
        lines.append(f"Not judged: the step takes {_moved(step)}, and nothing says how much of that is noise.")
    elif diff.verdict == CHANGED:
        lines += [_named(row, step) for row in diff.named[:_MOST_NAMED]]
        if len(diff.named) > _MOST_NAMED:
            lines.append(f"{len(diff.named) - _MOST_NAMED} more places changed; they follow.")
        whole = f"RUN's step takes {_moved(step)} as a whole{_interval(step)}"
        lines.append(f"{whole}: {'beyond noise' if step.verdict == CHANGED else 'by itself within noise'}.")
    else:
        lines.append(f"No change beyond noise. RUN's step takes {_moved(step)} as a whole{_interval(step)}.")
    if everything.verdict != NOT_JUDGED:
        cause = "the machine may be all of it, repeated recordings would tell"
        if everything.verdict == CHANGED:
            cause = "more than recordings of one job differ by"
        lines.append(f"All ops together take {_moved(everything)}{_interval(everything)}: {cause}.")
    return [printable(line) for line in lines]


def _named(row: DiffRow, step: DiffRow) -> str:
    """A place that changed, and what of the step that makes."""
    of_step = row.change_ps / step.base_ps if step.base_ps else None
    more = f"{format_ps(abs(row.change_ps))} {'more' if row.change_ps >= 0 else 'less'} per step"
    moved = f"{shorten(row.name, 60)} takes {_moved(row)} than before, the rest of the step allowed for{_interval(row)}"
    return f"{moved}, {more} ({_signed(of_step)} of the step)."


def _moved(row: DiffRow) -> str:
    ratio = row.change_ratio
    if ratio is None:
        return format_ps(row.run_ps)
    return f"{format_ratio(abs(ratio))} {'longer' if ratio >= 0 else 'shorter'}"


def _interval(row: DiffRow) -> str:
    if row.low_ratio is None or row.high_ratio is None:
        return ""
    return f" (95 % interval {_signed(row.low_ratio)} to {_signed(row.high_ratio)})"


def _signed(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    if ratio > _MOST:
        return f"> +{format_ratio(_MOST)}"
    return f"{'+' if ratio >= 0 else '−'}{format_ratio(abs(ratio))}"


def _to_show(level: str, rows: Sequence[DiffRow]) -> Sequence[DiffRow]:
    if level == "part":
        return rows
    telling = [row for row in rows if row.verdict in (CHANGED, ONLY_BASE, ONLY_RUN)]
    others = [row for row in rows if row not in telling]
    return [*telling, *others][:MOST_ROWS]


def _table(level: str, rows: Sequence[DiffRow]) -> Table:
    own = level in ("layer", "op")

    def name(row: DiffRow) -> str:
        place = row.name if row.layer is None else f"{row.layer}: {row.name}"
        return " ".join(part for part in (place, row.direction, row.shape) if part)

    def interval(row: DiffRow) -> str:
        low, high = (row.own_low_ratio, row.own_high_ratio) if own else (row.low_ratio, row.high_ratio)
        return "" if low is None else f"{_signed(low)} to {_signed(high)}"

    columns = (
        TableColumn(level, name, width=56, wraps=True),
        TableColumn("base", lambda row: row.base_ps, "ps", wraps=True),
        TableColumn("run", lambda row: row.run_ps, "ps", wraps=True),
        TableColumn("change", lambda row: _signed(row.change_ratio), "ratio", wraps=True),
        TableColumn("beyond its like" if own else "95 % interval", interval, "ratio", wraps=True),
        TableColumn("verdict", lambda row: row.verdict, wraps=True),
    )
    return Table(columns, rows)
