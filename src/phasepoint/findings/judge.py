"""`judge_run`: every rule over one view of the run; `summarize_run`: what they come to, with all that the run shows.

Ranking: the most recoverable time first, and no picosecond counted twice.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.findings.finding import CannotJudge, Finding, Findings, RankedFinding, Unavailable
from phasepoint.findings.table import RULES
from phasepoint.findings.verdict import write_verdict
from phasepoint.findings.view import FindingsView
from phasepoint.phases.detection.table import DEFAULT_METHOD
from phasepoint.store import Run
from phasepoint.summary.analysis import Analysis, analyse_run
from phasepoint.summary.summary import summarize
from phasepoint.summary.types import RunSummary


def rank_findings(findings: Sequence[Finding], dur_ps: Int64s, wall_ps: int) -> tuple[RankedFinding, ...]:
    """Findings by the time each wins beyond those before it; one that wins nothing more is left in, with 0.

    In each turn the finding that still wins most is taken, those that may win nothing at all after all others. Of the
    same part of a step only the larger claim counts, and all claims on a step together win no more than it lasted;
    claims between steps are taken one after another up to the time that there is.

    Args:
        findings: of one run.
        dur_ps: `[n_steps]` durations.
        wall_ps: wall time of the run.
    """
    left_ps = dur_ps.copy()
    outside_ps = max(wall_ps - int(dur_ps.sum()), 0)
    taken: dict[str, Int64s] = {}
    waiting, ranked = list(findings), []
    while waiting:
        wins = [_win(finding, taken.get(finding.claim.part), left_ps, outside_ps) for finding in waiting]
        best = max(range(len(waiting)), key=lambda i: (_is_sure(waiting[i]), wins[i][0].sum() + wins[i][1], -i))
        finding, (by_step, between_ps) = waiting.pop(best), wins[best]
        there_ps = int(dur_ps[finding.claim.by_step > 0].sum()) + (outside_ps if finding.claim.outside_ps else 0)
        part = finding.claim.part
        taken[part] = np.maximum(taken.get(part, np.zeros_like(dur_ps)), finding.claim.by_step)
        left_ps -= by_step
        outside_ps -= between_ps
        ranked.append(_ranked(finding, int(by_step.sum()) + between_ps, wall_ps, min(there_ps, wall_ps)))
    return tuple(ranked)


def _is_sure(finding: Finding) -> bool:
    """Whether it wins something whatever the sample was."""
    return finding.low_ps > 0 or not finding.claim.total_ps


def _win(finding: Finding, taken: Int64s | None, left_ps: Int64s, outside_ps: int) -> tuple[Int64s, int]:
    """What a claim wins now: of each step, and between steps."""
    mine = finding.claim.by_step if taken is None else np.maximum(finding.claim.by_step - taken, 0)
    return np.minimum(mine, left_ps), min(finding.claim.outside_ps, outside_ps)


def _ranked(finding: Finding, saved_ps: int, wall_ps: int, there_ps: int) -> RankedFinding:
    """`there_ps`: the time of the steps, and between them, in which it claims any: nothing wins more."""
    alone_ps = finding.claim.total_ps
    scale = saved_ps / alone_ps if alone_ps else 0.0
    low_ps, high_ps = min(int(finding.low_ps * scale), saved_ps), max(round(finding.high_ps * scale), saved_ps)
    low_ps, high_ps = max(low_ps, 0), max(min(high_ps, there_ps), saved_ps)
    return RankedFinding(
        code=finding.code,
        title=_sentence(finding.title),
        phase=finding.phase,
        saved_ps=saved_ps,
        low_ps=low_ps,
        high_ps=high_ps,
        alone_ps=alone_ps,
        share=saved_ps / wall_ps if wall_ps else 0.0,
        layers=finding.layers,
        remedy=_sentence(finding.remedy),
        evidence=finding.evidence,
        confidence=finding.confidence,
        wrong_if=finding.wrong_if,
    )


def _sentence(text: str) -> str:
    """With a capital at its start where that is a word and not a name of the code (`jit_step`, `torch.compile`)."""
    return text[:1].upper() + text[1:] if text.split(maxsplit=1)[0].rstrip(",:;").isalpha() else text


LEAST_SHARE = 0.005
"""Findings worth less than 0.5 % of the run's time are not told: nobody acts on them, and noise makes some. One
that claims no time at all says something else than what could be won, and is told."""


def allow_for_saved(finding: Finding, saved: tuple[float, float] | None) -> Finding:
    """The finding with an interval that allows for both: how well its claim is known, and what a remedy saves of it.

    Args:
        finding: as its rule gave it.
        saved: the rule's `saved`.
    """
    claim_ps = finding.claim.total_ps
    if saved is None or not claim_ps:
        return finding
    low, high = 1 - finding.low_ps / claim_ps, finding.high_ps / claim_ps - 1
    low, high = math.hypot(max(low, 0.0), 1 - saved[0]), math.hypot(max(high, 0.0), saved[1] - 1)
    return replace(finding, low_ps=int(max(1 - low, 0.0) * claim_ps), high_ps=int((1 + high) * claim_ps))


def set_late_apart(findings: Sequence[Finding]) -> list[Finding]:
    """What the hosts wait for a late one is none of the exchange: faster links or fewer bytes would not win it.

    Args:
        findings: of one run; of those that claim communication is taken off what a late host costs.
    """
    late_ps = [finding.claim.by_step for finding in findings if finding.claim.part == "late"]
    apart = []
    for finding in findings:
        if late_ps and finding.claim.part == "communication":
            left_ps = np.maximum(finding.claim.by_step - np.maximum.reduce(late_ps), 0)
            claim = replace(finding.claim, by_step=left_ps)
            left = claim.total_ps / max(finding.claim.total_ps, 1)
            ends = int(finding.low_ps * left), int(finding.high_ps * left)
            finding = replace(finding, claim=claim, low_ps=ends[0], high_ps=ends[1])  # noqa: PLW2901
        apart.append(finding)
    return apart


def judge_run(run: Run, *, method: str = DEFAULT_METHOD) -> Findings:
    """What could be won in a run, and how.

    Args:
        run: an opened run whose captures are converted.
        method: of `detect_phases`.

    Raises:
        StoreError: the run's tables cannot be read.
    """
    return judge_analysis(analyse_run(run, method=method))


def summarize_run(run: Run, *, method: str = DEFAULT_METHOD) -> RunSummary:
    """What limits a run, what its time went into, how sure that is, and what was not seen.

    Args:
        run: an opened run whose captures are converted.
        method: how phases are found, a key of `phasepoint.phases.METHODS`.

    Raises:
        ValueError: an unknown method.
        StoreError: the run's tables cannot be read.

    Example:
        >>> from phasepoint import open_run
        >>> summary = summarize_run(open_run("runs/my-job"))
        >>> summary.steps, [phase.name for phase in summary.phases]
        (200, ['train-1', 'input stall', 'train-2', 'compile'])
    """
    return summarize_analysis(analyse_run(run, method=method))[0]


def summarize_analysis(analysis: Analysis) -> tuple[RunSummary, Findings]:
    """As `summarize_run`, of a run that is analysed already; and the findings that its verdict comes from."""
    found = judge_analysis(analysis)
    return summarize(analysis, found.verdict), found


def judge_analysis(analysis: Analysis) -> Findings:
    """As `judge_run`, of a run that is analysed already."""
    view = FindingsView(analysis)
    found: list[Finding] = []
    unavailable, clear = [], []
    for rule in RULES:
        try:
            of_rule = rule.find(view)
        except Unavailable as reason:
            unavailable.append(CannotJudge(rule.code, str(reason)))
            continue
        found += [allow_for_saved(finding, rule.saved) for finding in of_rule]
        if not of_rule:
            clear.append(rule.code)
    wall_ps = analysis.clock.wall_ps
    ranked = rank_findings(set_late_apart(found), analysis.clock.dur_ps, wall_ps)
    told = tuple(f for f in ranked if f.share >= LEAST_SHARE or not f.alone_ps)
    quiet = sorted({f.code for f in found} - {f.code for f in told})
    return Findings(
        analysis.run.path,
        wall_ps,
        write_verdict(view, told),
        told,
        tuple(unavailable),
        (*clear, *quiet),
        not_enough=analysis.shortfall,
    )
