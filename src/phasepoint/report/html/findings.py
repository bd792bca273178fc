"""What to do about it: the first three findings at the top, each unfolds to its evidence; the others below them.

Findings come as the JSON of `phasepoint findings RUN --json`; a page without them leaves the sections out.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from phasepoint.core.units import PS_PER_S, format_ps, format_ratio
from phasepoint.report.html.markup import Content, Markup, element, join
from phasepoint.summary.types import RunSummary

FIRST = 3
"""Findings shown at once."""

_SECTION_OF_TABLE = {
    "breakdowns": "where-time-went",
    "checkpoints": "noticed",
    "conversions": "not-seen",
    "counters": "run-over-time",
    "gaps": "not-seen",
    "hints": "run-over-time",
    "steps": "run-over-time",
    "windows": "run-over-time",
}
"""Where the page shows what stands in a table; the other tables are drawn per phase."""

Finding = Mapping[str, Any]


def findings_section(summary: RunSummary, findings: Mapping[str, Any] | None) -> Markup:
    """The first findings, the others folded below them, and the rules that could not judge."""
    if findings is None:
        return Markup("")
    anchors = {phase.name: f"phase-{phase.id}" for phase in summary.phases}
    blocks: list[Content] = [
        _finding(index, one, summary.run, anchors) for index, one in enumerate(findings["findings"], 1)
    ]
    first, more = blocks[:FIRST], blocks[FIRST:]
    if not first:
        first.append(element("p", "No rule found time that could be won.", class_="dim"))
    if more:
        title = element("summary", f"{len(more)} more finding{'s' if len(more) > 1 else ''}")
        first.append(element("details", title, *more, class_="more"))
    if findings["unavailable"]:
        first.append(_unavailable(findings["unavailable"]))
    return element(
        "section",
        element("h2", "What to change ", element("small", "time that could be won, and its share of the run")),
        *first,
        id="findings",
    )


def _finding(index: int, one: Finding, run: str, anchors: Mapping[str, str]) -> Markup:
    share = f" · {format_ratio(one['share'])}"
    # A finding may be worth telling and win no time by itself: that too little was recorded, say.
    win = element("span", element("strong", _seconds(one["seconds"])), share, class_="win") if one["seconds"] else ""
    title = element("span", one["title"], class_="title")
    head = element("summary", title, win, element("span", one["remedy"], class_="remedy"))
    rows = _facts(one, anchors)
    evidence = [element("li", *_evidence(row, run, one.get("phase"), anchors)) for row in _listed(one.get("evidence"))]
    if evidence:
        rows.append(element("div", element("dt", "evidence"), element("dd", element("ul", *evidence))))
    inside = element("dl", *rows, class_="facts")
    return element("details", head, inside, class_="finding", id=f"finding-{index}")


def _facts(one: Finding, anchors: Mapping[str, str]) -> list[Markup]:
    """The lines above the evidence; what a finding does not say has no line."""
    facts: list[tuple[str, Content]] = [("could be won", _interval(one)), ("rule", element("code", one["code"]))]
    if one.get("phase"):
        anchor = anchors.get(one["phase"])
        facts.append(("phase", element("a", one["phase"], href=f"#{anchor}") if anchor else one["phase"]))
    if one.get("layers"):
        facts.append(("layers", join([element("code", layer) for layer in one["layers"]], ", ")))
    facts += [(name.replace("_", " "), one[name]) for name in ("confidence", "wrong_if") if one.get(name)]
    return [element("div", element("dt", name), element("dd", content)) for name, content in facts]


def _interval(one: Finding) -> str:
    low, high = _seconds(one["seconds_low"]), _seconds(one["seconds_high"])
    return f"{_seconds(one['seconds'])} (95 % interval {low} – {high}), {format_ratio(one['share'])} of the run"


def _seconds(value: float) -> str:
    return format_ps(value * PS_PER_S)


def _listed(evidence: Any) -> Sequence[Any]:
    return evidence if isinstance(evidence, list | tuple) else ([evidence] if evidence else [])


def _evidence(row: Any, run: str, phase: str | None, anchors: Mapping[str, str]) -> list[Content]:
    """One row of evidence: what it shows, where on this page, and the query that prints it."""
    if not isinstance(row, Mapping):
        return [str(row)]
    parts: list[Content] = [str(row.get("text", ""))]
    target = _SECTION_OF_TABLE.get(str(row.get("table", ""))) or anchors.get(phase or "")
    if target:
        parts += [" ", element("a", "show", href=f"#{target}", aria_label=f"show: {row.get('text', '')}")]
    if row.get("query"):
        command = f"phasepoint sql {shlex.quote(run)} {shlex.quote(str(row['query']))}"
        parts.append(element("div", element("code", command, data_copy=""), class_="query"))
    return parts


def _unavailable(rules: Sequence[Mapping[str, Any]]) -> Markup:
    rows = (element("div", element("dt", element("code", one["code"])), element("dd", one["reason"])) for one in rules)
    title = element("summary", f"{len(rules)} rule{'s' if len(rules) > 1 else ''} could not judge this run")
    return element("details", title, element("dl", *rows, class_="facts"), class_="more")
