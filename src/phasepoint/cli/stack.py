"""`phasepoint stack`."""

from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.options import AsJson, RayAddress, RunPath, Workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phasepoint.stack.analyses import Analysis as Row

Analysis = Annotated[
    str | None,
    typer.Option("--analysis", "-a", metavar="NAME", help="Name or code: device-time, A11. Left out: list them all."),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")]


def stack(
    path: RunPath,
    *,
    analysis: Analysis = None,
    workers: Workers = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Analyse a run across the stack: model, layer, op, kernel and hardware counters.

    Without --analysis: which analyses there are. Measuring each level by itself: `phasepoint stack measure -- COMMAND`.
    """
    from phasepoint.cli.console import result_console, write_data, write_notes
    from phasepoint.core.errors import UsageError
    from phasepoint.stack.analyses import ANALYSES, analyse, find_analysis

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; give one")
    if analysis is None:
        _list(ANALYSES, as_json=as_json)
        return
    find_analysis(analysis)  # a wrong name fails before the run is read
    from phasepoint.cli.opening import open_converted, progress_bar

    run = open_converted(path)
    with progress_bar("analysing hosts") as advance:
        table = analyse(run, analysis, workers=workers, ray_address=ray, progress=advance)
    write_notes((*run.problems, *table.notes))
    if as_json:
        from phasepoint.report.documents import to_json
        from phasepoint.report.stack_document import stack_document

        typer.echo(to_json("stack", stack_document(table)))
    elif as_csv:
        from phasepoint.report.csv_text import csv_text

        write_data(csv_text(table.rows))
    else:
        from phasepoint.report.stack_terminal import render_stack

        render_stack(table, result_console())


def _list(analyses: "Sequence[Row]", *, as_json: bool) -> None:
    if as_json:
        from phasepoint.report.documents import to_json

        rows = [{"name": one.name, "code": one.code, "title": one.title} for one in analyses]
        typer.echo(to_json("stack", {"analyses": rows}))
        return
    for one in analyses:
        typer.echo(f"{one.code or '':4} {one.name:24} {one.title}")
