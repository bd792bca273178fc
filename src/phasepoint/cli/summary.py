"""`phasepoint summary`."""

import typer

from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Method, RunPath


def summary(path: RunPath, *, method: Method = DEFAULT_METHOD, as_json: AsJson = False) -> None:
    """Say what a run's time went into.

    The first line is the verdict. Below it: what would win most (all of it: `phasepoint findings`), the phases in
    time, where the time went with 95 % intervals, the ops behind it, what was not seen, and what recording cost.
    """
    from phasepoint.cli.console import result_console
    from phasepoint.cli.opening import open_analysis
    from phasepoint.phases.summary import summarize

    analysis = open_analysis(path, method, say_empty=False)
    result = summarize(analysis)
    if as_json:
        from phasepoint.report.documents import to_json

        typer.echo(to_json("summary", result))
        return
    from phasepoint.findings.judge import judge_analysis
    from phasepoint.report.terminal import render_summary

    render_summary(result, result_console(), judge_analysis(analysis))
