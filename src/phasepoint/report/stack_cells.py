"""Values of a stack table as text: each by the unit that its column declares."""

from phasepoint.core.tables import Column
from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio
from phasepoint.report.names import shorten

_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_FORMATS = {"ps": format_ps, "bytes": format_bytes, "ratio": format_ratio}
_SCALED = ("flop/s", "bytes/s", "flop", "items/s")


def cell_text(column: Column, value: object, *, width: int = 60) -> str:
    """A value as it is shown: `1.23 ms`, `45.6 %`, `12.3 TFLOP/s`; null is `–`.

    Args:
        column: the value's column.
        value: the value.
        width: most characters of a text.
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return shorten(str(value), width)
    if column.unit in _FORMATS:
        return _FORMATS[column.unit](value)
    if column.unit in _SCALED:
        return _scaled(float(value), column.unit.replace("flop", "FLOP").replace("bytes", "B"))
    return format_count(value) if isinstance(value, int) else f"{value:.4g}"


def is_number(column: Column) -> bool:
    """Whether a column's values stand to the right."""
    import pyarrow as pa

    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def heading(column: Column) -> str:
    """A column's heading: its name without the unit, which each cell shows; a ratio keeps the word, beside its time."""
    name = "share" if column.name == "share_ratio" else column.name
    for suffix in ("_ps", "_bytes", "_flop_per_s", "_bytes_per_s"):
        if name.endswith(suffix) and name != suffix:
            name = name.removesuffix(suffix)
            break
    return name.replace("_", " ")


def _scaled(value: float, unit: str) -> str:
    for least, prefix in _SI:
        if abs(value) >= least:
            return f"{value / least:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
