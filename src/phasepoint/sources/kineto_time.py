"""Times of the Chrome trace format (decimal microseconds, as text) → integer picoseconds, exactly."""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

_WORD = 1 << 64
_LARGEST_PS = 2**62
"""No time may be further from the origin than this (53 days), so that sums of times stay in range."""


def microseconds_to_ps(texts: Sequence[Any], *, offset_ps: int = 0) -> tuple[Int64s, NDArray[np.bool_]]:
    """Decimal microseconds to ps, plus an offset; nothing goes through a float.

    Args:
        texts: `[n]` numbers as bytes-like text (`b"4373768380195.680"`); empty where there is none.
        offset_ps: added to each, of any size; the sums must fit 2^62.

    Returns:
        `[n]` ps, and `[n]` whether there was a number in range; 0 where there was none.
    """
    texts = [bytes(text) for text in texts]
    try:
        return _read_all(texts, offset_ps)
    except pa.ArrowInvalid:  # quoted numbers, exponents, digits below the picosecond, or no numbers at all
        return _read_each(texts, offset_ps)


def least_microseconds_ps(texts: Sequence[Any]) -> int:
    """The earliest of the times, ps, of any size; 0 where there is none."""
    times = [time for text in texts if (time := _exact_ps(bytes(text))) is not None]
    return min(times, default=0)


def _read_all(texts: list[bytes], offset_ps: int) -> tuple[Int64s, NDArray[np.bool_]]:
    array = pa.array([text or None for text in texts], pa.binary()).cast(pa.string()).cast(pa.decimal128(38, 6))
    known = np.asarray(array.is_valid())
    words = np.frombuffer(array.buffers()[1], np.int64, count=2 * len(array)).reshape(-1, 2)
    low, high = words[:, 0].view(np.uint64), words[:, 1]
    # The sum is taken modulo 2^64, which is exact wherever the true sum fits; a float says whether it does.
    time_ps = (low + np.uint64(offset_ps % _WORD)).view(np.int64)
    rough_ps = high.astype(float) * _WORD + low.astype(float) + float(offset_ps)
    known &= np.abs(rough_ps) < _LARGEST_PS
    return np.where(known, time_ps, 0), known


def _read_each(texts: list[bytes], offset_ps: int) -> tuple[Int64s, NDArray[np.bool_]]:
    time_ps = np.zeros(len(texts), np.int64)
    known = np.zeros(len(texts), np.bool_)
    for i, text in enumerate(texts):
        exact = _exact_ps(text)
        if exact is not None and abs(exact + offset_ps) < _LARGEST_PS:
            time_ps[i], known[i] = exact + offset_ps, True
    return time_ps, known


def _exact_ps(text: bytes) -> int | None:
    try:
        number = Decimal(text.decode("ascii").strip().strip('"'))
        if not number.is_finite() or abs(number) > Decimal(10) ** 30:
            return None
        return int((number * 1_000_000).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, UnicodeDecodeError):
        return None
