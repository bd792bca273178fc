"""`phasepoint tables`."""

from typing import Annotated

import typer

from phasepoint.cli.options import AsJson
from phasepoint.core.errors import UsageError

Format = Annotated[str, typer.Option("--format", "-f", metavar="NAME", help="text or md (Markdown).")]
OneTable = Annotated[str | None, typer.Argument(metavar="[TABLE]", help="One table; all of them if left out.")]


def tables(name: OneTable = None, format_name: Format = "text", as_json: AsJson = False) -> None:
    """Print the reference of a run's tables: every column with its type, its unit and what it holds."""
    from phasepoint.core.tables import TABLES, table_spec
    from phasepoint.report import tables_reference

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
