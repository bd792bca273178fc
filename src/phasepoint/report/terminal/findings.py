"""Findings in the terminal: what could be won, how, and where to look."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from phasepoint.core.units import format_ps, format_ratio
from phasepoint.findings.finding import Findings, RankedFinding
from phasepoint.report.words.names import printable

MOST_FIRST = 3
"""Findings that a summary names."""


def render_first(found: Findings, console: Console) -> None:
    """Print the first findings, a line each."""
    for finding in [f for f in found.findings if f.low_ps][:MOST_FIRST]:
        worth = f"{format_ps(finding.saved_ps)} ({format_ratio(finding.share)})"
        console.print(
            Text.assemble((f"{worth:>18}  ", "bold"), (f"{finding.code}  ", "cyan"), printable(finding.title))
        )


def render_findings(found: Findings, console: Console) -> None:
    """Print findings, most recoverable time first; then what could not be judged, and what is clear."""
    console.print(Text(printable(found.verdict.text), style="bold"))
    console.print()
    if found.not_enough is not None and found.not_enough.text not in found.verdict.text:
        console.print(Text(printable(f"Not enough to judge: {found.not_enough.text}."), style="bold"))
        console.print(Padding(Text.assemble(("do: ", "dim"), printable(found.not_enough.remedy)), (0, 0, 0, 3)))
        console.print()
    elif not found.findings:
        console.print(Text("No rule found anything that would win 0.5 % of the run's time."))
    for number, finding in enumerate(found.findings, 1):
        if number > 1:
            console.print()
        _print_finding(number, finding, console)
    if found.unavailable:
        console.print()
        console.print(Text("Not judged", style="bold"))
        for one in found.unavailable:
            console.print(Text.assemble((f"{one.code}  ", "cyan"), printable(one.reason)))
    if found.clear:
        console.print()
        console.print(Text.assemble(("Clear  ", "bold"), (", ".join(found.clear), "dim")))


def _print_finding(number: int, finding: RankedFinding, console: Console) -> None:
    console.print(Text.assemble((f"{number}. ", "bold"), (printable(finding.title), "bold")))
    where = f"in {printable(finding.phase)}" if finding.phase else ""
    facts = [fact for fact in (_worth(finding), where, f"{finding.confidence} confidence") if fact]
    console.print(Padding(Text.assemble((finding.code, "cyan"), "  ", " · ".join(facts)), (0, 0, 0, 3)))
    for label, text in (("do", finding.remedy), ("unless", finding.wrong_if)):
        console.print(Padding(Text.assemble((f"{label}: ", "dim"), printable(text)), (0, 0, 0, 3)))
    if finding.layers:
        names = ", ".join(printable(name) for name in finding.layers[:5])
        console.print(Padding(Text.assemble(("in: ", "dim"), names), (0, 0, 0, 3)))
    for evidence in finding.evidence:
        console.print(Padding(Text.assemble(("see: ", "dim"), printable(evidence.text)), (0, 0, 0, 3)))
        console.print(Padding(Text(f"phasepoint sql RUN {_quoted(evidence.query)}", style="dim"), (0, 0, 0, 8)))


def _worth(finding: RankedFinding) -> str:
    """What it wins, in words; nothing for one that is told for another reason."""
    if not finding.alone_ps:
        return ""
    interval = f"{format_ps(finding.low_ps)} to {format_ps(finding.high_ps)}"
    if not finding.low_ps:
        return f"may win up to {format_ps(finding.high_ps)}, or nothing: too little was seen"
    worth = f"wins {format_ps(finding.saved_ps)} ({format_ratio(finding.share)} of the run; {interval})"
    if finding.alone_ps > finding.saved_ps:
        worth += f", {format_ps(finding.alone_ps)} if it were done alone"
    return worth


def _quoted(query: str) -> str:
    """A query as a shell takes it, in the quotes that it does not hold."""
    if '"' in query and "'" not in query:
        return f"'{query}'"
    escaped = query.replace('"', '\\"')
    return f'"{escaped}"'
