"""`summarize`: everything that the first screen shows: the verdict, each phase, and how sure their numbers are."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from phasepoint.core.statistics import median_ps, quantile_ps
from phasepoint.core.units import format_counted, format_ps
from phasepoint.estimates.captured import PARTS, Captured
from phasepoint.estimates.estimates import Estimates
from phasepoint.phases.clock.accounting import (
    CHECKPOINT,
    INPUT_WAIT,
    NAMED,
    OUTSIDE,
    PHASE,
    SLOWER,
    closed,
    recording_cost,
)
from phasepoint.phases.clock.breakdown import ClockAccount, OpTime
from phasepoint.phases.clock.energy import energy_by_step
from phasepoint.phases.clock.hosts import HostWait, compare_hosts, median_error_ps
from phasepoint.phases.clock.steps import RunClock, sum_ps
from phasepoint.phases.detection.result import Phase, PhaseResult
from phasepoint.store import Run
from phasepoint.summary.analysis import Analysis
from phasepoint.summary.differences import tell_differences
from phasepoint.summary.enough import count_not_seen, newest_states, noted_budget, session_notes
from phasepoint.summary.run_events import RunView, tell_events
from phasepoint.summary.timeline import build_strip
from phasepoint.summary.types import (
    SUMMARY_VERSION,
    CheckpointSummary,
    NotSeen,
    PhaseSummary,
    RunEvent,
    RunSummary,
    Shortfall,
    Verdict,
)

LEAST_SHARE = 0.02
"""Parts below 2 % of the time are left to the table, except that the largest part is always named."""
MAX_PARTS = 5
"""Parts that the sentence names at most: a choice."""

_STEPS_MISSING = ("no-steps", "steps-missed")


def tell_time(
    account: ClockAccount,
    phases: Sequence[PhaseSummary],
    events: Sequence[RunEvent],
    *,
    hosts: int,
    elapsed_ps: int,
    not_enough: Shortfall | None = None,
) -> str:
    """One sentence: the parts of the clock's account, largest first, with their shares of the wall time.

    Args:
        account: wall time by what the clock saw.
        phases: the run's phases, largest first, for the op that stands out in each sort.
        events: for where the waiting and the compiling was.
        hosts: how many took part.
        elapsed_ps: sessions' time on one host.
        not_enough: why the run is no ground for a verdict; where steps are missing, shares of its time mislead, and
            that is the verdict.
    """
    if not account.total_ps:
        return "nothing was recorded: no steps and no time"
    if not_enough is not None and not_enough.code in _STEPS_MISSING:
        return not_enough.text
    by_id = {phase.id: phase for phase in phases}
    sorts: dict[_Sort, float] = {}
    for part in account.parts:
        sort = _Sort(part.kind, None, part.name) if part.phase is None else _phase_sort(by_id[part.phase])
        sorts[sort] = sorts.get(sort, 0.0) + part.share
    ranked = sorted(sorts.items(), key=lambda item: -item[1])
    told = [(sort, share) for sort, share in ranked if share >= LEAST_SHARE][:MAX_PARTS] or ranked[:1]
    of = f"{hosts} × {format_ps(elapsed_ps)}" if hosts > 1 else format_ps(account.total_ps)
    words = []
    for index, (sort, share) in enumerate(told):
        total = f" of {of}" if index == 0 else ""
        verb = "" if index else ("passed " if sort.kind in (OUTSIDE, NAMED) else "went into ")
        words.append(f"{_percent(share)}{total} {verb}{_told(sort, phases, events)}")
    return "; ".join(words)


class _Sort(NamedTuple):
    """What the verdict tells as one: a part of the account, or all phases of one sort, train-1, train-2, …"""

    kind: str
    phase_kind: str | None
    name: str


def _phase_sort(phase: PhaseSummary) -> _Sort:
    return _Sort(PHASE, phase.kind, re.sub(r"-\d+$", "", phase.name))


def _told(sort: _Sort, phases: Sequence[PhaseSummary], events: Sequence[RunEvent]) -> str:
    if sort.kind == INPUT_WAIT:
        return f"waiting for input{_where('input-stall', events)}"
    if sort.kind == CHECKPOINT:
        count = sum(event.kind == "checkpoint" for event in events)
        return f"{count} checkpoints" if count > 1 else "a checkpoint"
    if sort.kind == SLOWER:
        return "waiting for cores"
    if sort.kind != PHASE:
        return sort.name
    if sort.phase_kind == "input stall":
        return "the work of steps that waited for data"
    largest = next(phase for phase in phases if _phase_sort(phase) == sort)
    return f"{sort.name} steps{_standing_out(largest.top_ops)}"


def _where(kind: str, events: Sequence[RunEvent]) -> str:
    """Where most of it was, if one stretch holds more than half."""
    found = [event for event in events if event.kind == kind and event.cost_ps]
    if not found:
        return ""
    worst = max(found, key=lambda event: event.cost_ps or 0)
    if 2 * (worst.cost_ps or 0) < sum(event.cost_ps or 0 for event in found):
        return f" in {len(found)} stretches"
    if worst.first_step == worst.last_step:
        return f" in step {worst.first_step}"
    return f", most of it in steps {worst.first_step}–{worst.last_step}"


def _standing_out(ops: Sequence[OpTime]) -> str:
    """The op (with its layer) that takes most of a phase, if it takes a tenth or more."""
    named = [op for op in ops if op.op != "other"]
    if not named or named[0].share < 0.1:
        return ""
    op = named[0]
    layer = f" in {op.layer}" if op.layer else ""
    return f" ({op.op}{layer} {_percent(op.share)} of their op time)"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def summarize_phases(
    clock: RunClock,
    result: PhaseResult,
    estimates: Estimates,
    checkpoints: Sequence[CheckpointSummary],
    *,
    steps: pa.Table,
) -> tuple[PhaseSummary, ...]:
    """One row per phase, largest share of the time inside steps first; `steps` as the run's table has them."""
    differ = tell_differences(result, steps, estimates)
    rows = [
        replace(_summarize(clock, result, phase, estimates, checkpoints), differs=differ.get(phase.id))
        for phase in result.phases
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ps, row.id)))


