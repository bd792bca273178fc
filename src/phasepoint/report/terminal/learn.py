"""A trained model and an evaluation on a terminal."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.units import format_count, format_ratio
from phasepoint.learn.models.model_file import Model
from phasepoint.learn.tasks import Evaluation, EvaluationRow, Task
from phasepoint.report.documents.learn import array_bytes
from phasepoint.report.words.names import shorten

_MEASURES = ("n", "mean error", "Kendall τ", "slower than the best", "best picked")


def render_evaluation(found: Evaluation, console: Console) -> None:
    """Print an evaluation: a row per group; a measure that the task does not have is left blank."""
    console.print(Text(f"{found.model} · {found.task}", style="bold"))
    grid = _grid("group", _MEASURES)
    for row in found.rows:
        grid.add_row(shorten(row.group, 48), *_cells(row))
    console.print(grid)


def render_model(model: Model, path: str, console: Console) -> None:
    """Print a model's card: what it was trained on, and its errors on what was held back."""
    console.print(
        Text(f"{path}: model of kind {model.kind}, {array_bytes(model) / 1e6:.2f} MB of arrays", style="bold")
    )
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column("", no_wrap=True, style="dim")
    grid.add_column("", overflow="fold")
    for name, value in model.card.items():
        grid.add_row(shorten(str(name), 30), _words(value))
    console.print(grid)


def render_models(models: Sequence[Model], tasks: Sequence[Task], console: Console) -> None:
    """Print the package's models, one line each, and the tasks."""
    grid = _grid("model", ("MB", "date", "device"))
    for model in models:
        size, date = f"{array_bytes(model) / 1e6:.2f}", str(model.card.get("date", ""))
        grid.add_row(shorten(model.name, 32), size, date, shorten(_device(model.card), 60))
    console.print(grid)
    console.print()
    known = _grid("task", ())
    known.add_column("data")
    for task in tasks:
        known.add_row(task.name, task.data)
    console.print(known)


def _device(card: Mapping[str, Any]) -> str:
    device = card.get("device", card.get("devices", ""))
    if isinstance(device, Mapping):
        return str(device.get("name", ""))
    return ", ".join(map(str, device)) if isinstance(device, list) else str(device)


def _cells(row: EvaluationRow) -> tuple[str, ...]:
    return (
        format_count(row.n),
        _ratio(row.mape),
        "" if row.tau is None else f"{row.tau:.3f}",
        _ratio(row.regret),
        _ratio(row.top1),
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else format_ratio(value)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {_inline(one)}" for name, one in value.items())
    return _inline(value)


def _inline(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _grid(first: str, others: tuple[str, ...]) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    grid.add_column(first, no_wrap=True)
    for title in others:
        grid.add_column(title, justify="right", no_wrap=True)
    return grid
