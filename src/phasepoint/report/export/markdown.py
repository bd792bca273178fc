"""The report in short, as Markdown for a pull request: verdict, findings, where the time went, what recording cost."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from phasepoint.core.units import PS_PER_S, format_count, format_ps, format_ratio
from phasepoint.phases.clock.breakdown import Breakdown
from phasepoint.replay.fast_forward import FastForward
from phasepoint.report.words.names import printable
from phasepoint.report.words.wording import (
    category_name,
    cost_line,
    estimate_basis,
    headline,
    part_interval,
    replay_command,
    steps_line,
)
from phasepoint.summary.types import RunSummary

_MOST_FINDINGS = 5
_MOST_PHASES = 6

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!@&])")
"""What Markdown (and GitHub's, which notifies people by @name) gives a meaning; names are text."""


def summary_markdown(
    summary: RunSummary, findings: Mapping[str, Any] | None = None, fast_forward: FastForward | None = None
) -> str:
    """The Markdown text, ending in a newline.

    Args:
        summary: what to say.
        findings: the JSON of `phasepoint findings RUN --json`; without it the section is left out.
        fast_forward: what can be replayed; without it, or with no plan, that section is left out.
    """
    blocks = [f"**{_text(summary.verdict)}**", _text(headline(summary))]
    blocks += [_text(steps_line(summary))] if steps_line(summary) else []
    blocks += [f"> {_text(note)}" for note in summary.notes]
    if findings is not None:
        blocks.append(_findings(findings))
    if summary.inside_ps:
        blocks.append(_categories(summary.categories))
    if summary.phases:
        blocks.append(_phases(summary))
    if fast_forward is not None:
        blocks += _replays(fast_forward)
    blocks.append(_text(cost_line(summary.cost)))
    return "\n\n".join(blocks) + "\n"


def _findings(findings: Mapping[str, Any]) -> str:
    listed = findings["findings"]
    if not listed:
        return "No rule found time that could be won."
    rows = [
        (one["code"], one["title"], format_ps(one["seconds"] * PS_PER_S), format_ratio(one["share"]), one["remedy"])
        for one in listed[:_MOST_FINDINGS]
    ]
    table = _table(("finding", "what", "could be won", "share", "what to do"), "llrrl", rows)
    more = len(listed) - _MOST_FINDINGS
    return f"{table}\n\nand {more} more findings" if more > 0 else table


def _categories(breakdown: Breakdown) -> str:
    parts = [part for part in breakdown.parts if part.total_ps]
    rows = [(category_name(p.name), format_ratio(p.share), format_ps(p.total_ps), part_interval(p)) for p in parts]
    table = _table(("steps' time", "share", "time", "95 % interval"), "lrrl", rows)
    return f"{table}\n\n{_text(estimate_basis(breakdown))}"


def _phases(summary: RunSummary) -> str:
    rows = [
        (p.name, format_ratio(p.share), format_count(p.steps), format_ps(p.median_ps))
        for p in summary.phases[:_MOST_PHASES]
    ]
    table = _table(("phase", "share", "steps", "median step"), "lrrr", rows)
    more = len(summary.phases) - _MOST_PHASES
    return f"{table}\n\nand {more} smaller phases" if more > 0 else table


def _replays(found: FastForward) -> list[str]:
    """A line for each phase that can be replayed, and the command for the first."""
    plans = [row.plan for row in found.plans if row.plan is not None][:_MOST_PHASES]
    if not plans:
        return []
    rows = [
        (
            plan.phase,
            "the start" if plan.checkpoint is None else f"step {format_count(plan.first_step)}",
            format_count(plan.forward_steps),
            format_ps(plan.cost_ps),
            format_ratio(plan.ratio),
        )
        for plan in plans
    ]
    table = _table(("phase again", "from", "steps", "cost", "of the run"), "llrrr", rows)
    first = plans[0]
    return [table, f"    {replay_command(first.run, first.phase, found.command)}"]


def _table(heads: Sequence[str], sides: str, rows: Sequence[Sequence[str]]) -> str:
    marks = ["---:" if side == "r" else "---" for side in sides]
    lines = [heads, marks, *([_text(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _text(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", printable(" ".join(text.split())))
