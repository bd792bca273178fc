"""Findings as the JSON of `phasepoint findings RUN --json`, written by hand."""

from typing import Any

EVIL_TITLE = "<script>document.title = 'ran'</script> waits"


def sample_findings(phase: str | None = None) -> dict[str, Any]:
    """Four findings, the last folded away, and a rule that could not judge."""
    return {
        "version": 1,
        "findings": [
            _finding("INPUT-STALL", EVIL_TITLE, 31.25, phase, "steps"),
            _finding("RECOMPILE", "jit_step was compiled 3 times", 6.5, phase, "programs"),
            _finding("CHECKPOINT-STALL", "the job waited for 2 checkpoints", 2.0, None, "checkpoints"),
            _finding("GC-PAUSE", "garbage collection took 40 ms", 0.04, None, "gaps"),
        ],
        "unavailable": [{"code": "POOR-TILING", "reason": "the device's tile is not known: <b>cpu</b>"}],
    }


def _finding(code: str, title: str, seconds: float, phase: str | None, table: str) -> dict[str, Any]:
    return {
        "code": code,
        "title": title,
        "phase": phase,
        "seconds": seconds,
        "seconds_low": 0.9 * seconds,
        "seconds_high": 1.2 * seconds,
        "share": seconds / 100,
        "remedy": "num_workers=4",
        "evidence": [{"text": f"rows of {table}", "table": table, "query": f"select * from {table} where 'a' < 'b'"}],
        "layers": ["Net/<i>Conv"],
        "confidence": "high",
        "wrong_if": "the cores are shared",
    }
