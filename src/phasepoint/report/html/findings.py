"""What to do about it: the first three findings at the top, each unfolds to its evidence; the others below them.

Findings come as the JSON of `phasepoint findings RUN --json`; a page without them leaves the sections out.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from phasepoint.core.units import PS_PER_S, format_ps, format_ratio
from phasepoint.report.words.markup import Content, Markup, element, facts, join, section
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
    unavailable = findings["unavailable"]
    if unavailable:
        title = element(
            "summary", f"{len(unavailable)} rule{'s' if len(unavailable) > 1 else ''} could not judge this run"
        )
        rules = facts((element("code", one["code"]), one["reason"]) for one in unavailable)
        first.append(element("details", title, rules, class_="more"))
    return section("What to change", "time that could be won, and its share of the run", *first, anchor="findings")


def _finding(index: int, one: Finding, run: str, anchors: Mapping[str, str]) -> Markup:
    share = f" · {format_ratio(one['share'])}"
    # A finding may be worth telling and win no time by itself (that too little was recorded, say), or none for sure.
    win: Content = ""
    if one["seconds_low"]:
        win = element("span", element("strong", _seconds(one["seconds"])), share, class_="win")
    elif one["seconds"]:
        win = element("span", f"up to {_seconds(one['seconds_high'])}, or nothing", class_="win")
    title = element("span", one["title"], class_="title")
    head = element("summary", title, win, element("span", one["remedy"], class_="remedy"))
    said = _facts(one, anchors)
    rows = one.get("evidence") or []
    listed = rows if isinstance(rows, list | tuple) else [rows]
    evidence = [element("li", *_evidence(row, run, one.get("phase"), anchors)) for row in listed]
    if evidence:
        said.append(("evidence", element("ul", *evidence)))
    return element("details", head, facts(said), class_="finding", id=f"finding-{index}")


def _facts(one: Finding, anchors: Mapping[str, str]) -> list[tuple[Content, Content]]:
    """The lines above the evidence; what a finding does not say has no line."""
    seconds, low, high = (_seconds(one[name]) for name in ("seconds", "seconds_low", "seconds_high"))
    won = f"{seconds} (95 % interval {low} – {high}), {format_ratio(one['share'])} of the run"
    won = won if one["seconds_low"] else f"up to {high}, or nothing: too little was seen"
    said: list[tuple[Content, Content]] = [("could be won", won), ("rule", element("code", one["code"]))]
    if one.get("phase"):
        anchor = anchors.get(one["phase"])
        said.append(("phase", element("a", one["phase"], href=f"#{anchor}") if anchor else one["phase"]))
    if one.get("layers"):
        said.append(("layers", join([element("code", layer) for layer in one["layers"]], ", ")))
    return said + [(name.replace("_", " "), one[name]) for name in ("confidence", "wrong_if") if one.get(name)]


def _seconds(value: float) -> str:
    return format_ps(value * PS_PER_S)


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
