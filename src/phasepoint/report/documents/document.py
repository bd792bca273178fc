"""Results as JSON documents: one object with `version` and `kind` in front, the same for every command.

The layouts are documented in docs/cli.md; a field is added without a new version, never renamed or removed.
"""

import dataclasses
import datetime
import decimal
import json
import math
from collections.abc import Mapping
from typing import Any

from phasepoint.summary.types import RunSummary

DOCUMENT_VERSION = 1
"""Layout of every document whose content does not carry a version of its own."""


def to_json(kind: str, content: Any, *, indent: int | None = 2) -> str:
    """A JSON document: `{"version": 1, "kind": kind, …content's fields…}`.

    Args:
        kind: what the document holds: summary, phases, sql, export, …
        content: a mapping or a dataclass; its own `version`, if it has one, is the document's.
        indent: spaces per level, None for one line.

    Returns:
        ASCII text: names from traces cannot smuggle control characters into a terminal.
    """
    fields = plain(content)
    if not isinstance(fields, dict):
        raise TypeError(f"a document's content is a mapping or a dataclass, not {type(content).__name__}")
    version = fields.pop("version", DOCUMENT_VERSION)
    document = {"version": version, "kind": kind, **fields}
    return json.dumps(document, indent=indent, allow_nan=False)


def phases_document(summary: RunSummary) -> dict[str, Any]:
    """The part of a summary that `phasepoint phases --json` prints."""
    fields = ("run", "verdict", "method", "notes", "steps", "inside_ps", "reference_host", "phases", "strip")
    return {"version": summary.version, **{name: getattr(summary, name) for name in fields}}


def plain(value: Any) -> Any:
    """A value as JSON knows it: integers stay exact, NaN and infinities are null, unknown types are text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    # DuckDB adds int64 up as 128-bit integers, which arrive as decimals without a fraction.
    if isinstance(value, decimal.Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else plain(float(value))
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    item = getattr(value, "item", None)
    return plain(item()) if callable(item) else str(value)
