"""Models on a terminal: a prediction with what it rests on and its longest kernels, an evaluation, a model's card."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.learn.predict.types import KernelEstimate, ProgramEstimate
from phasepoint.report.documents import array_bytes
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.terminal import grid
from phasepoint.report.words.names import printable, share_bar, shorten

if TYPE_CHECKING:
    from phasepoint.learn.models.model_file import StoredModel
    from phasepoint.learn.tasks import Evaluation, Task

MOST_ROWS = 15
"""Rows shown of any table; `--json` gives all."""

_LITTLE, _MUCH = 0.5, 0.9
"""Shares of the time within range below which the reader is warned, and from which not."""


@dataclass(frozen=True)
class _AlikeKernels:
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
        console.print(grid(_program_table(found)))
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
        console.print(grid(_kernel_table(found, rows, console.width)))
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
    def times_predicted(one: ProgramEstimate) -> str:
        return "–" if one.measured_ratio is None else f"{one.measured_ratio:.2f}"

    columns = (
        TableColumn("program", lambda one: one.program, width=34),
        TableColumn("kernels", lambda one: len(one.kernels), "count"),
        TableColumn("predicted", lambda one: one.time_ps, "ps"),
        TableColumn("90 % interval", lambda one: _between(one.low_ps, one.high_ps), "ps"),
        TableColumn("measured", lambda one: None if one.measured is None else one.measured.time_ps, "ps"),
        TableColumn("× predicted", times_predicted, "ratio"),
        TableColumn("in range", lambda one: one.in_range_ratio, "ratio"),
    )
    return Table(columns, found[:MOST_ROWS])


def _kernel_table(found: ProgramEstimate, rows: Sequence[_AlikeKernels], width: int) -> Table:
    widths = _fit(width, is_measured=found.measured is not None)
    whole, longest = sum(row.total_ps for row in rows), max(rows[0].total_ps, 1)
    names, bars = widths["kernel, + alike"], widths.get("bar", 0)

    def name(row: _AlikeKernels) -> str:
        others = f" +{row.names - 1}" if row.names > 1 else ""
        return shorten(row.like.kernel, names - len(others)) + others

    def distance(row: _AlikeKernels) -> str:
        if row.like.distance is None:
            return "not learned"
        return f"{row.like.distance:.2f}" + ("" if row.like.in_range else " outside")

    columns = {
        "kernel, + alike": TableColumn("kernel, + alike", name),
        "runs": TableColumn("runs", lambda row: "?" if row.runs is None else row.runs, "count"),
        "each": TableColumn("each", lambda row: row.like.time_ps, "ps"),
        "90 % interval": TableColumn("90 % interval", lambda row: _between(row.like.low_ps, row.like.high_ps), "ps"),
        "roofline": TableColumn("roofline", lambda row: row.like.analytic_ps, "ps"),
        "measured": TableColumn("measured", lambda row: row.measured_ps, "ps"),
        "share": TableColumn("share", lambda row: row.total_ps / whole if whole else 0.0, "ratio"),
        "bar": TableColumn("", lambda row: share_bar(row.total_ps / longest, bars)),
        "limit": TableColumn("limit", lambda row: row.like.bound),
        "distance": TableColumn("distance", distance),
    }
    return Table([column for name, column in columns.items() if name in widths], rows[:MOST_ROWS])


_WIDTHS = {
    **{"kernel, + alike": 24, "runs": 5, "each": 8, "90 % interval": 20, "measured": 8, "share": 6},
    **{"limit": 7, "distance": 12, "bar": 8, "roofline": 8},
}
"""Columns in the order in which they are given up where there is no room, the last first; characters of each."""


def _fit(width: int, *, is_measured: bool) -> dict[str, int]:
    """The columns that fit, with their widths; what is left goes to the bars."""
    fitting, room = {}, width
    for name, size in _WIDTHS.items():
        if name == "measured" and not is_measured:
            continue
        if room < size + 2:
            break
        fitting[name], room = size, room - size - 2
    if "bar" in fitting:
        fitting["bar"] += min(max(room, 0), 8)
    return fitting


def _rows(found: ProgramEstimate) -> list[_AlikeKernels]:
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
        rows.append(_AlikeKernels(group[0], len(group), sum(runs) if len(runs) == len(group) else None, measured_ps))
    return sorted(rows, key=lambda row: -row.total_ps)


def _say_left(console: Console, count: int, total_ps: int | None) -> None:
    if count > 0:
        together = "" if total_ps is None else f", {format_ps(total_ps)} together"
        console.print(Text(f"… and {format_count(count)} more{together}; --json gives all", style="dim"))


def _between(low_ps: int | None, high_ps: int | None) -> str:
    return "–" if low_ps is None else f"{format_ps(low_ps)} – {format_ps(high_ps)}"


def render_evaluation(found: "Evaluation", console: Console) -> None:
    """Print an evaluation: a row per group; a measure that the task does not have is left blank."""

    def ratio(value: float | None) -> str:
        return "" if value is None else format_ratio(value)

    console.print(Text(f"{found.model} · {found.task}", style="bold"))
    columns = (
        TableColumn("group", lambda row: row.group, width=48),
        TableColumn("n", lambda row: row.n, "count"),
        TableColumn("mean error", lambda row: ratio(row.mape), "ratio"),
        TableColumn("Kendall τ", lambda row: "" if row.tau is None else f"{row.tau:.3f}", "tau"),
        TableColumn("slower than the best", lambda row: ratio(row.regret), "ratio"),
        TableColumn("best picked", lambda row: ratio(row.top1), "ratio"),
    )
    console.print(grid(Table(columns, found.rows)))


def render_model(model: "StoredModel", path: str, console: Console) -> None:
    """Print a model's card: what it was trained on, and its errors on what was held back."""

    def words(value: Any) -> Text:
        if isinstance(value, Mapping):
            return Text("\n".join(printable(f"{name}: {_inline(one)}") for name, one in value.items()))
        return Text(printable(_inline(value)))

    console.print(
        Text(f"{path}: model of kind {model.kind}, {array_bytes(model) / 1e6:.2f} MB of arrays", style="bold")
    )
    columns = (
        TableColumn("", lambda entry: Text(shorten(str(entry[0]), 30), "dim")),
        TableColumn("", lambda entry: words(entry[1]), wraps=True),
    )
    console.print(grid(Table(columns, model.card.items())))


def render_models(models: "Sequence[StoredModel]", tasks: "Sequence[Task]", console: Console) -> None:
    """Print the package's models, one line each, and the tasks."""

    def device(model: "StoredModel") -> str:
        named = model.card.get("device", model.card.get("devices", ""))
        if isinstance(named, Mapping):
            return str(named.get("name", ""))
        return ", ".join(map(str, named)) if isinstance(named, list) else str(named)

    columns = (
        TableColumn("model", lambda model: model.name, width=32),
        TableColumn("MB", lambda model: f"{array_bytes(model) / 1e6:.2f}", "MB"),
        TableColumn("date", lambda model: str(model.card.get("date", "")), is_figure=True),
        TableColumn("device", device, width=60, is_figure=True),
    )
    console.print(grid(Table(columns, models)))
    console.print()
    known = (TableColumn("task", lambda task: task.name), TableColumn("data", lambda task: task.data, wraps=True))
    console.print(grid(Table(known, tasks)))


def _inline(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
