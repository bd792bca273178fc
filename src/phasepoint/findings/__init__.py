"""What to do about it: rules that find recoverable time in a recorded run, ranked, with remedies."""

from typing import TYPE_CHECKING

from phasepoint.core.lazy import lazy_names

if TYPE_CHECKING:
    from phasepoint.findings.finding import Finding, Findings
    from phasepoint.findings.judge import judge_run, summarize_run
    from phasepoint.findings.table import RULES, explain_rule

__all__ = ["RULES", "Finding", "Findings", "explain_rule", "judge_run", "summarize_run"]

__getattr__ = lazy_names(
    __name__,
    {"RULES": ".table", "explain_rule": ".table", "Finding": ".finding", "Findings": ".finding"}
    | {"judge_run": ".judge", "summarize_run": ".judge"},
)
