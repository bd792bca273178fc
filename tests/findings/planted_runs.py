"""Runs with planted causes, written through the store, and what the rules say of them."""

import numpy as np

from phasepoint.core.tables import CATEGORIES, table_from_columns, table_from_rows
from phasepoint.findings.view import FindingsView
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.store.sql import run_sql
from phasepoint.summary.analysis import analyse_run

MS = 10**9
EPOCH_NS = 1_700_000_000 * 10**9


def noisy_steps(n, *, step_ms=30.0, noise=0.05, seed=0):
    """Durations of ordinary steps: scatter with a heavy tail, and a level that wanders as on a machine in use."""
    rng = np.random.default_rng(seed)
    wander = np.convolve(rng.normal(size=n + 200), np.ones(200) / 200, mode="same")[:n]
    scatter = noise * rng.standard_t(4, size=n) / 2**0.5
    return np.asarray(step_ms * MS * np.exp(np.clip(scatter, -0.3, 1.0) + noise * 5 * wander), np.int64)


def steps_of(dur_ps, *, start_ps=0, **more):
    """Columns of a steps table, steps back to back."""
    dur_ps = np.asarray(dur_ps, np.int64)
    start = start_ps + np.cumsum(dur_ps) - dur_ps
    return {"step": np.arange(len(dur_ps)), "start_ps": start, "dur_ps": dur_ps, **more}


def capture(steps, shares, *, every=100, length=5, probability=0.05, first=3):
    """Rows of windows, conversions and breakdowns: every so many steps a window whose steps' time has these shares.

    Args:
        steps: from `steps_of`.
        shares: share of each category in step number `i`: `i -> {category: share}`; the rest is idle.
    """
    rows = {"windows": [], "conversions": [], "breakdowns": []}
    counts = dict.fromkeys(
        ("events", "spans", "ignored_events", "dropped_events", "misnested_events", "orphan_events"), 0
    )
    costs = {f"{name}_cost_ps": MS for name in ("start", "slowdown", "stop", "write", "capture")}
    dur_ps = np.asarray(steps["dur_ps"])
    for number, begin in enumerate(range(first, len(dur_ps) - length, every)):
        rows["windows"].append(
            {
                **{"window": number, "first_step": begin, "last_step": begin + length - 1, "reason": "sample"},
                **{"start_ps": int(steps["start_ps"][begin]), "dur_ps": int(dur_ps[begin : begin + length].sum())},
                **{"probability": probability, "format": "xplane", "bytes": 100, **costs},
            }
        )
        rows["conversions"].append({"window": number, **counts, "convert_cost_ps": MS})
        for step in range(begin, begin + length):
            parts = {name: int(share * dur_ps[step]) for name, share in shares(step).items()}
            parts["idle"] = int(dur_ps[step]) - sum(parts.values())
            rows["breakdowns"] += [
                {"window": number, "step": step, "device": "cpu:0", "category": name, "wall_ps": parts.get(name, 0)}
                for name in CATEGORIES
            ]
    return rows


def counter(name, time_ps, value, unit="ps"):
    return {"name": name, "unit": unit, "device": "host", "time_ps": int(time_ps), "value": float(value)}


def write_host(path, steps, rows=None, *, host=0):
    """One shard, closed at the end of its last step."""
    end_ps = int(steps["start_ps"][-1] + steps["dur_ps"][-1]) if len(steps["dur_ps"]) else MS
    now = {"ns": EPOCH_NS}
    shard = open_shard(path, host, epoch_unix_ns=EPOCH_NS, clock=lambda: now["ns"])
    shard.append("steps", table_from_columns("steps", steps))
    for name, some in (rows or {}).items():
        shard.append(name, table_from_rows(name, some))
    shard.flush()
    now["ns"] += -(-end_ps // 1000)
    shard.close()


def view_of(folder, *hosts):
    """The view of a run of hosts `(steps, rows)`."""
    path = create_run(folder / "run", command=["python", "train.py"], created_unix_ns=EPOCH_NS)
    for host, (steps, rows) in enumerate(hosts):
        write_host(path, steps, rows, host=host)
    return FindingsView(analyse_run(open_run(path)))


def check_finding(view, finding):
    """What holds of every finding: the interval is around the claim, no step gives more than it has, queries run."""
    claim = finding.claim
    assert claim.by_step.dtype == np.int64
    assert len(claim.by_step) == view.clock.n_steps
    assert (claim.by_step >= 0).all()
    assert (claim.by_step <= view.clock.dur_ps).all()
    assert 0 <= finding.low_ps <= claim.total_ps <= finding.high_ps
    assert finding.evidence
    for evidence in finding.evidence:
        found = run_sql(view.analysis.run, evidence.query)
        assert found.num_rows > 0, evidence.query
        assert evidence.table in evidence.query


def within(found_ps, planted_ps, ratio=0.25):
    return abs(found_ps - planted_ps) <= ratio * planted_ps
