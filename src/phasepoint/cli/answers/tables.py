"""`phasepoint sql`, `tables` and `export`: a run's tables for other questions and other tools."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.console import (
    announce,
    busy,
    check_output,
    is_ours,
    result_console,
    write_csv,
    write_document,
    write_notes,
    write_text,
)
from phasepoint.cli.opening import local_folder, open_analysis, open_converted
from phasepoint.cli.options import DEFAULT_METHOD, AsCsv, AsJson, Force, Method, Output, RunPath
from phasepoint.core.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from phasepoint.summary.analysis import Analysis

ReferenceFormat = Annotated[str, typer.Option("--format", "-f", metavar="NAME", help="text or md (Markdown).")]
OneTable = Annotated[str | None, typer.Argument(metavar="[TABLE]", help="One table; all of them if left out.")]


def tables(name: OneTable = None, format_name: ReferenceFormat = "text", as_json: AsJson = False) -> None:
    """Print the reference of a run's tables: every column with its type, its unit and what it holds."""
    from phasepoint.core.tables import TABLES, table_spec
    from phasepoint.report.export import tables_reference

    if format_name not in {"text", "md"}:
        raise UsageError(f"no format named {format_name!r}; the formats are text, md")
    specs = [table_spec(name)] if name else list(TABLES.values())
    if as_json:
        write_document("tables", tables_reference.as_document(specs))
    elif format_name == "md":
        typer.echo(tables_reference.as_markdown(specs), nl=False)
    else:
        tables_reference.render(specs, result_console())


Query = Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT; the tables are those of `phasepoint tables`.")]


def sql(path: RunPath, query: Query, *, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Ask a run's tables in SQL (DuckDB's dialect, read-only).

    Example: phasepoint sql runs/demo "select op, sum(self_ps) from ops group by op order by 2 desc limit 5"
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; give one of them")
    from phasepoint.store import run_sql

    run = open_converted(path)
    with busy("asking"):
        table = run_sql(run, query)
    write_notes(run.problems)
    if as_json:
        write_document("sql", _document(table), indent=None)
    elif as_csv:
        write_csv(table)
    else:
        from phasepoint.report.tables.terminal import render_rows

        render_rows(table, result_console())


def _document(table: "pa.Table") -> dict[str, object]:
    """Columns in order and rows as lists: a query may give two columns one name."""
    columns = [{"name": field.name, "type": str(field.type)} for field in table.schema]
    values = [column.to_pylist() for column in table.columns]
    return {"columns": columns, "rows": [list(row) for row in zip(*values, strict=True)]}


FORMATS = {
    "chrome": "trace.chrome.json",
    "perfetto": "trace.perfetto.json",
    "csv": "tables",
}
"""Formats, each with the name it writes to inside the folder `export/` of the run."""

ExportFormat = Annotated[str, typer.Option("--format", "-f", metavar="NAME", help="chrome, perfetto or csv.")]


def export(
    path: RunPath,
    format_name: ExportFormat,
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
    if format_name not in FORMATS:
        raise UsageError(f"no export format named {format_name!r}; the formats are {', '.join(FORMATS)}")
    target = output or local_folder(path) / "export" / FORMATS[format_name]
    targets = _check_targets(target, format_name, path, force=force)
    analysis = open_analysis(path, method)
    with busy(f"writing {target}"):
        written = _write(analysis, format_name, targets)
    write_notes(analysis.run.problems)
    announce("export", written, as_json=as_json, more={"run": path, "format": format_name})


def _check_targets(target: Path, format_name: str, run: str, *, force: bool) -> dict[str, Path]:
    """Every file that will be written, by name, none of them there yet but earlier exports (or --force)."""
    from phasepoint.report.export.csv_tables import CSV_TABLES

    targets = {name: target / f"{name}.csv" for name in CSV_TABLES} if format_name == "csv" else {"trace": target}
    for path in targets.values():
        check_output(path, force=force or is_ours(path, run))
    return targets


def _write(analysis: "Analysis", format_name: str, targets: dict[str, Path]) -> list[tuple[Path, int]]:
    """Write the files, which were checked."""
    from phasepoint.findings.judge import summarize_analysis

    summary = summarize_analysis(analysis)[0]
    if format_name == "csv":
        from phasepoint.report.export.csv_tables import csv_tables
        from phasepoint.report.tables import arrow_table
        from phasepoint.report.tables.text import csv_text

        tables = csv_tables(analysis.run, summary)
        text = {name: csv_text(arrow_table(table), for_spreadsheet=True) for name, table in tables.items()}
        return [(path, write_text(path, [text[name]], force=True)) for name, path in targets.items()]
    from phasepoint.report.export.chrome import chrome_trace
    from phasepoint.summary.timeline import build_timeline

    timeline = build_timeline(analysis.run, summary, analysis)
    chunks = chrome_trace(analysis, summary, timeline, perfetto=format_name == "perfetto")
    return [(targets["trace"], write_text(targets["trace"], chunks, force=True))]