def _summarize(
    clock: RunClock,
    result: PhaseResult,
    phase: Phase,
    estimates: Estimates,
    checkpoints: Sequence[CheckpointSummary],
) -> PhaseSummary:
    mine = result.labels == phase.id
    dur_ps = clock.dur_ps[mine]
    total_ps, inside_ps = sum_ps(dur_ps), clock.inside_ps
    row = representative_row(clock, result, phase, estimates)
    host, attempt, step = int(clock.host[row]), int(clock.attempt[row]), int(clock.step[row])
    window = int(estimates.window[row])
    restart = _restart_from(checkpoints, attempt, step)
    captured, window_keys = mine & estimates.captured, (clock.host, clock.attempt, estimates.window)
    return PhaseSummary(
        id=phase.id,
        name=phase.name,
        kind=phase.kind,
        steps=int(mine.sum()),
        segments=phase.n_segments,
        total_ps=total_ps,
        share=total_ps / inside_ps if inside_ps else 0.0,
        median_ps=quantile_ps(dur_ps, 0.5),
        p05_ps=quantile_ps(dur_ps, 0.05),
        p95_ps=quantile_ps(dur_ps, 0.95),
        period_steps=phase.period_steps,
        representative_window=window if window >= 0 else None,
        representative_step=step,
        representative_host=host,
        representative_attempt=attempt,
        weight=total_ps / clock.wall_ps if clock.wall_ps else 0.0,
        captured_steps=int(captured.sum()),
        captured_windows=len(np.unique(np.column_stack([keys[captured] for keys in window_keys]), axis=0)),
        input_ps=sum_ps(clock.input_ps[mine]) if clock.input_known else None,
        compile_ps=sum_ps(clock.compile_ps[mine]) if clock.compile_known else None,
        restart_from=restart.path if restart else None,
        restart_step=restart.step if restart else None,
        top_ops=estimates.phase_ops.get(phase.id, ()),
        breakdown=estimates.phases[phase.id],
    )


def representative_row(clock: RunClock, result: PhaseResult, phase: Phase, estimates: Estimates) -> int:
    """A row of the phase at its representative step number, a captured one before others."""
    rows = np.flatnonzero((result.labels == phase.id) & (clock.step == phase.representative))
    captured = rows[estimates.captured[rows]]
    return int((captured if len(captured) else rows)[0])


def _restart_from(checkpoints: Sequence[CheckpointSummary], attempt: int, step: int) -> CheckpointSummary | None:
    """The newest checkpoint before the step: of its attempt, else of an attempt before."""
    before = [c for c in checkpoints if c.attempt < attempt or (c.attempt == attempt and (c.step or 0) <= step)]
    before = [c for c in before if c.step is not None]
    return max(before, key=lambda c: (c.attempt, c.step or 0, -c.host), default=None)


