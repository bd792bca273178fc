"""`phasepoint replay compact`."""

from typing import Annotated

import typer

from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Method, RunPath

Budget = Annotated[str, typer.Option(metavar="SHARE", help="Steps that may be used: 5% or 0.05 of the run's.")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Of the choice: another seed, other windows.")]
Top = Annotated[int, typer.Option(metavar="N", min=1, help="Windows shown.")]


def compact(
    path: RunPath,
    *,
    budget: Budget = "5%",
    seed: Seed = 0,
    method: Method = DEFAULT_METHOD,
    top: Top = 20,
    as_json: AsJson = False,
) -> None:
    """Choose the windows that stand for a run, and say what they alone tell of the whole: phasepoint replay compact RUN

    Time and categories with 95 % intervals, beside what was recorded.
    """
    from phasepoint.cli.console import busy, result_console, write_notes
    from phasepoint.cli.opening import open_analysis
    from phasepoint.replay.compact import compact_run

    share = _share(budget)
    analysis = open_analysis(path, method)
    with busy("choosing windows"):
        found = compact_run(analysis, budget=share, seed=seed)
    write_notes((*analysis.run.problems, *found.notes))
    if as_json:
        from phasepoint.report.documents import to_json
        from phasepoint.report.replay_compact_document import compact_document

        typer.echo(to_json("replay compact", compact_document(found)))
        return
    from phasepoint.report.replay_compact_terminal import render_compact

    render_compact(found, result_console(), top=top)


def _share(text: str) -> float:
    """`5%` or `0.05` as 0.05."""
    from phasepoint.cli.ratios import ratio_option
    from phasepoint.core.errors import UsageError

    share = ratio_option("--budget", text, most=1)
    if not share:
        raise UsageError(f"--budget {text}: expected a share of the run's steps above 0, such as 5% or 0.05")
    return share
