"""Links of README, CONTRIBUTING and docs/ lead somewhere, and pages that the code names are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]


def anchors(page):
    """What `#…` can name in a page: its headings, in small letters with hyphens."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
            dead.append(link)
    assert dead == []


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    assert [page.name for page in sorted(ROOT.glob("docs/*.md")) if f"({page.name})" not in index] == ["README.md"]


def test_pages_that_the_code_names_are_there():
    texts = [path.read_text() for folder in ("src", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"\bdocs/[\w/-]+\.md\b", text)}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_modules_that_the_pages_name_are_there():
    homes = (ROOT, ROOT / "src" / "phasepoint")
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    named = {name for page in pages for name in re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text())}
    assert sorted(name for name in named if not any((home / name).exists() for home in homes)) == []
