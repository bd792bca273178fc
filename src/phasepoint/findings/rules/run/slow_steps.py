"""Single steps last far longer than the steps around them.

**Formula.** A step's level is the median of the {NEIGHBOURS} steps around it of the same phase. A step is slow from
{LEAST_RATIO:.0%} of its level on, and beyond {SIGMAS} robust standard deviations of its phase. Its loss is its duration
less the mean of the ordinary steps there, and less the time that the next step catches up if the device was busy
meanwhile. It is explained if causes that are known make at least half of the loss: garbage collection, a checkpoint, an
evaluation, compiling, waiting for input, other programs on the machine, a capture window. Those causes have rules of
their own; this one claims the steps whose cause was not seen and, separately, those slowed by capturing.

**Thresholds.** {LEAST_RATIO:.0%} of the level: smaller excesses are not worth a search one by one. {SIGMAS} standard
deviations: the tail of the ordinary distribution. {LEAST_SHARE:.1%} of the run's time: on a busy shared machine with
nothing planted, other processes alone made slow steps that cost 2.4 %. The slow steps must lose at least as much as
those between {NEAR_SIGMAS} deviations and the limit: otherwise they are the end of a wide distribution and not separate
events. From {MOST_SHARE:.0%} of the steps' time on they are not judged: a loop that hands steps to the device and waits
for it now and then, or does its other work there, has short steps that are not what a step takes.

**Remedy.** Look up the listed steps in the job's own log, and what else ran on the machine then: another process on its
cores, a network file system, a thread of logging or metrics. If they recur regularly, look for what the loop does every
so many steps; name evaluations (`with run.phase("eval"):`). Run the job alone, or pin it (`taskset`, `numactl`) and
compare. The period told is that of the steps that lose at least {LARGE:.0%} of what the worst does, where they make
{MOST_OF_IT:.0%} of the loss.

**Wrong when** the long steps do more work than others (longer sequences, larger batches) and are too rare to be a
phase.

**Source.** Median absolute deviation as a robust scale: Rousseeuw & Croux (1993).
The level: findings/evidence/expected.py.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.statistics import median
from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.findings.evidence.expected import BLOCK, expect_steps, net_excess
from phasepoint.findings.evidence.gc_pauses import long_pauses
from phasepoint.findings.evidence.held_time import read_evaluations, unnamed_time
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import sum_ps

NEIGHBOURS = BLOCK
LEAST_RATIO = 1.3
SIGMAS = 6
NEAR_SIGMAS = 3
LEAST_SHARE = 0.03
MOST_SHARE = 0.5

MODEL_ERROR = 0.1
"""Half width, as a ratio of the loss, of what the choice of the limit and of the level adds to the interval."""

LARGE, MOST_OF_IT = 0.25, 0.8
"""Steps that lose a quarter of what the worst does are looked at for a period, if they make most of the loss."""

LISTED = 20
"""Steps that the evidence names: a choice, as many as one looks up by hand."""
_NAME_THEM = 'name evaluations: with run.phase("eval"):'
_CAUSES = (
    *("garbage collection", "a checkpoint", "an evaluation", "compiling", "waiting for input", "other programs"),
    "a capture window",
)
_CAPTURED = _CAUSES.index("a capture window")
_UNKNOWN = len(_CAUSES)


@dataclass(frozen=True, eq=False)
class SlowSteps:
    """The slow steps of a run.

    Attributes:
        lost_ps: `[n_steps]` what each lost, 0 for ordinary steps.
        cause: `[n_steps]` index of its cause, -1 for ordinary steps; `len(causes)` where it is not known.
        noise_ps: standard deviation of the sum of losses that ordinary scatter makes, by cause.
    """

    lost_ps: Int64s
    cause: Int64s
    noise_ps: tuple[float, ...]


def find(view: FindingsView) -> list[Finding]:
    """Slow steps without a cause, and those slowed by capturing."""
    view.need_steps()
    slow, room_ps = find_slow_steps(view), view.once(unnamed_time)
    unknown = slow.cause == _UNKNOWN
    share = sum_ps(slow.lost_ps[unknown]) / max(view.clock.inside_ps, 1)
    if share > MOST_SHARE:
        raise Unavailable(
            f"{format_counted(int(unknown.sum()), 'long step')} took {format_ratio(share)} of the steps' time: the "
            "short ones between them are not what a step takes, as where the host runs ahead of the device and waits "
            "for it now and then"
        )
    found = []
    for cause in (_UNKNOWN, _CAPTURED):
        claimed_ps = np.where(slow.cause == cause, np.minimum(slow.lost_ps, room_ps), 0)
        if sum_ps(claimed_ps) >= max(LEAST_SHARE * view.clock.wall_ps, 1):
            found.append(_finding(view, slow, cause, claimed_ps))
    return found


def find_slow_steps(view: FindingsView) -> SlowSteps:
    """The steps far above their level, what each lost, and to what."""
    expected, dur_ps = view.once(expect_steps), view.clock.dur_ps
    above = np.log(np.maximum(expected.ratio, 1e-6))
    is_slow = above > np.maximum(np.log(LEAST_RATIO), SIGMAS * expected.sigma)
    is_slow &= expected.dur_ps > 0
    excess_ps = dur_ps - expected.dur_ps
    near = (above > NEAR_SIGMAS * expected.sigma) & ~is_slow & (excess_ps > 0)
    lost_ps = np.where(is_slow, np.clip(net_excess(view, is_slow), 0, dur_ps), 0)
    cause = _causes(view, is_slow, excess_ps)
    unknown = cause == _UNKNOWN
    if sum_ps(np.where(unknown, lost_ps, 0)) < sum_ps(np.where(near, excess_ps, 0)):
        lost_ps = np.where(unknown, 0, lost_ps)
        cause = np.where(unknown, -1, cause)
    scatter_ps = expected.dur_ps * expected.sigma
    noise = tuple(float(np.sqrt((scatter_ps[cause == c] ** 2).sum())) for c in range(_UNKNOWN + 1))
    return SlowSteps(lost_ps, cause, noise)


def _causes(view: FindingsView, is_slow: Bools, excess_ps: Int64s) -> Int64s:
    """`[n_steps]` the cause that explains most of each slow step's excess, where all of them explain half of it."""
    clock, slow = view.clock, np.flatnonzero(is_slow)
    cause = np.full(clock.n_steps, -1, np.int64)
    if not len(slow):
        return cause
    usual_input_ps = int(median(clock.input_ps[~is_slow])) if len(slow) < clock.n_steps else 0
    captured = np.isin(slow, view.captured.row)
    seen = np.where(captured, excess_ps[slow], 0) if 2 * len(view.captured.row) < clock.n_steps else np.zeros_like(slow)
    explained = np.stack(
        [
            long_pauses(view).by_step[slow],
            view.step_parts.checkpoint_ps[slow],
            view.once(read_evaluations).held.by_step[slow],
            clock.compile_ps[slow],
            np.maximum(clock.input_ps[slow] - usual_input_ps, 0),
            view.step_parts.machine_ps[slow],
            (seen // 2 + 1) * (seen > 0),  # only where nothing else explains it
        ]
    )
    best = np.argmax(explained, axis=0)
    enough = 2 * explained.sum(axis=0) >= excess_ps[slow]
    cause[slow] = np.where(enough, best, _UNKNOWN)
    return cause


def _finding(view: FindingsView, slow: SlowSteps, cause: int, claimed_ps: Int64s) -> Finding:
    clock, mine = view.clock, slow.cause == cause
    total_ps = sum_ps(claimed_ps)
    half_ps = 1.96 * slow.noise_ps[cause] + MODEL_ERROR * total_ps
    count, share = int(mine.sum()), total_ps / clock.wall_ps
    while_captured = ", all while captured" if cause == _CAPTURED else ""
    lost = f"{'loses' if count == 1 else 'lose'} {format_ps(total_ps)}, {format_ratio(share)} of the run"
    period, large = _period(view, claimed_ps)
    every = f", {'' if large == count else 'most of it in '}one every {period} steps" if period else ""
    return Finding(
        code="SLOW-STEPS",
        title=f"{format_count(count)} slow {'step' if count == 1 else 'steps'} {lost}{while_captured}{every}",
        claim=Claim("excess", claimed_ps),
        low_ps=max(round(total_ps - half_ps), 0),
        high_ps=round(total_ps + half_ps),
        phase=view.phase_of_most(claimed_ps),
        remedy=_remedy(cause, period, knows_others=view.analysis.crowded is not None),
        evidence=(_listed(view, claimed_ps), *_others(slow)),
        confidence="high" if cause == _UNKNOWN and share > 3 * LEAST_SHARE else "medium",
        wrong_if="the slow steps do more work than the others, or the machine was shared and will not be next time",
    )


def _remedy(cause: int, period: int | None, *, knows_others: bool) -> str:
    if cause == _CAPTURED:
        return "capturing slows these steps down: record with a smaller budget (record(…, budget=0.005))"
    if period:
        does = "(an evaluation, saving, logging), and do it less often or on another thread"
        return f"look for what the loop does every {period} steps {does}; {_NAME_THEM}"
    if knows_others:
        return (
            "find what the loop does in these steps (an evaluation, saving, logging, fetching results) and do it less "
            f"often; no other program took its cores then; {_NAME_THEM}"
        )
    return (
        "look up these steps in the job's log and what else the machine did then: other processes on its cores, a slow "
        "file system, a logging thread; run the job alone or pin it (taskset, numactl) and compare"
    )


def _period(view: FindingsView, lost_ps: Int64s) -> tuple[int | None, int]:
    """Steps from one slow step to the next, of those that lose most of the time, where it hardly varies; how many."""
    clock, large = view.clock, lost_ps >= LARGE * lost_ps.max()
    apart = np.diff(clock.step[large & (clock.host == clock.host[np.argmax(lost_ps)])])
    if len(apart) < 3 or sum_ps(lost_ps[large]) < MOST_OF_IT * sum_ps(lost_ps):
        return None, 0
    usual = int(np.median(apart))
    is_regular = usual > 1 and (np.abs(apart - usual) <= max(1, usual // 20)).mean() >= 0.8
    return (usual if is_regular else None), int(large.sum())


def _listed(view: FindingsView, claimed_ps: Int64s) -> Evidence:
    clock = view.clock
    worst = np.argsort(-claimed_ps, kind="stable")[:LISTED]
    worst = worst[claimed_ps[worst] > 0]
    longest = int(worst[0])
    keys = ", ".join(f"({clock.host[i]}, {clock.attempt[i]}, {clock.step[i]})" for i in worst.tolist())
    expected_ps = int(view.once(expect_steps).dur_ps[longest])
    took = f"{format_ps(int(clock.dur_ps[longest]))} instead of {format_ps(expected_ps)}"
    return Evidence(
        f"step {clock.step[longest]} took {took}",
        "steps",
        "select host, attempt, step, start_ps, dur_ps, input_ps, compile_ps from steps "
        f"where (host, attempt, step) in ({keys}) order by dur_ps desc",
    )


def _others(slow: SlowSteps) -> tuple[Evidence, ...]:
    """The slow steps that other rules tell of."""
    counts = [(int((slow.cause == c).sum()), _CAUSES[c]) for c in range(_CAPTURED)]
    known = [f"{format_count(count)} to {name}" for count, name in sorted(counts, reverse=True) if count]
    query = "select step, dur_ps, input_ps, compile_ps from steps order by dur_ps desc limit 50"
    told = Evidence(f"more slow steps go back {', '.join(known)}: other rules judge these", "steps", query)
    return (told,) if known else ()
