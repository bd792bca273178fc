"""A rule's page: its module's docstring, with the values of its thresholds filled in from the module."""

import re
from importlib import import_module
from inspect import cleandoc

from phasepoint.core.errors import UsageError
from phasepoint.findings.rules import RULES, Rule

SECTIONS = ("Formula", "Thresholds", "Remedy", "Wrong when", "Source")
"""Every page has these, in this order."""

_HEAD = """# Findings

What `phasepoint findings RUN` can tell, one section a rule. Written from the rules' own docstrings by `make docs`.
"""

_PLACEHOLDER = re.compile(r"\{([A-Z][A-Z0-9_]*)(?::([^}]*))?\}")


def explain_rule(code: str) -> str:
    """The page of a rule as Markdown: what it finds, formula, thresholds with reasons, remedy, when it is wrong.

    Raises:
        UsageError: no rule has this code.
    """
    rule = find_rule(code)
    module = import_module(f"phasepoint.findings.{rule.module}")
    text = _PLACEHOLDER.sub(lambda m: format(getattr(module, m[1]), m[2] or ""), cleandoc(module.__doc__ or ""))
    return f"# {rule.code}\n\n{text}\n"


def explain_all() -> str:
    """Every rule's page in one document, as docs/findings.md holds them."""
    pages = "\n".join(explain_rule(rule.code).replace("# ", "## ", 1) for rule in RULES)
    return f"{_HEAD}\n{pages}"


def find_rule(code: str) -> Rule:
    """The rule with this code, in any case.

    Raises:
        UsageError: there is none; the message lists them.
    """
    for rule in RULES:
        if rule.code == code.upper():
            return rule
    raise UsageError(f"no rule has the code {code!r}; the codes are {', '.join(rule.code for rule in RULES)}")
