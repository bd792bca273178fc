"""Large systems in the terminal: how far predictions of them are off.

Its own file: a command's answer, as each of its neighbours here.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from phasepoint.core.units import format_count, format_ratio
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.terminal import grid
from phasepoint.report.words.names import printable
from phasepoint.scale.validate.answer import Band, FileAnswer


def render_validation(answers: Sequence[FileAnswer], console: Console) -> None:
    """Print the errors of every file, and of its parts."""
    for number, answer in enumerate(answers):
        if number:
            console.print()
        covered = "" if answer.coverage90 is None else f"; {format_ratio(answer.coverage90)} within the 90 % interval"
        console.print(
            Text(
                f"{printable(answer.file)}: off by {format_ratio(answer.mape)} in the mean, "
                f"{format_ratio(answer.median_ape)} in the median, {format_ratio(answer.worst_ape)} at worst "
                f"({format_count(answer.count)} {answer.counted}){covered}",
                style="bold",
            )
        )
        console.print(grid(_bands(answer)))


def _bands(answer: FileAnswer) -> Table:
    columns = [
        TableColumn("", lambda band: printable(band.name)),
        TableColumn(answer.counted, lambda band: format_count(band.count), is_figure=True),
        TableColumn("mean", lambda band: format_ratio(band.mape), is_figure=True),
        TableColumn("median", lambda band: format_ratio(band.median_ape), is_figure=True),
    ]
    if answer.coverage90 is not None:
        columns.append(TableColumn("within 90 %", _covered, is_figure=True))
    for name in answer.by[0].beside if answer.by else ():
        columns.append(
            TableColumn(printable(name), lambda band, name=name: format_ratio(band.beside[name]), is_figure=True)
        )
    return Table(tuple(columns), answer.by)


def _covered(band: Band) -> str:
    return "" if band.coverage90 is None else format_ratio(band.coverage90)
