"""`phasepoint report`."""

from typing import Annotated

import typer

from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Force, Method, Output, RunPath

ShowIt = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]


def report(
    path: RunPath,
    *,
    output: Output = None,
    method: Method = DEFAULT_METHOD,
    show: ShowIt = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the summary with its timeline as one HTML file, which works offline (default: RUN/report.html)."""
    from phasepoint.cli.opening import local_folder, open_summary
    from phasepoint.cli.output import announce, check_output, write_text

    target = output or local_folder(path) / "report.html"
    check_output(target, force=force)
    run, summary = open_summary(path, method)
    from phasepoint.phases.timeline import build_timeline
    from phasepoint.report.html import summary_html

    size_bytes = write_text(target, [summary_html(summary, build_timeline(run, summary))], force=force)
    announce("report", [(target, size_bytes)], as_json=as_json, more={"run": path})
    if show:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())
