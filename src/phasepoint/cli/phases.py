"""`phasepoint phases`."""

import typer

from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Method, RunPath


def phases(path: RunPath, *, method: Method = DEFAULT_METHOD, as_json: AsJson = False) -> None:
    """List the phases of a run: classes of steps that behave alike, when they recur and what stands for them."""
    from phasepoint.cli.console import result_console, write_notes
    from phasepoint.cli.opening import open_summary

    run, result = open_summary(path, method, say_empty=False)
    write_notes(run.problems)
    if as_json:
        from phasepoint.report.documents import phases_document, to_json

        typer.echo(to_json("phases", phases_document(result)))
        return
    from phasepoint.report.terminal import render_phases

    render_phases(result, result_console())
