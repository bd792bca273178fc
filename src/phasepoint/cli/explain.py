"""`phasepoint explain`."""

from typing import Annotated

import typer

from phasepoint.cli.options import AsJson, Force, Output

Code = Annotated[str | None, typer.Argument(metavar="CODE", help="A finding's code; all of them if left out.")]


def explain(code: Code = None, *, output: Output = None, force: Force = False, as_json: AsJson = False) -> None:
    """Explain a finding: what it means, its formula, its thresholds and why, what to do, and when it is wrong."""
    from phasepoint.findings.explain import explain_all, explain_rule, find_rule
    from phasepoint.findings.rules import RULES

    if output is not None:
        from phasepoint.cli.output import announce, check_output, write_text

        check_output(output, force=force)
        text = explain_all() if code is None else explain_rule(code)
        announce("explain", [(output, write_text(output, [text], force=force))], as_json=as_json, more={})
        return
    rules = RULES if code is None else (find_rule(code),)
    if as_json:
        from phasepoint.report.documents import to_json

        pages = [{"code": rule.code, "page": explain_rule(rule.code)} for rule in rules]
        typer.echo(to_json("explain", {"rules": pages}))
        return
    from rich.markdown import Markdown

    from phasepoint.cli.console import result_console

    result_console().print(Markdown("\n".join(explain_rule(rule.code) for rule in rules)))
