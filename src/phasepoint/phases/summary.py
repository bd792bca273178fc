"""`summarize_run`: everything that the first screen shows, put together from a run's tables."""

from collections.abc import Sequence

import pyarrow as pa

from phasepoint.core.units import format_counted
from phasepoint.phases.accounting import account_time, closed
from phasepoint.phases.analysis import Analysis, analyse_run
from phasepoint.phases.capture_advice import noted_budget
from phasepoint.phases.clock import RunClock, sum_ps
from phasepoint.phases.cost import recording_cost
from phasepoint.phases.enough import find_shortfall, newest_states, session_notes
from phasepoint.phases.hosts import compare_hosts
from phasepoint.phases.not_seen import count_not_seen
from phasepoint.phases.phase_summary import summarize_phases
from phasepoint.phases.run_events import RunView, tell_events
from phasepoint.phases.strip import build_strip
from phasepoint.phases.summary_types import SUMMARY_VERSION, CheckpointSummary, NotSeen, RunSummary, Shortfall
from phasepoint.phases.verdict import write_verdict
from phasepoint.store import Run


def summarize_run(run: Run, *, method: str = "recurrent") -> RunSummary:
    """What a run's time went into, how sure that is, and what was not seen: `summarize` of `analyse_run`."""
    return summarize(analyse_run(run, method=method))


def summarize(analysis: Analysis) -> RunSummary:
    """Everything that the first screen shows. A run without steps has a summary too: it says so, and what to do."""
    run, tables, clock = analysis.run, analysis.tables, analysis.clock
    result, names, labels, estimates = analysis.result, analysis.names, analysis.labels, analysis.estimates
    checkpoints = _list_checkpoints(tables["checkpoints"], clock)
    phases = summarize_phases(clock, result, estimates, checkpoints)
    account = account_time(clock, labels, names, tables)
    seen = (tables[name] for name in ("checkpoints", "windows", "programs", "compilations"))
    events = tell_events(RunView(clock, labels, dict(names), result.slow, *seen))
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
    hosts = compare_hosts(clock, tables["steps"], tables["windows"])
    not_enough = find_shortfall(run, clock, tables)
    summary = RunSummary(
        version=SUMMARY_VERSION,
        run=run.path,
        verdict=write_verdict(account, phases, events, hosts=len(hosts), elapsed_ps=elapsed_ps, not_enough=not_enough),
        state=_state(clock),
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
    )
    return _check_closure(summary)


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


def _state(clock: RunClock) -> str:
    states = {clock.of_host(session.host)[-1].state for session in clock.sessions}
    return next((state for state in ("killed", "live") if state in states), "closed")


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
    rows = [
        ("command", " ".join(manifest.command)),
        ("python", manifest.python or ""),
        *((name, version) for name, version in sorted(manifest.frameworks.items())),
        ("devices", _devices(manifest.devices, [shard.session.devices for shard in run.shards])),
        ("machines", ", ".join(run.hostnames)),
        ("git commit", manifest.git_commit or ""),
        ("recorded with", f"{manifest.tool} {manifest.tool_version}"),
        ("format version", manifest.format_version),
        *((f"note: {name}", text) for name, text in (run.shards[0].session.notes.items() if run.shards else ())),
    ]
    return tuple((name, text) for name, text in rows if text)


def _devices(first: Sequence[str], others: Sequence[Sequence[str]]) -> str:
    names = [name for devices in others for name in devices] or list(first)
    counted = {name: names.count(name) for name in dict.fromkeys(names)}
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counted.items())


def _check_closure(summary: RunSummary) -> RunSummary:
    """The summary, once every total in it is seen to be the sum of its parts.

    Raises:
        AssertionError: one is not: a fault of ours, never of the data.
    """
    for breakdown in (summary.account, summary.categories, *(phase.breakdown for phase in summary.phases)):
        closed(breakdown)
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
