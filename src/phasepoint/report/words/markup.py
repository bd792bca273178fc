"""HTML from text: everything that is not written here goes through `escape`, so names can never become markup."""

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass

from phasepoint.report.words.names import printable


@dataclass(frozen=True)
class Markup:
    """HTML that is safe to put into a page as it is; only this module's functions and templates make it."""

    html: str


_PROSE = {"h1", "p", "li", "small", "dd"}
"""Elements of running text."""

_UNIT = re.compile(r"(?<=\d) (?=(?:%|×|[nµm]?s|min|h|d|[KMGT]?i?B)(?!\w))")
"""The blank between a number and its unit."""

Content = str | Markup
"""Text, which is escaped where it is used, or markup, which is not."""


def escape(content: Content) -> str:
    """Content as HTML: text is escaped, control characters and all, markup is left alone."""
    return content.html if isinstance(content, Markup) else html.escape(printable(content), quote=True)


def element(tag: str, *content: Content, **attributes: str | float) -> Markup:
    """`<tag attributes>content</tag>`; `class_` is `class`, and `_` in a name stands for `-`.

    In running text a unit stays on the line of its number.
    """
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    named = "".join(f' {names[key]}="{escape(str(value))}"' for key, value in attributes.items())
    inside = "".join(map(escape, content))
    return Markup(f"<{tag}{named}>{_UNIT.sub('&nbsp;', inside) if tag in _PROSE else inside}</{tag}>")


def join(parts: Iterable[Content], separator: str = "") -> Markup:
    """Contents one after another."""
    return Markup(escape(separator).join(escape(part) for part in parts))


def heading(tag: str, title: str, aside: str = "") -> Markup:
    """A heading, with what stands beside it in small letters."""
    return element(tag, title, join([" ", element("small", aside)])) if aside else element(tag, title)


def section(title: str, aside: str, *content: Content, anchor: str = "") -> Markup:
    """A section of the page under its heading; `anchor` is what links lead to."""
    attributes = {"id": anchor} if anchor else {}
    return element("section", heading("h2", title, aside), *content, **attributes)


def facts(rows: Iterable[tuple[Content, Content]], kind: str = "facts") -> Markup:
    """Names with what is said of each, below one another."""
    pairs = (element("div", element("dt", name), element("dd", content)) for name, content in rows)
    return element("dl", *pairs, class_=kind)


def bullets(lines: Iterable[str]) -> Markup:
    """Lines as a list."""
    return element("ul", *(element("li", line) for line in lines))


def drawing(drawn: Iterable[Content], width: float, height: float, label: str) -> Markup:
    """A chart of a page: SVG elements in a space of this size, with a label for screen readers."""
    svg = element("svg", *drawn, viewBox=f"0 0 {width} {height}", role="img", aria_label=label)
    return element("div", svg, class_="chart")


def swatch(colour: str) -> Markup:
    """A small square of a colour."""
    square = element("rect", width=10, height=10, rx=2, fill=colour)
    return element("svg", square, class_="swatch", width=10, height=10, aria_hidden="true")
