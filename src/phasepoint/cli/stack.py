"""`phasepoint stack` and `stack measure`."""

from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.console import busy, result_console, write_csv, write_document, write_notes
from phasepoint.cli.opening import open_converted, progress_bar
from phasepoint.cli.options import AsCsv, AsJson, RayAddress, RunPath, Workers
from phasepoint.core.errors import UsageError
from phasepoint.core.units import format_counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phasepoint.stack.analyses.table import StackAnalysis


def measure(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="The script to run and its arguments.")],
    *,
    levels: Annotated[
        str, typer.Option(metavar="M,L,K,C", help="Levels: model, layers, ops and kernels, counters.")
    ] = "M,L,K",
    repeats: Annotated[int, typer.Option(min=1, help="Processes at each level.")] = 3,
    warmups: Annotated[int, typer.Option(min=0, help="First runs of each process that do not count.")] = 1,
    framework: Annotated[
        str | None, typer.Option(metavar="NAME", help="torch or jax, where the script imports both.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Layers and ops shown.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Measure a script at several levels: phasepoint stack measure -- python infer.py

    The script runs once for each level and repeat, in turns, and marks its work by `with phasepoint.stack.region():` or
    calls phasepoint.stack.measure. Model latency is that of the runs with no profiler, a layer's that of the runs with
    layers alone.
    """
    from phasepoint.measure.command import measure_command
    from phasepoint.measure.measure import choose_levels

    chosen = choose_levels(levels.split(","))
    with busy(f"running {format_counted(len(chosen) * repeats, 'process', 'processes')}"):
        regions = measure_command(command, levels=chosen, repeats=repeats, warmups=warmups, framework=framework)
    if as_json:
        write_document("stack measure", {"command": command, "regions": regions})
    else:
        from phasepoint.report.terminal.stack import render_measurement

        for region in regions:
            render_measurement(region, result_console(), top=top)


Analysis = Annotated[
    str | None,
    typer.Option("--analysis", "-a", metavar="NAME", help="Name or code: device-time, A11. Left out: list them all."),
]


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
    from phasepoint.stack.analyses.table import ANALYSES, analyse, find_analysis

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; give one")
    if analysis is None:
        _list(ANALYSES, as_json=as_json)
        return
    find_analysis(analysis)  # a wrong name fails before the run is read
    run = open_converted(path)
    with progress_bar("analysing hosts") as advance:
        table = analyse(run, analysis, workers=workers, ray_address=ray, progress=advance)
    write_notes((*run.problems, *table.notes))
    if as_json:
        from phasepoint.report.documents import stack_document

        write_document("stack", stack_document(table))
    elif as_csv:
        write_csv(table.rows)
    else:
        from phasepoint.report.terminal.stack import render_stack

        render_stack(table, result_console())


def _list(analyses: "Sequence[StackAnalysis]", *, as_json: bool) -> None:
    if as_json:
        rows = [{"name": one.name, "code": one.code, "title": one.title} for one in analyses]
        write_document("stack", {"analyses": rows})
        return
    for one in analyses:
        typer.echo(f"{one.code or '':4} {one.name:24} {one.title}")
