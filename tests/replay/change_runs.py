"""Runs and replays of known step times, for the tests of estimates under a change."""

import numpy as np

from phasepoint.core.tables import CATEGORIES, table_from_rows
from phasepoint.replay.folder import ReplayRecord, write_replay
from phasepoint.store import create_run, open_run, open_shard

START_NS = 1_700_000_000_000_000_000
MS = 10**9
EVAL = range(300, 340)
"""Steps of the job that it calls its evaluation."""
N_STEPS = 500


def usual_job(rng=None, *, ms=20, sd=0.0):
    """Step times in ps of 500 steps: a compilation, training, 40 steps of evaluation at 5 ms; noise of `sd`."""
    dur = np.full(N_STEPS, ms * MS)
    dur[list(EVAL)] = 5 * MS
    if rng is not None:
        dur = (dur * np.exp(sd * rng.normal(size=N_STEPS))).astype(np.int64)
    return dur


def write_run(
    path,
    dur_ps,
    *,
    first_step=0,
    compile_ps=None,
    saved_ps=None,
    windows=(),
    shares=None,
    ops=None,
    scalars=(),
    devices=("cpu:0 cpu",),
    hosts=1,
    outside_ps=0,
    record=None,
):
    """Write a run and open it.

    Args:
        path: where.
        dur_ps: [n] step times.
        first_step: number of the first.
        compile_ps: step → part of it that compiled.
        saved_ps: step → part of it, at its end, that a checkpoint held.
        windows: (first step, last step) of each.
        shares: category → share of each captured step, adding up to 1.
        ops: op → self time as a share of each captured step.
        scalars: (step, name, value).
        devices: of each host.
        hosts: how many did the same.
        outside_ps: time after the last step.
        record: fields of replay.json that differ from the usual; None for a run that is no replay.
    """
    dur_ps = np.asarray(dur_ps, np.int64)
    create_run(path, command=("python", "train.py"), frameworks={"jax": "0.10"}, devices=devices)
    start = np.concatenate([[0], np.cumsum(dur_ps)])
    end_ns = START_NS + -(-int(start[-1] + outside_ps) // 1000)
    for host in range(hosts):
        writer = open_shard(path, host, epoch_unix_ns=START_NS, devices=devices, clock=lambda: end_ns)
        tables = {
            "steps": _steps(dur_ps, start, first_step, compile_ps or {}),
            "windows": [_window(i, *window, dur_ps, start, first_step) for i, window in enumerate(windows)],
            "breakdowns": _breakdowns(windows, shares or {"compute": 1.0}, dur_ps, first_step),
            "ops": _ops(windows, ops or {}, dur_ps, first_step),
            "checkpoints": [_saved(step, held, start, first_step) for step, held in (saved_ps or {}).items()],
            "scalars": [{"step": step, "name": name, "value": value} for step, name, value in scalars],
        }
        for name, rows in tables.items():
            writer.append(name, table_from_rows(name, rows))
        writer.close()
    if record is not None:
        write_record(path, record)
    return open_run(path)


def write_record(path, fields):
    usual = {
        **{"original": "runs/job", "phase": "train", "phase_id": 0, "checkpoint": None, "first_step": 0},
        **{"target_first": 0, "target_last": 0, "last_step": 0, "command": (), "status": "done"},
    }
    write_replay(path, ReplayRecord(**(usual | fields)))


def _steps(dur_ps, start, first_step, compile_ps):
    for i, dur in enumerate(dur_ps.tolist()):
        step = first_step + i
        kind = "eval" if step in EVAL else None
        row = {"step": step, "start_ps": int(start[i]), "dur_ps": dur, "input_ps": 0, "kind": kind}
        yield {**row, "compile_ps": compile_ps.get(step, 0)}


def _window(number, first, last, dur_ps, start, first_step):
    a, b = first - first_step, last - first_step
    costs = dict.fromkeys(("start_cost_ps", "stop_cost_ps", "capture_cost_ps"), 0)
    where = {"window": number, "first_step": first, "last_step": last, "start_ps": int(start[a])}
    what = {"dur_ps": int(dur_ps[a : b + 1].sum()), "reason": "sample", "probability": 0.1}
    return {**where, **what, **costs, "format": "xplane", "raw": None, "bytes": 1}


def _breakdowns(windows, shares, dur_ps, first_step):
    for number, (first, last) in enumerate(windows):
        for step in range(first, last + 1):
            for category in CATEGORIES:
                wall_ps = int(dur_ps[step - first_step] * shares.get(category, 0))
                yield {"window": number, "step": step, "device": "cpu:0", "category": category, "wall_ps": wall_ps}


def _ops(windows, ops, dur_ps, first_step):
    for number, (first, last) in enumerate(windows):
        for step in range(first, last + 1):
            for op, share in ops.items():
                time_ps = int(dur_ps[step - first_step] * share)
                where = {"window": number, "step": step, "device": "cpu:0", "program": None, "level": "op"}
                times = {"count": 1, "total_ps": time_ps, "self_ps": time_ps}
                yield {**where, "op": op, "category": "compute", **times}


def _saved(step, held_ps, start, first_step):
    at = int(start[step - first_step + 1]) - held_ps
    return {"step": step, "path": f"ckpt/{step}", "start_ps": at, "dur_ps": held_ps, "framework": "torch"}
