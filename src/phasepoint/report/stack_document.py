"""The JSON document of one analysis of the stack."""

from typing import Any

from phasepoint.stack.result import StackTable


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
