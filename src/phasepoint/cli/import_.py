"""`phasepoint import`."""

from typing import Annotated

import typer

from phasepoint.cli.options import AsJson


def import_(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Traces, packed with gzip or not.")],
    out: Annotated[str, typer.Option("--out", metavar="RUN", help="The run to create.")],
    as_json: AsJson = False,
) -> None:
    """Turn traces of other profilers into a run: Kineto's JSON (torch.profiler) and XPlane (jax.profiler)."""
    from phasepoint.cli.console import write_notes
    from phasepoint.cli.opening import progress_bar
    from phasepoint.core.units import format_count
    from phasepoint.sources.importing import import_traces

    with progress_bar("reading traces") as advance:
        imported = import_traces(files, out, progress=advance)
    if as_json:
        from phasepoint.report.documents import to_json

        typer.echo(to_json("import", {"run": out, "files": imported}))
        return
    for one in imported:
        write_notes([f"{one.path}: {one.problem}"] if one.problem else [])
        steps = f"{format_count(one.steps)} steps" if one.steps else "no marked step: the whole file is one"
        typer.echo(
            f"{one.path}: {one.format}, host {one.host}, {steps}; {format_count(one.events)} events = "
            f"{format_count(one.spans)} spans + {format_count(one.ignored)} ignored + "
            f"{format_count(one.dropped)} dropped; {format_count(one.orphans)} without a launch"
        )
    typer.echo(f"phasepoint summary {out}")
