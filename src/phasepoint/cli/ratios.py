"""Ratios on the command line: one way to write them, whatever the option."""

from phasepoint.core.errors import UsageError
from phasepoint.core.units import parse_ratio


def ratio_option(option: str, text: str, *, most: float | None = None, or_else: str = "") -> float:
    """The ratio that an option was given: `1%`, `1 %` and `0.01` are the same.

    Args:
        option: its name, for the message.
        text: what was given.
        most: the largest ratio that makes sense.
        or_else: what else the option takes, for the message.

    Raises:
        UsageError: it is none, or too large.
    """
    also = f", or {or_else}" if or_else else ""
    try:
        ratio = parse_ratio(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}{also}") from error
    if most is not None and ratio > most:
        raise UsageError(f"{option} {text}: expected a share of at most {most:.0%}, such as 1% or 0.01{also}")
    return ratio
