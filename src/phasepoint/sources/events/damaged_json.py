"""JSON files that end too early or hold what JSON does not allow: read up to the damage."""

import re
from typing import Any, TypeVar

import msgspec

Decoded = TypeVar("Decoded")

_NO_JSON = re.compile(rb"(?<=[:\[,\s])(?:NaN|-?Infinity|-?inf|nan)(?=[\s,\]}])")
_CONTROL = bytes(0x20 if code < 0x20 else code for code in range(256))
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|["{}\[\],]', re.DOTALL)
_PLACE = re.compile(r"\(byte (\d+)\)")
_CLOSING = {b"{": b"}", b"[": b"]"}


def read_json(data: bytes, shape: type[Decoded] | Any) -> tuple[Decoded, str | None]:
    """Decode JSON into a type; of a damaged file what stands before the damage.

    Args:
        data: the file.
        shape: the type.

    Returns:
        The value, and what was wrong with the file; None where nothing was.

    Raises:
        msgspec.DecodeError: nothing of it fits the type.
    """
    try:
        return _read_json(data, shape)
    except RecursionError as error:
        raise msgspec.DecodeError("values are nested too deep to be read") from error


def _read_json(data: bytes, shape: type[Decoded] | Any) -> tuple[Decoded, str | None]:
    try:
        return msgspec.json.decode(data, type=shape), None
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = str(error)
    mended = mend_json(data)
    try:
        return msgspec.json.decode(mended, type=shape), f"damaged JSON ({reason}), mended"
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        place = _PLACE.search(str(error))
        end = int(place[1]) if place else len(mended)
    value: Decoded = msgspec.json.decode(close_json(mended[:end]), type=shape)
    return value, f"damaged JSON ({reason}); what stands after byte {end} of {len(data)} is lost"


def mend_json(data: bytes) -> bytes:
    """The file with null in place of what is no number, without control characters and broken UTF-8."""
    text = data.decode("utf-8", "replace").encode() if not _is_utf8(data) else data
    return _NO_JSON.sub(b"null", text.translate(_CONTROL))


def close_json(data: bytes) -> bytes:
    """The beginning of a JSON text, cut after its last whole element of an array and closed.

    `{"rows": [{"a": 1}, {"a": 2, "b` → `{"rows": [{"a": 1}]}`: half a record would say what nobody wrote.
    """
    stack: list[bytes] = []
    whole = 0
    held: list[bytes] = []
    for match in _TOKEN.finditer(data):
        token = match[0]
        if token == b'"':  # a text that does not end
            break
        if token in _CLOSING:
            stack.append(token)
            continue
        if token in (b"}", b"]"):
            if not stack or _CLOSING[stack.pop()] != token:
                break
            end = match.end()
        elif token == b",":
            end = match.start()
        else:
            continue
        if not stack or stack[-1] == b"[" or b"[" not in stack:
            whole, held = end, stack[:]
    return data[:whole] + b"".join(_CLOSING[one] for one in reversed(held))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
