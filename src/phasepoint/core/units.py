"""Picoseconds to text and back to nothing else: times become floats only here, on their way to a screen."""

# The units of time, by definition.
PS_PER_NS = 10**3  # ps
PS_PER_US = 10**6  # ps
PS_PER_MS = 10**9  # ps
PS_PER_S = 10**12  # ps
NS_PER_S = 10**9  # ns

_TIME_UNITS = (
    (86_400 * PS_PER_S, 86_400 * PS_PER_S, "d"),
    (3_600 * PS_PER_S, 3_600 * PS_PER_S, "h"),
    (120 * PS_PER_S, 60 * PS_PER_S, "min"),
    (PS_PER_S, PS_PER_S, "s"),
    (PS_PER_MS, PS_PER_MS, "ms"),
    (PS_PER_US, PS_PER_US, "µs"),
    (PS_PER_NS, PS_PER_NS, "ns"),
)


def format_ps(time_ps: int | float | None) -> str:
    """A duration with three significant figures and a unit: `format_ps(1_234_000_000) == "1.23 ms"`.

    None is shown as "–": not known.
    """
    if time_ps is None:
        return "–"
    if time_ps == 0:
        return "0 s"
    size = abs(time_ps)
    for least, unit_ps, unit in _TIME_UNITS:
        if size >= least:
            return f"{_three_figures(time_ps / unit_ps)} {unit}"
    return f"{_three_figures(time_ps)} ps"


def format_bytes(size_bytes: int | float | None) -> str:
    """A size in binary units with three significant figures: `format_bytes(1536) == "1.50 KiB"`."""
    if size_bytes is None:
        return "–"
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.0f} B" if unit == "B" else f"{_three_figures(value)} {unit}"
        value /= 1024
    raise AssertionError("unreachable: the last unit always matches")


def format_joules(energy_j: float) -> str:
    """An energy as meters and bills have it: `format_joules(4.5e6) == "1.25 kWh"`; below 0.1 Wh in joules."""
    for least_j, unit_j, unit in ((1e6, 3.6e6, "kWh"), (360.0, 3.6e3, "Wh")):
        if energy_j >= least_j:
            return f"{_three_figures(energy_j / unit_j)} {unit}"
    return f"{_three_figures(energy_j)} J"


def format_ratio(ratio: float | None) -> str:
    """A ratio 0–1 as percent: `format_ratio(0.123) == "12.3 %"`; None is "–"."""
    if ratio is None:
        return "–"
    percent = 100 * ratio
    return f"{percent:.1f} %" if abs(percent) < 99.95 else f"{percent:.0f} %"


def format_count(count: int | float | None) -> str:
    """A count with thousands separators: `format_count(1234567) == "1,234,567"`."""
    return "–" if count is None else f"{count:,.0f}"


def format_counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun: `format_counted(1, "step") == "1 step"`, `format_counted(1200, "step") == "1,200 steps"`.

    Args:
        count: how many.
        noun: of one.
        plural: of several, where it is not the noun with an s.
    """
    return f"{format_count(count)} {noun if count == 1 else plural or f'{noun}s'}"


def parse_ratio(text: str) -> float:
    """A ratio as people write it: `parse_ratio("1%") == parse_ratio("1 %") == parse_ratio("0.01") == 0.01`.

    Raises:
        ValueError: it is neither a ratio nor a percentage; it is negative; or it is above 1 without the sign, where 3
            may be meant for 3 % or for 300 %.
    """
    number = text.strip()
    percent = number.endswith("%")
    try:
        ratio = float(number.removesuffix("%").rstrip()) / (100 if percent else 1)
    except ValueError:
        ratio = float("nan")
    if not 0 <= ratio < float("inf"):
        raise ValueError("expected a share such as 1% or 0.01")
    if ratio > 1 and not percent:
        raise ValueError(f"expected a share such as 1% or 0.01; {number} percent is written {number}%")
    return ratio


def _three_figures(value: float) -> str:
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
