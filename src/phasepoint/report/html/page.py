"""The report as one HTML file: works offline, loads nothing, runs only the script that is in it.

All figures are computed below this floor; the script (web/src, built into page.js) draws what it is given.
"""

import base64
import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from phasepoint.replay.fast_forward import FastForward
from phasepoint.report.html.breakdown import time_section
from phasepoint.report.html.data import script_data
from phasepoint.report.html.fast_forward import fast_forward_section
from phasepoint.report.html.findings import findings_section
from phasepoint.report.html.phases import near_section, phases_section
from phasepoint.report.html.sections import (
    environment_section,
    events_section,
    head_section,
    hosts_section,
    methods_section,
    not_seen_section,
    timeline_section,
)
from phasepoint.report.html.stack import stack_section
from phasepoint.report.html.tuning import tuning_section
from phasepoint.report.words.markup import Content, Markup, element, escape, join
from phasepoint.stack.analyses.overview import StackOverview
from phasepoint.summary.details import ReportDetails
from phasepoint.summary.timeline import Timeline
from phasepoint.summary.types import RunSummary
from phasepoint.tune.outcome import TuningShown


def summary_html(
    summary: RunSummary,
    timeline: Timeline | None = None,
    findings: Mapping[str, Any] | None = None,
    details: ReportDetails | None = None,
    *,
    overview: StackOverview | None = None,
    fast_forward: FastForward | None = None,
    tuning: TuningShown | None = None,
) -> str:
    """The page.

    Args:
        summary: what to say.
        timeline: of the same run (`phases.timeline.build_timeline`); without it only the strip is drawn.
        findings: the JSON of `phasepoint findings RUN --json`; without it the page gives no advice.
        details: of the same run (`phases.report_details.build_details`); without them phases are tables alone.
        overview: of the same run (`stack.overview.build_overview`); without it the page has no stack.
        fast_forward: of the same run (`replay.fast_forward.build_fast_forward`); without it the page has no replays.
        tuning: of the same run (`tune.outcome.build_tuning`); None where nothing was tuned.
    """
    sections: list[Content] = [
        head_section(summary, findings_section(summary, findings)),
        timeline_section(summary, timeline),
        tuning_section(tuning),
        phases_section(summary, details),
        time_section(summary),
        near_section(summary, details),
        fast_forward_section(summary, fast_forward),
        stack_section(overview),
        methods_section(details),
        events_section(summary, fast_forward.checkpoints if fast_forward else ()),
        hosts_section(summary),
        not_seen_section(summary),
        environment_section(summary),
    ]
    footer = element("footer", f"Phasepoint {version('phasepoint')} · summary version {summary.version}")
    data = element(
        "script", Markup(script_data(summary, timeline, details, overview)), type="application/json", id="data"
    )
    return page_html(summary.run, join([element("main", *sections), footer]), data)


def page_html(title: str, body: Markup, data: Markup | None = None) -> str:
    """A page; without `data` it runs no script."""
    style, script = _resource("page.css"), _resource("page.js") if data is not None else ""
    return _PAGE.format(
        policy=escape(_policy(style, script)),
        title=escape(f"{title} · Phasepoint"),
        style=style,
        body=body.html,
        data="" if data is None else f"{data.html}\n<script>{script}</script>",
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="Phasepoint">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
{data}
</body>
</html>
"""


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, and only this page's own style and script may be used."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _resource(name: str) -> str:
    return (files("phasepoint.report") / name).read_text(encoding="utf-8")
