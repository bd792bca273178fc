"""`phasepoint summary`, `phases`, `findings` and `explain`: what a run's time went into, and what could be won."""

from typing import Annotated

import typer

from phasepoint.cli.console import announce, check_output, result_console, write_document, write_notes, write_text
from phasepoint.cli.opening import open_analysis, refuse_shortfalls
from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Force, Method, Output, RunPath
from phasepoint.core.errors import FindingError


def phases(path: RunPath, *, method: Method = DEFAULT_METHOD, as_json: AsJson = False) -> None:
    """List the phases of a run: classes of steps that behave alike, when they recur and what stands for them."""
    from phasepoint.findings.judge import summarize_analysis

    analysis = open_analysis(path, method, say_empty=False)
    result = summarize_analysis(analysis)[0]
    write_notes(analysis.run.problems)
    if as_json:
        from phasepoint.report.documents import phases_document

        write_document("phases", phases_document(result))
        return
    from phasepoint.report.terminal.summary import render_phases

    render_phases(result, result_console())


def summary(path: RunPath, *, method: Method = DEFAULT_METHOD, as_json: AsJson = False) -> None:
    """Say what a run's time went into.

    The first line is the verdict: what limits the run, and what to do. Below it: what would win most (all of it:
    `phasepoint findings`), the phases in time, where the time went with 95 % intervals, the ops behind it, what was
    not seen, and what recording cost.
    """
    from phasepoint.findings.judge import summarize_analysis

    result, found = summarize_analysis(open_analysis(path, method, say_empty=False))
    if as_json:
        write_document("summary", result)
        return
    from phasepoint.report.terminal.summary import render_summary

    render_summary(result, result_console(), found)


Code = Annotated[str | None, typer.Argument(metavar="CODE", help="A finding's code; all of them if left out.")]


def explain(code: Code = None, *, output: Output = None, force: Force = False, as_json: AsJson = False) -> None:
    """Explain a finding: what it means, its formula, its thresholds and why, what to do, and when it is wrong."""
    from phasepoint.findings.table import RULES, explain_all, explain_rule, find_rule

    if output is not None:
        check_output(output, force=force)
        text = explain_all() if code is None else explain_rule(code)
        announce("explain", [(output, write_text(output, [text], force=force))], as_json=as_json, more={})
        return
    rules = RULES if code is None else (find_rule(code),)
    if as_json:
        pages = [{"code": rule.code, "page": explain_rule(rule.code)} for rule in rules]
        write_document("explain", {"rules": pages})
        return
    from rich.markdown import Markdown

    result_console().print(Markdown("\n".join(explain_rule(rule.code) for rule in rules)))


FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="CODE",
        help="End with exit code 14 if this is found; may be repeated. `any`: whatever is found about the job.",
    ),
]


def findings(
    path: RunPath, *, method: Method = DEFAULT_METHOD, fail_on: FailOn = None, as_json: AsJson = False
) -> None:
    """Say what could be won in a run, and how: causes of lost time, the most recoverable first.

    What a code means: `phasepoint explain CODE`. As a gate: `phasepoint findings RUN --fail-on INPUT-STALL`.
    """
    refused = _codes(fail_on or [])
    analysis = open_analysis(path, method, say_empty=False)
    from phasepoint.findings.judge import judge_analysis

    found = judge_analysis(analysis)
    if as_json:
        from phasepoint.report.documents import findings_document

        write_document("findings", findings_document(found))
    else:
        from phasepoint.report.terminal.findings import render_findings

        render_findings(found, result_console())
    unjudged = [one for one in found.unavailable if one.code in refused]
    write_notes(tuple(f"--fail-on {one.code}: this run cannot be judged: {one.reason}" for one in unjudged))
    hits = [one.code for one in found.findings if one.code in refused]
    if hits:
        raise FindingError(f"{', '.join(dict.fromkeys(hits))} found in {path}, which --fail-on refuses")
    if fail_on:
        refuse_shortfalls(f"--fail-on {' '.join(fail_on)}", [(path, found.not_enough)])


def _codes(wanted: list[str]) -> set[str]:
    """The codes meant; each must be a rule's, so that a misspelt gate does not pass for ever.

    `any` is of the job: how much was recorded is no fault of it, and a gate that wants to know names that code.
    """
    from phasepoint.findings.table import RULES

    if any(code.lower() == "any" for code in wanted):
        return {rule.code for rule in RULES if rule.of_job} | _named(wanted)
    return _named(wanted)


def _named(wanted: list[str]) -> set[str]:
    from phasepoint.findings.table import find_rule

    return {find_rule(code).code for code in wanted if code.lower() != "any"}
