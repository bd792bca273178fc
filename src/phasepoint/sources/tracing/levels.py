"""JSON decoded a level at a time: a file of a million spans, decoded at once, takes ten times its size.

What stands below a level stays text (`msgspec.Raw`) until it is asked for. Values that are decoded already pass
through: what walks a file as text walks one that had to be decoded whole as well.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

_Read = TypeVar("_Read")

_LEVEL = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw] | str | int | float | bool | None)
_WHOLE = msgspec.json.Decoder()


def open_level(value: Any) -> Any:
    """A value whose members, if it is an object or a list, are still text."""
    return _LEVEL.decode(value) if isinstance(value, msgspec.Raw) else value


def decode_whole(value: Any) -> Any:
    """A value with all that is in it."""
    return _WHOLE.decode(value) if isinstance(value, msgspec.Raw) else value


def member(holder: Mapping[str, Any], key: str) -> Any:
    """A member of an object, one level of it; None where there is none."""
    return open_level(holder.get(key))


def read_levels(
    decode: Callable[[Any], tuple[Any, str | None]], read: Callable[[Any], _Read]
) -> tuple[_Read, str | None]:
    """What a function reads from a file as text; where that shows damage further in, from the file decoded whole.

    Args:
        decode: gives the file as a type, `msgspec.Raw` or `Any`, and what was wrong with it.
        read: takes that value, and opens it a level at a time.

    Returns:
        What `read` returned, and what was wrong with the file, None where nothing was.

    Raises:
        msgspec.DecodeError: nothing of the file can be read.
    """
    try:
        text, problem = decode(msgspec.Raw)
        return read(text), problem
    except (msgspec.DecodeError, UnicodeDecodeError):
        value, problem = decode(Any)
        return read(value), problem
