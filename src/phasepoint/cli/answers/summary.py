"""`phasepoint summary`.

`phasepoint phases`.
"""

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
    from phasepoint.report.terminal.summary import render_phases

    render_phases(result, result_console())


def summary(path: RunPath, *, method: Method = DEFAULT_METHOD, as_json: AsJson = False) -> None:
    """Say what a run's time went into.

    The first line is the verdict. Below it: what would win most (all of it: `phasepoint findings`), the phases in
    time, where the time went with 95 % intervals, the ops behind it, what was not seen, and what recording cost.
    """
    from phasepoint.cli.console import result_console
    from phasepoint.cli.opening import open_analysis
    from phasepoint.summary.summary import summarize

    analysis = open_analysis(path, method, say_empty=False)
    result = summarize(analysis)
    if as_json:
        from phasepoint.report.documents import to_json

        typer.echo(to_json("summary", result))
        return
    from phasepoint.findings.judge import judge_analysis
    from phasepoint.report.terminal.summary import render_summary

    render_summary(result, result_console(), judge_analysis(analysis))
