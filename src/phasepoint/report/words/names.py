"""Names from traces and file systems, made safe to show: they are text, never markup and never terminal commands.

Shares as bars of block characters, an eighth of a character fine.

Its own file: whatever prints anything imports it, recordings and error messages too.
"""

import unicodedata

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def share_bar(share: float, width: int) -> str:
    """A bar of at most `width` characters; what is above 0 shows."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0 and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Unicode categories that steer a terminal or reorder text: control, format (bidi), surrogate, separators."""


def printable(name: str) -> str:
    """The name with every character that could steer a terminal written as an escape: `\\x1b` for ESC."""
    if name.isascii() and name.isprintable():
        return name
    return "".join(_escape(ord(c)) if unicodedata.category(c) in _UNSAFE else c for c in name)


def shorten(name: str, width: int) -> str:
    """The name in at most `width` characters; the middle gives way, since ends tell ops apart (`fusion.1234`)."""
    name = printable(name)
    if len(name) <= width:
        return name
    if width <= 1:
        return "…"[:width]
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def _escape(code: int) -> str:
    """A character as Python writes it in a literal, by its number: `\\x1b`, `\\u202e`."""
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
