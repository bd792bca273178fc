"""Results to terminal, HTML, JSON, Chrome/Perfetto JSON and CSV. Nothing here computes a result."""

from typing import TYPE_CHECKING

from phasepoint.core.lazy import lazy_names

if TYPE_CHECKING:
    from phasepoint.report.documents import to_json
    from phasepoint.report.export.chrome import chrome_trace
    from phasepoint.report.export.csv_tables import csv_tables
    from phasepoint.report.html.page import summary_html
    from phasepoint.report.terminal.summary import render_phases, render_summary

__all__ = ["chrome_trace", "csv_tables", "render_phases", "render_summary", "summary_html", "to_json"]

__getattr__ = lazy_names(
    __name__,
    {
        "chrome_trace": ".export.chrome",
        "csv_tables": ".export.csv_tables",
        "render_phases": ".terminal.summary",
        "render_summary": ".terminal.summary",
        "summary_html": ".html.page",
        "to_json": ".documents",
    },
)
