"""Every rule has a page, whole and with its thresholds' values; docs/findings.md is made of them."""

from pathlib import Path

import pytest

from phasepoint.core.errors import UsageError
from phasepoint.findings.table import RULES, SECTIONS, explain_all, explain_rule

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_page_has_its_sections_in_order(rule):
    page = explain_rule(rule.code)
    places = [page.find(f"**{name}") for name in SECTIONS]
    assert min(places) > 0, f"sections missing: {[n for n, p in zip(SECTIONS, places, strict=True) if p < 0]}"
    assert places == sorted(places)
    assert "{" not in page.replace("{}", ""), "a threshold's value is not filled in"


def test_thresholds_are_the_codes_own_values(monkeypatch):
    from phasepoint.findings.rules.host import input_stall

    monkeypatch.setattr(input_stall, "LEAST_SHARE", 0.37)
    assert "37%" in explain_rule("input-stall")


def test_codes_are_unique_and_an_unknown_one_is_refused():
    assert len({rule.code for rule in RULES}) == len(RULES)
    with pytest.raises(UsageError, match="no rule has the code 'NO-SUCH'; the codes are INPUT-STALL"):
        explain_rule("NO-SUCH")


def test_the_page_in_docs_is_current():
    assert (DOCS / "findings.md").read_text() == explain_all(), "run: make docs"
