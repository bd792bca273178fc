"""Times of the Chrome trace format that are not plain decimals → integer picoseconds, exactly."""

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

_MOST_DIGITS = 30
"""Above the decimal point; more are no time, and take memory as they are written out."""


def exact_ps(text: bytes) -> int | None:
    """Microseconds as text (`4373768380195.680`, `1.2e3`, quoted or not) in ps, of any size.

    Nothing goes through a float; what is below the picosecond is rounded half to even. None for what is no number.
    """
    try:
        number = Decimal(text.decode("ascii").strip().strip('"'))
        if not number.is_finite() or number.adjusted() > _MOST_DIGITS:
            return None
        return int((number * 1_000_000).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, UnicodeDecodeError):
        return None
