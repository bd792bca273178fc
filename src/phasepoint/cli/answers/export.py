"""`phasepoint export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Force, Method, Output, RunPath
from phasepoint.core.errors import UsageError

if TYPE_CHECKING:
    from phasepoint.store import Run
    from phasepoint.summary.types import RunSummary

FORMATS = {
    "chrome": "trace.chrome.json",
    "perfetto": "trace.perfetto.json",
    "csv": "tables",
}
"""Formats, each with the name it writes to inside the folder `export/` of the run."""

Format = Annotated[str, typer.Option("--format", "-f", metavar="NAME", help="chrome, perfetto or csv.")]


def export(
    path: RunPath,
    format_name: Format,
    *,
    output: Output = None,
    method: Method = DEFAULT_METHOD,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a run for other tools.

    chrome: JSON for chrome://tracing and every tool that reads that format.
    perfetto: the same JSON with counters and sorted tracks, for ui.perfetto.dev.
    csv: a folder of tables (phases, ops by phase, ops of the run, windows), the unit in each column's name.
    """
    from phasepoint.cli.console import announce, busy, write_notes
    from phasepoint.cli.opening import local_folder, open_summary

    if format_name not in FORMATS:
        raise UsageError(f"no export format named {format_name!r}; the formats are {', '.join(FORMATS)}")
    target = output or local_folder(path) / "export" / FORMATS[format_name]
    targets = _check_targets(target, format_name, path, force=force)
    run, summary = open_summary(path, method)
    with busy(f"writing {target}"):
        written = _write(run, summary, format_name, targets)
    write_notes(run.problems)
    announce("export", written, as_json=as_json, more={"run": path, "format": format_name})


def _check_targets(target: Path, format_name: str, run: str, *, force: bool) -> dict[str, Path]:
    """Every file that will be written, by name, none of them there yet but earlier exports (or --force)."""
    from phasepoint.cli.console import check_output, is_ours
    from phasepoint.report.export.csv_tables import CSV_TABLES

    targets = {name: target / f"{name}.csv" for name in CSV_TABLES} if format_name == "csv" else {"trace": target}
    for path in targets.values():
        check_output(path, force=force or is_ours(path, run))
    return targets


def _write(run: "Run", summary: "RunSummary", format_name: str, targets: dict[str, Path]) -> list[tuple[Path, int]]:
    """Write the files, which were checked."""
    from phasepoint.cli.console import write_text

    if format_name == "csv":
        from phasepoint.report.export.csv_tables import csv_tables
        from phasepoint.report.tables import arrow_table
        from phasepoint.report.tables.text import csv_text

        tables = csv_tables(run, summary)
        text = {name: csv_text(arrow_table(table), for_spreadsheet=True) for name, table in tables.items()}
        return [(path, write_text(path, [text[name]], force=True)) for name, path in targets.items()]
    from phasepoint.report.export.chrome import chrome_trace
    from phasepoint.summary.timeline import build_timeline

    chunks = chrome_trace(run, summary, build_timeline(run, summary), perfetto=format_name == "perfetto")
    return [(targets["trace"], write_text(targets["trace"], chunks, force=True))]
