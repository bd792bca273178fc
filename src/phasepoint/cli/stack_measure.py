"""`phasepoint stack measure`."""

from typing import Annotated

import typer

from phasepoint.cli.options import AsJson
from phasepoint.core.units import format_counted


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
    from phasepoint.cli.console import busy, result_console
    from phasepoint.stack.leveled import choose_levels
    from phasepoint.stack.measured_command import measure_command

    chosen = choose_levels(levels.split(","))
    with busy(f"running {format_counted(len(chosen) * repeats, 'process', 'processes')}"):
        regions = measure_command(command, levels=chosen, repeats=repeats, warmups=warmups, framework=framework)
    if as_json:
        from phasepoint.report.documents import to_json

        typer.echo(to_json("stack measure", {"command": command, "regions": regions}))
    else:
        from phasepoint.report.leveled_terminal import render_measurement

        for region in regions:
            render_measurement(region, result_console(), top=top)