def summarize(analysis: Analysis, verdict: Verdict) -> RunSummary:
    """Everything that the first screen shows. A run without steps has a summary too: it says so, and what to do.

    Args:
        analysis: of the run.
        verdict: what the findings come to (`findings.judge.judge_analysis`).
    """
    run, tables, clock = analysis.run, analysis.tables, analysis.clock
    result, names, labels, estimates = analysis.result, analysis.names, analysis.labels, analysis.estimates
    checkpoints = _list_checkpoints(tables["checkpoints"], clock)
    anatomies, phases = analysis.anatomies, _phases(analysis, checkpoints)
    energies_j = [phase.energy_j for phase in phases if phase.energy_j is not None]
    account = analysis.account
    seen = (tables[name] for name in ("checkpoints", "windows", "programs", "compilations"))
    events = tell_events(RunView(clock, labels, result.phases, result.slow, *seen))
    not_seen = count_not_seen(
        clock,
        estimates.captured,
        windows=tables["windows"],
        conversions=tables["conversions"],
        gaps=tables["gaps"],
        problems=run.problems,
    )
    host = reference_host(clock)
    elapsed_ps = sum(session.wall_ps for session in clock.of_host(host)) if host is not None else 0
    waits = _waits_for_others(clock, estimates.seen)
    hosts = tuple(
        replace(one, anatomy=anatomies.hosts.get(one.host)) for one in compare_hosts(clock, tables["windows"], waits)
    )
    not_enough = analysis.shortfall
    summary = RunSummary(
        version=SUMMARY_VERSION,
        run=run.path,
        verdict=verdict.text,
        advice=verdict.advice,
        bounds=verdict.bounds,
        is_healthy=verdict.is_healthy,
        time_went=tell_time(account, phases, events, hosts=len(hosts), elapsed_ps=elapsed_ps, not_enough=not_enough),
        state=next((state for state in ("killed", "live") if state in newest_states(clock)), "closed"),
        notes=(*_notes(analysis, not_seen, not_enough), *run.notes, *result.notes),
        method=result.method,
        wall_ps=clock.wall_ps,
        inside_ps=clock.inside_ps,
        outside_ps=clock.wall_ps - clock.inside_ps,
        elapsed_ps=elapsed_ps,
        steps=clock.n_steps,
        reference_host=host,
        account=account,
        phases=phases,
        strip=build_strip(clock, labels, names, host) if host is not None else (),
        categories=estimates.categories,
        input_wait_ps=sum_ps(clock.input_ps) if clock.input_known else None,
        top_ops=estimates.ops,
        events=events,
        checkpoints=checkpoints,
        hosts=hosts,
        not_seen=not_seen,
        cost=recording_cost(clock, tables["windows"], tables["counters"], noted_budget(run)),
        environment=_environment(run),
        machines=max(len(run.hostnames), 1),
        not_enough=not_enough,
        steps_from="; ".join(session_notes(run, "steps_from")) or None,
        steps_per_call=_steps_per_call(run),
        anatomy=anatomies.run,
        energy_j=sum(energies_j) if energies_j else None,
    )
    return _check_closure(summary)


def _phases(analysis: Analysis, checkpoints: tuple[CheckpointSummary, ...]) -> tuple[PhaseSummary, ...]:
    """The phases, with what their steps' time served and what these took of energy."""
    steps, energy_j = analysis.tables["steps"], energy_by_step(analysis.clock, analysis.tables["counters"])
    return tuple(
        replace(
            phase,
            anatomy=analysis.anatomies.phases.get(phase.id),
            energy_j=None if energy_j is None else float(energy_j[analysis.labels == phase.id].sum()),
        )
        for phase in summarize_phases(analysis.clock, analysis.result, analysis.estimates, checkpoints, steps=steps)
    )


def _list_checkpoints(table: pa.Table, clock: RunClock) -> tuple[CheckpointSummary, ...]:
    rows = []
    for row in table.to_pylist():
        session = clock.session(row["host"], row["attempt"])
        start_ps = row["start_ps"] + (session.offset_ps if session else 0)
        values = {name: value for name, value in row.items() if name not in {"bytes", "iterator_state", "loop_place"}}
        rows.append(CheckpointSummary(**{**values, "start_ps": start_ps, "size_bytes": row["bytes"]}))
    return tuple(sorted(rows, key=lambda row: (row.start_ps, row.host)))


def reference_host(clock: RunClock) -> int | None:
    """The host with most steps, of equals the lowest."""
    hosts = sorted({session.host for session in clock.sessions})
    return min(hosts, key=lambda host: (-int((clock.host == host).sum()), host), default=None)


