"""What to do about it: rules that find recoverable time in a recorded run, ranked, with remedies.

Names are loaded when first used, so that importing the floor costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phasepoint.findings.explain import explain_rule as explain_rule
    from phasepoint.findings.finding import Finding as Finding
    from phasepoint.findings.finding import Findings as Findings
    from phasepoint.findings.judge import judge_run as judge_run
    from phasepoint.findings.rules import RULES as RULES

_HOMES = {
    "RULES": "rules",
    "Finding": "finding",
    "Findings": "finding",
    "explain_rule": "explain",
    "judge_run": "judge",
}

__all__ = ["RULES", "Finding", "Findings", "explain_rule", "judge_run"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"phasepoint.findings.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'phasepoint.findings' has no attribute {name!r}")
