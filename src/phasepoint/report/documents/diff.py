"""The JSON document of a comparison."""

from typing import Any

from phasepoint.stack.diff.result import COLUMNS, RunDiff


def diff_document(diff: RunDiff) -> dict[str, Any]:
    """`base`, `run`, `steps` (hint), `verdict`, `grown_ratio`, `named`, `columns`, `rows`, `notes` and `unrelated`."""
    return {
        "base": diff.base,
        "run": diff.run,
        "steps": diff.kind,
        "verdict": diff.verdict,
        "grown_ratio": diff.grown_ratio,
        "named": [row.name for row in diff.named],
        "columns": [{"name": column.name, "unit": column.unit, "doc": column.doc} for column in COLUMNS],
        "rows": diff.table().to_pylist(),
        "notes": diff.notes,
        "unrelated": diff.unrelated,
    }