def _notes(analysis: Analysis, not_seen: NotSeen, not_enough: Shortfall | None) -> list[str]:
    """What the reader must know before the numbers."""
    notes, clock = [], analysis.clock
    states = newest_states(clock)
    live, killed = (states.count(state) for state in ("live", "killed"))
    if live:
        notes.append(f"still being recorded ({_of(live, len(states))}): the numbers cover what was written so far")
    if killed:
        notes.append(f"killed, or lost its writer ({_of(killed, len(states))}): the numbers end with the last flush")
    if not clock.sessions:
        notes.append("no process has written anything yet")
    if not_enough is not None and not_enough.code != "killed":
        notes.append(f"{not_enough.text}. {not_enough.remedy}")
    if clock.n_steps:
        notes += session_notes(analysis.run, "steps_unfollowed")
        notes += _uncaptured(not_seen)
    return notes


def _uncaptured(not_seen: NotSeen) -> list[str]:
    if not_seen.pending_windows:
        waiting = format_counted(not_seen.pending_windows, "window waits", "windows wait")
        return [
            f"{waiting} to be converted and {'takes' if not_seen.pending_windows == 1 else 'take'} no part in any "
            "estimate: open the run with phasepoint.open_run, or run `phasepoint convert`"
        ]
    if not not_seen.captured_steps:
        return ["nothing was captured: times are the step clock's, there is no breakdown by category or op"]
    return []


def _steps_per_call(run: Run) -> int | None:
    """Of all processes where they agree; what is no number of several steps is not known."""
    found = {int(text) for text in session_notes(run, "steps_per_call") if text.isdecimal() and len(text) < 10}
    return found.pop() if len(found) == 1 and min(found) > 1 else None


def _of(count: int, total: int) -> str:
    return f"{count} of {total} processes" if total > 1 else "1 process"


def _environment(run: Run) -> tuple[tuple[str, str], ...]:
    manifest = run.manifest
    devices = [name for shard in run.shards for name in shard.session.devices] or manifest.devices
    rows = [
        ("command", " ".join(manifest.command)),
        ("python", manifest.python or ""),
        *((name, version) for name, version in sorted(manifest.frameworks.items())),
        ("devices", ", ".join(name if n == 1 else f"{n} × {name}" for name, n in Counter(devices).items())),
        ("machines", ", ".join(run.hostnames)),
        ("git commit", manifest.git_commit or ""),
        ("recorded with", f"{manifest.tool} {manifest.tool_version}"),
        ("format version", manifest.format_version),
        *((f"note: {name}", text) for name, text in (run.shards[0].session.notes.items() if run.shards else ())),
    ]
    return tuple((name, text) for name, text in rows if text)


def _check_closure(summary: RunSummary) -> RunSummary:
    """The summary, once every total in it is seen to be the sum of its parts.

    Raises:
        AssertionError: one is not: a fault of ours, never of the data.
    """
    for breakdown in (summary.account, summary.categories, *(phase.breakdown for phase in summary.phases)):
        closed(breakdown)
    for scope_ps, anatomy in (
        (summary.inside_ps, summary.anatomy),
        *((phase.total_ps, phase.anatomy) for phase in summary.phases),
        *((host.inside_ps, host.anatomy) for host in summary.hosts),
    ):
        if anatomy is not None and closed(anatomy).total_ps != scope_ps:
            raise AssertionError(f"an anatomy adds up to {anatomy.total_ps} ps, not to {scope_ps} ps")
    phases_ps = sum(phase.total_ps for phase in summary.phases)
    for what, found_ps, expected_ps in (
        ("phases", phases_ps, summary.inside_ps),
        ("categories", summary.categories.total_ps, summary.inside_ps),
        ("the account", summary.account.total_ps, summary.wall_ps),
        ("inside and outside", summary.inside_ps + summary.outside_ps, summary.wall_ps),
    ):
        if found_ps != expected_ps:
            raise AssertionError(f"{what} add up to {found_ps} ps, not to {expected_ps} ps")
    return summary


def _waits_for_others(clock: RunClock, seen: Captured) -> dict[int, HostWait]:
    """Host → the time that its captured steps spend in collectives which nothing hides."""
    wait_ps, host = seen.parts_ps[:, PARTS.index("communication")], clock.host[seen.row]
    found = {}
    for one in np.unique(host).tolist():
        mine = wait_ps[host == one]
        windows = len(np.unique(seen.window[host == one]))
        found[one] = HostWait(median_ps(mine), median_error_ps(mine, windows))
    return found
