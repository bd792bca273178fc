"""`judge_run`: every rule over one view of the run."""

from phasepoint.findings.finding import CannotJudge, Finding, Findings, Unavailable
from phasepoint.findings.rank import rank_findings
from phasepoint.findings.rules import RULES
from phasepoint.findings.view import FindingsView
from phasepoint.phases.analysis import Analysis, analyse_run
from phasepoint.phases.enough import find_shortfall
from phasepoint.store import Run

LEAST_SHARE = 0.005
"""Findings worth less than 0.5 % of the run's time are not told: nobody acts on them, and noise makes some. One
that claims no time at all says something else than what could be won, and is told."""


def judge_run(run: Run, *, method: str = "recurrent") -> Findings:
    """What could be won in a run, and how.

    Args:
        run: an opened run whose captures are converted.
        method: of `detect_phases`.

    Raises:
        StoreError: the run's tables cannot be read.
    """
    return judge_analysis(analyse_run(run, method=method))


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
        found += of_rule
        if not of_rule:
            clear.append(rule.code)
    wall_ps = analysis.clock.wall_ps
    ranked = rank_findings(found, analysis.clock.dur_ps, wall_ps)
    told = tuple(f for f in ranked if f.share >= LEAST_SHARE or not f.alone_ps)
    quiet = sorted({f.code for f in found} - {f.code for f in told})
    return Findings(
        analysis.run.path,
        wall_ps,
        told,
        tuple(unavailable),
        (*clear, *quiet),
        not_enough=find_shortfall(analysis.run, analysis.clock, analysis.tables),
    )
