"""`phasepoint sql`.

`phasepoint tables`.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.options import AsCsv, AsJson, RunPath
from phasepoint.core.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

Format = Annotated[str, typer.Option("--format", "-f", metavar="NAME", help="text or md (Markdown).")]
OneTable = Annotated[str | None, typer.Argument(metavar="[TABLE]", help="One table; all of them if left out.")]


def tables(name: OneTable = None, format_name: Format = "text", as_json: AsJson = False) -> None:
    """Print the reference of a run's tables: every column with its type, its unit and what it holds."""
    from phasepoint.core.tables import TABLES, table_spec
    from phasepoint.report.export import tables_reference

    if format_name not in {"text", "md"}:
        raise UsageError(f"no format named {format_name!r}; the formats are text, md")
    specs = [table_spec(name)] if name else list(TABLES.values())
    if as_json:
        from phasepoint.report.documents import to_json

        typer.echo(to_json("tables", tables_reference.as_document(specs)))
    elif format_name == "md":
        typer.echo(tables_reference.as_markdown(specs), nl=False)
    else:
        from phasepoint.cli.console import result_console

        tables_reference.render(specs, result_console())


Query = Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT; the tables are those of `phasepoint tables`.")]


def sql(path: RunPath, query: Query, *, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Ask a run's tables in SQL (DuckDB's dialect, read-only).

    Example: phasepoint sql runs/demo "select op, sum(self_ps) from ops group by op order by 2 desc limit 5"
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; give one of them")
    from phasepoint.cli.console import busy, write_notes
    from phasepoint.cli.opening import open_converted
    from phasepoint.store import run_sql

    run = open_converted(path)
    with busy("asking"):
        table = run_sql(run, query)
    write_notes(run.problems)
    if as_json:
        from phasepoint.report.documents import to_json

        typer.echo(to_json("sql", _document(table), indent=None))
    elif as_csv:
        from phasepoint.cli.console import write_data
        from phasepoint.report.tables import arrow_table
        from phasepoint.report.tables.text import csv_text

        write_data(csv_text(arrow_table(table)))
    else:
        from phasepoint.cli.console import result_console
        from phasepoint.report.tables.terminal import render_rows

        render_rows(table, result_console())


def _document(table: "pa.Table") -> dict[str, object]:
    """Columns in order and rows as lists: a query may give two columns one name."""
    columns = [{"name": field.name, "type": str(field.type)} for field in table.schema]
    values = [column.to_pylist() for column in table.columns]
    return {"columns": columns, "rows": [list(row) for row in zip(*values, strict=True)]}
