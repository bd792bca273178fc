"""`phasepoint report`."""

from pathlib import Path
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
    from phasepoint.cli.opening import open_summary
    from phasepoint.cli.output import announce, check_output, write_text

    target = output or _default_output(path)
    check_output(target, force=force)
    run, summary = open_summary(path, method)
    from phasepoint.phases.timeline import build_timeline
    from phasepoint.report.html import summary_html

    size_bytes = write_text(target, [summary_html(summary, build_timeline(run, summary))], force=force)
    announce("report", [(target, size_bytes)], as_json=as_json, more={"run": path})
    if show:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())


def _default_output(path: str) -> Path:
    """Inside a local run; beside the user for a remote one."""
    from phasepoint.cli.opening import is_remote

    return Path("report.html") if is_remote(path) else Path(path) / "report.html"
