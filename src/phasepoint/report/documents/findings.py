"""Findings as JSON: times in seconds, as the contract has them, and in exact picoseconds."""

from dataclasses import asdict
from typing import Any

from phasepoint.core.units import PS_PER_S
from phasepoint.findings.finding import FINDINGS_VERSION, Findings, RankedFinding


def findings_document(found: Findings) -> dict[str, Any]:
    """The run's findings, ranked; `unavailable`, `clear`, and `not_enough`: why no gate passes on the run, or null."""
    return {
        "version": FINDINGS_VERSION,
        "run": found.run,
        "wall_ps": found.wall_ps,
        "findings": [_document(finding) for finding in found.findings],
        "unavailable": [{"code": one.code, "reason": one.reason} for one in found.unavailable],
        "clear": list(found.clear),
        "not_enough": None if found.not_enough is None else asdict(found.not_enough),
    }


def _document(finding: RankedFinding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "title": finding.title,
        "phase": finding.phase,
        "seconds": finding.saved_ps / PS_PER_S,
        "seconds_low": finding.low_ps / PS_PER_S,
        "seconds_high": finding.high_ps / PS_PER_S,
        "seconds_alone": finding.alone_ps / PS_PER_S,
        "share": finding.share,
        "remedy": finding.remedy,
        "evidence": [{"text": e.text, "table": e.table, "query": e.query} for e in finding.evidence],
        "confidence": finding.confidence,
        "wrong_if": finding.wrong_if,
        "layers": list(finding.layers),
        "saved_ps": finding.saved_ps,
        "low_ps": finding.low_ps,
        "high_ps": finding.high_ps,
        "alone_ps": finding.alone_ps,
    }
