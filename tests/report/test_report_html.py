import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from sample_summary import EVIL, sample_summary

from phasepoint.report.html.data import script_data
from phasepoint.report.html.page import summary_html
from phasepoint.report.words.markup import element, escape, join

EVIL_SHOWN = EVIL.replace("\x1b", "\\x1b")


class _Page(HTMLParser):
    """Elements with their attributes, and text by element."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.text, self._open = [], {}, []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        self.text.setdefault(self._open[-1] if self._open else "", []).append(data)


@pytest.fixture(scope="module")
def html(opened):
    _, summary, timeline = opened
    return summary_html(summary, timeline)


@pytest.fixture(scope="module")
def page(html):
    return _Page(html)


def test_the_verdict_is_the_headline(page, opened):
    summary = opened[1]
    assert page.text["h1"][0].replace("\xa0", " ") == summary.verdict.removesuffix(summary.advice).rstrip()
    assert summary.advice.startswith("Next: ")
    assert [text for text in page.text["p"] if text.replace("\xa0", " ") == summary.advice]


def test_names_never_become_elements(page):
    tags = {tag for tag, _ in page.elements}
    assert "img" not in tags
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 2
    assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)
    shown = "<img src=x onerror=alert(1)></script>[red]\\x1b[31m&amp;"
    assert shown in page.text["code"]


def test_nothing_is_loaded_and_only_its_own_script_runs(page, html):
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a)
    style, script = (re.search(rf"<{tag}>(.*?)</{tag}>", html, re.S)[1] for tag in ("style", "script"))
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert all("src" not in a and "style" not in a and a.get("href", "#")[0] == "#" for _, a in page.elements)


def test_data_cannot_end_its_element(opened):
    _, summary, timeline = opened
    text = script_data(summary, timeline, None)
    assert not set("<>&") & set(text)
    data = json.loads(text)
    assert any(EVIL_SHOWN in text for text in data["timeline"]["marks"]["checkpoints"]["text"])
    assert len(data["timeline"]["points"]["at"]) == len(timeline.points)


def test_every_section_of_the_terminal_is_on_the_page(page):
    headings = [text.strip() for text in page.text["h2"]]
    assert [h for h in headings if h] == [
        "Timeline",
        "Phases",
        "Where the clock says the time went",
        "What the steps' time went into",
        "A closer look at each phase",
        "Noticed",
        "Not seen",
        "What recording cost",
        "Environment",
    ]


def test_a_summary_without_timeline_or_steps():
    assert "<svg" in summary_html(sample_summary())
    empty = sample_summary(phases=(), strip=(), steps=0, inside_ps=0, top_ops=(), events=(), checkpoints=())
    assert 'id="timeline"' not in summary_html(empty)


def test_text_is_escaped_and_markup_is_not():
    assert escape('<a href="x">&\x00') == "&lt;a href=&quot;x&quot;&gt;&amp;\\x00"
    assert element("b", "<", join(["a", element("i", "&")], ", "), class_="x").html == (
        '<b class="x">&lt;a, <i>&amp;</i></b>'
    )
    assert element("svg", data_zoom='"', aria_label="<").html == '<svg data-zoom="&quot;" aria-label="&lt;"></svg>'
