"""HTML from text: everything that is not written here goes through `escape`, so names can never become markup."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from phasepoint.report.words.names import printable


@dataclass(frozen=True)
class Markup:
    """HTML that is safe to put into a page as it is; only this module's functions and templates make it."""

    html: str


_PROSE = {"h1", "p", "li", "small", "dd"}

Content = str | Markup
"""Text, which is escaped where it is used, or markup, which is not."""


def escape(content: Content) -> str:
    """Content as HTML: text is escaped, control characters and all, markup is left alone."""
    return content.html if isinstance(content, Markup) else html.escape(printable(content), quote=True)


def element(tag: str, *content: Content, **attributes: str | float) -> Markup:
    """`<tag attributes>content</tag>`; `class_` is `class`, and `_` in a name stands for `-`.

    In running text a percent sign stays on the line of its number.
    """
    named = "".join(f' {_attribute_name(key)}="{escape(str(value))}"' for key, value in attributes.items())
    inside = "".join(map(escape, content))
    return Markup(f"<{tag}{named}>{inside.replace(' %', '&nbsp;%') if tag in _PROSE else inside}</{tag}>")


def join(parts: Iterable[Content], separator: str = "") -> Markup:
    """Contents one after another."""
    return Markup(escape(separator).join(escape(part) for part in parts))


def table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[Content]], *, label: str) -> Markup:
    """A table that scrolls sideways where it does not fit.

    Args:
        columns: title and `left` or `right` of every column.
        rows: cells, as many as columns.
        label: what the table holds, for screen readers.
    """
    sides = [side for _, side in columns]
    head = element("tr", *(element("th", title, class_=side, scope="col") for title, side in columns))
    body = [
        element("tr", *(element("td", cell, class_=side) for cell, side in zip(row, sides, strict=True)))
        for row in rows
    ]
    whole = element("table", element("thead", head), element("tbody", *body), aria_label=label)
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=label)


def swatch(colour: str) -> Markup:
    """A small square of a colour."""
    square = element("rect", width=10, height=10, rx=2, fill=colour)
    return element("svg", square, class_="swatch", width=10, height=10, aria_hidden="true")


def _attribute_name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")
