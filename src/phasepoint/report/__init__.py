"""Results to terminal, HTML, JSON, Chrome/Perfetto JSON and CSV. Nothing here computes a result.

Names are loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phasepoint.report.chrome import chrome_trace as chrome_trace
    from phasepoint.report.csv_tables import csv_tables as csv_tables
    from phasepoint.report.documents import to_json as to_json
    from phasepoint.report.html import summary_html as summary_html
    from phasepoint.report.terminal import render_phases as render_phases
    from phasepoint.report.terminal import render_summary as render_summary

_HOMES = {
    "chrome_trace": "chrome",
    "csv_tables": "csv_tables",
    "render_phases": "terminal",
    "render_summary": "terminal",
    "summary_html": "html",
    "to_json": "documents",
}

__all__ = ["chrome_trace", "csv_tables", "render_phases", "render_summary", "summary_html", "to_json"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"phasepoint.report.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'phasepoint.report' has no attribute {name!r}")
