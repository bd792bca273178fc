"""Benchmarks of devices in the terminal: how far predictions from ten measured models are off.

Its own file: a command's answer, as each of its neighbours here.
"""

from collections.abc import Sequence
from functools import partial

from rich.console import Console

from phasepoint.bench.fingerprint.validation import DeviceAnswer
from phasepoint.core.units import format_count, format_ratio
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.terminal import grid
from phasepoint.report.words.names import printable


def render_devices(answers: Sequence[DeviceAnswer], console: Console) -> None:
    """Print the errors of every device, beside those of what is simpler."""
    columns = [
        TableColumn("device", lambda answer: printable(answer.device)),
        TableColumn("models", lambda answer: format_count(answer.models), is_figure=True),
        TableColumn("off by, median", lambda answer: format_ratio(answer.median_ape), is_figure=True),
        TableColumn("near pairs swapped", lambda answer: format_ratio(answer.inversions), is_figure=True),
        TableColumn("within 90 %", lambda answer: format_ratio(answer.coverage90), is_figure=True),
    ]
    columns += [TableColumn(f"by {name}", partial(_baseline, name), is_figure=True) for name in answers[0].baselines]
    console.print(grid(Table(tuple(columns), answers)))


def _baseline(name: str, answer: DeviceAnswer) -> str:
    return format_ratio(answer.baselines[name])
