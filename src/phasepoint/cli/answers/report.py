"""`phasepoint report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phasepoint.cli.console import announce, busy, check_output, is_ours, write_text
from phasepoint.cli.opening import local_folder, open_analysis, open_converted
from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Force, Method, Output, RunPath
from phasepoint.core.errors import PhasepointError, UsageError

if TYPE_CHECKING:
    from phasepoint.findings.finding import Findings
    from phasepoint.replay.fast_forward import FastForward
    from phasepoint.summary.analysis import Analysis
    from phasepoint.summary.types import RunSummary

FORMATS = ("html", "md")

ShowIt = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]
Format = Annotated[
    str, typer.Option("--format", metavar="NAME", help="html: the whole report; md: a short one for pull requests.")
]
AllMethods = Annotated[bool, typer.Option("--all-methods", help="Compare the slow phase methods too (seconds more).")]


def report(
    path: RunPath,
    *,
    output: Output = None,
    method: Method = DEFAULT_METHOD,
    form: Format = "html",
    all_methods: AllMethods = False,
    show: ShowIt = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the report as one HTML file, which works offline (default: RUN/report.html).

    With --format md a short report in Markdown is printed, or written to --output.
    """
    if form not in FORMATS:
        raise UsageError(f"no report format named {form!r}; the formats are {', '.join(FORMATS)}")
    target = output or (local_folder(path) / "report.html" if form == "html" else None)
    if target is not None:
        force = force or is_ours(target, path)
        check_output(target, force=force)
    text, document = _build(path, method, form, all_methods=all_methods)
    if target is None and not as_json:
        typer.echo(text, nl=False)
        return
    written: list[tuple[Path, int]] = []
    if target is not None:
        written.append((target, write_text(target, [text], force=force)))
    announce("report", written, as_json=as_json, more={"run": path, **document})
    if show and target is not None:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())


def _build(path: str, method: str, form: str, *, all_methods: bool) -> "tuple[str, dict[str, Any]]":
    """The report's text, and everything it is drawn from."""
    analysis = open_analysis(path, method)
    with busy("judging and drawing"):
        from phasepoint.findings.judge import summarize_analysis

        summary, found = summarize_analysis(analysis)
        if form == "html":
            return build_page(analysis, summary, found, all_methods=all_methods)
        from phasepoint.report.documents import fast_forward_document, findings_document
        from phasepoint.report.export.short import summary_markdown

        findings, forward = findings_document(found), _fast_forward(analysis)
        document = {"summary": summary, "findings": findings, "fast_forward": fast_forward_document(forward)}
        return summary_markdown(summary, findings, forward), document


def build_page(
    analysis: "Analysis", summary: "RunSummary", found: "Findings", *, all_methods: bool = False
) -> "tuple[str, dict[str, Any]]":
    """The HTML page of a run, and everything it is drawn from by name."""
    from phasepoint.report.documents import (
        fast_forward_document,
        findings_document,
        overview_document,
        tune_document,
    )
    from phasepoint.report.html.page import summary_html
    from phasepoint.report.words.wording import tell_checkpoints
    from phasepoint.stack.analyses.overview import build_overview
    from phasepoint.summary.details import build_details
    from phasepoint.summary.timeline import build_timeline
    from phasepoint.tune.outcome import build_tuning

    findings, forward = findings_document(found), _fast_forward(analysis)
    tell = tell_checkpoints(forward.checkpoints)
    timeline = build_timeline(analysis.run, summary, analysis, tell_checkpoint=tell)
    details = build_details(analysis, summary, every_method=all_methods)
    overview = build_overview(analysis.run, known={name: analysis.table(name) for name in ("steps", "spans")})
    document = {"summary": summary, "findings": findings, "timeline": timeline, "details": details}
    document |= {"stack": overview_document(overview), "fast_forward": fast_forward_document(forward)}
    tuning = build_tuning(analysis.run)
    if tuning is not None:
        document["tuning"] = tune_document(tuning.outcomes)
    page = summary_html(summary, timeline, findings, details, overview=overview, fast_forward=forward, tuning=tuning)
    return page, document


def _fast_forward(analysis: "Analysis") -> "FastForward":
    """What can be replayed, and the replays beside the run."""
    from phasepoint.replay.fast_forward import build_fast_forward, find_replays

    found, unread = find_replays(analysis.run.path)
    opened, problems = [], list(unread)
    for one in found:
        try:
            opened.append((one, open_converted(one.path)))
        except PhasepointError as error:
            problems.append(str(error))
    return build_fast_forward(analysis, opened, problems=problems)
