"""The methods of phase detection side by side: what each finds in the same run, and how far they agree."""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import renumber
from phasepoint.phases.analysis import Analysis
from phasepoint.phases.clock import sum_ps
from phasepoint.phases.detect import METHODS, detect_phases
from phasepoint.phases.result import PhaseResult
from phasepoint.phases.strip import build_strip
from phasepoint.phases.summary_types import StripSegment

QUICK_METHODS = ("recurrent", "ols")
"""Methods that run along with every report. The others load a library and fit models for seconds, longer than a reader
waits (benchmarks/report.py); they run when they are asked for."""

WHY_NOT = "takes seconds: report --all-methods runs it"

TOP = 3
"""Phases whose share of the time is told: the papers before judge a method by its three largest."""


@dataclass(frozen=True)
class MethodSummary:
    """What one method finds.

    Attributes:
        method: its name.
        chosen: whether the rest of the report rests on it.
        phases: phases found; None where it was not run.
        segments: stretches of one phase; None likewise.
        top_share: share of the steps' time in its three largest phases; None likewise.
        agreement: adjusted Rand index against the chosen method's labels: 1 the same, 0 no better than chance.
        strip: the reference host's time as it cuts it.
        why_not: why it was not run, None where it was.
    """

    method: str
    chosen: bool
    phases: int | None
    segments: int | None
    top_share: float | None
    agreement: float | None
    strip: tuple[StripSegment, ...]
    why_not: str | None


def compare_methods(analysis: Analysis, host: int | None, *, every: bool = False) -> tuple[MethodSummary, ...]:
    """The methods on the run's tables, the chosen one first.

    Args:
        analysis: of the run, by the chosen method.
        host: whose strip to cut; None for a run without hosts.
        every: run the slow ones too; otherwise they are named with the reason why they were not run.
    """
    if host is None or not analysis.clock.n_steps:
        return ()
    rows = [_summarize(analysis, analysis.result, host)]
    for method in METHODS:
        if method == analysis.result.method:
            continue
        if not every and method not in QUICK_METHODS:
            rows.append(MethodSummary(method, False, None, None, None, None, (), WHY_NOT))
            continue
        result = detect_phases(analysis.tables["steps"], analysis.tables["ops"], method=method)
        rows.append(_summarize(analysis, result, host))
    return tuple(rows)


def _summarize(analysis: Analysis, result: PhaseResult, host: int) -> MethodSummary:
    clock, labels = analysis.clock, result.labels
    times = sorted((sum_ps(clock.dur_ps[labels == phase.id]) for phase in result.phases), reverse=True)
    names = {phase.id: phase.name for phase in result.phases}
    is_chosen = result is analysis.result
    return MethodSummary(
        method=result.method,
        chosen=is_chosen,
        phases=len(result.phases),
        segments=len(result.segments),
        top_share=sum(times[:TOP]) / clock.inside_ps if clock.inside_ps else None,
        agreement=1.0 if is_chosen else adjusted_rand_index(analysis.labels, labels),
        strip=build_strip(clock, labels, names, host),
        why_not=None,
    )


def adjusted_rand_index(a: Int64s, b: Int64s) -> float:
    """How far two labellings `[n]` of the same steps agree, chance taken out; 1 where both are one class.

    Source: Hubert & Arabie, "Comparing Partitions" (1985).
    """
    codes_a, codes_b = renumber(a)[1], renumber(b)[1]
    width = int(codes_b.max(initial=0)) + 1
    together = _pairs(np.bincount(renumber(codes_a * width + codes_b)[1]))
    in_a, in_b = _pairs(np.bincount(codes_a)), _pairs(np.bincount(codes_b))
    all_pairs = len(a) * (len(a) - 1) / 2
    expected = in_a * in_b / all_pairs if all_pairs else 0.0
    most = (in_a + in_b) / 2
    return 1.0 if most == expected else float((together - expected) / (most - expected))


def _pairs(counts: Int64s) -> float:
    sizes = counts.astype(np.float64)
    return float((sizes * (sizes - 1)).sum() / 2)
