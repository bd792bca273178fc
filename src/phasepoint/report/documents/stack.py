"""The JSON documents of the stack's analyses."""

from typing import Any

from phasepoint.stack.analyses.overview import StackOverview
from phasepoint.stack.shard.shard import StackTable


def stack_document(table: StackTable) -> dict[str, Any]:
    """`analysis`, `code`, `title`, `columns` (name, unit, doc), `rows` and `notes`."""
    return {
        "analysis": table.name,
        "code": table.code,
        "title": table.title,
        "columns": [{"name": column.name, "unit": column.unit, "doc": column.doc} for column in table.columns],
        "rows": table.rows.to_pylist(),
        "notes": table.notes,
    }


def overview_document(overview: StackOverview | None) -> dict[str, Any] | None:
    """What a report shows of the stack: `host`, `windows`, `windows_kept`, and `tables` with their first rows and
    `rows_in_all`."""
    if overview is None:
        return None
    tables = [{**stack_document(one.table), "rows_in_all": one.rows} for one in overview.tables]
    return {
        "host": overview.host,
        "windows": overview.windows,
        "windows_kept": overview.windows_kept,
        "tables": tables,
    }
