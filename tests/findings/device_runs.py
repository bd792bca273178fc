"""Runs whose devices' work is planted op by op, with the programs' instructions, for the rules that look at ops."""

import numpy as np
from planted_runs import EPOCH_NS, capture, noisy_steps, steps_of

from phasepoint.core.tables import table_from_columns, table_from_rows
from phasepoint.findings.view import FindingsView
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.summary.analysis import analyse_run

N = 600
PROGRAM = 7
US = 10**6


def instruction(op, opcode, shape, *operands, computation="main", calls=(), **more):
    """One row of `instructions`."""
    row = {"program": PROGRAM, "computation": computation, "op": op, "opcode": opcode, "category": "compute"}
    row |= {"shape": shape, "operands": list(operands), "calls": list(calls), "is_root": False, "is_entry": True}
    return row | more


class Planner:
    """Ops by their share of the step; what is left of the step is idle.

    Attributes:
        shares: op → (category, share of the step's time).
    """

    def __init__(self, **shares):
        self.shares = shares

    def ops(self, steps, rows, *, device="cpu:0", program=PROGRAM, level="op", count=1):
        """Rows of `ops` for the captured steps of `rows`."""
        for one in rows["windows"]:
            for step in range(one["first_step"], one["last_step"] + 1):
                for op, (category, share) in self.shares.items():
                    ps = int(share * steps["dur_ps"][step])
                    yield {
                        **{"window": one["window"], "step": step, "device": device, "op": op},
                        **{"program": program[op] if isinstance(program, dict) else program},
                        **{"level": level, "category": category, "layer": None, "count": count},
                        **{"total_ps": ps, "self_ps": ps},
                    }

    def of_categories(self, step):
        sums = {}
        for category, share in self.shares.values():
            sums[category] = sums.get(category, 0.0) + share
        return sums


def view_of_ops(folder, shares, instructions=(), *, noise=0.05, every=60, seed=0, spans=None, **of_ops):
    """A run of 600 steps of 30 ms with these ops.

    Args:
        shares: op → (category, share of the step's time).
        instructions: rows of `instructions`, of one program.
        spans: `(steps, rows) -> rows of spans`.
        of_ops: of `Planner.ops`; `devices`: of the session.
    """
    devices = of_ops.pop("devices", ("cpu:0 cpu",))
    steps, planner = steps_of(noisy_steps(N, noise=noise, seed=seed)), Planner()
    planner.shares = shares
    rows = capture(steps, planner.of_categories, every=every)
    rows["ops"] = list(planner.ops(steps, rows, **of_ops))
    rows["instructions"] = list(instructions)
    device = of_ops.get("device", "cpu:0")
    rows["breakdowns"] = [row | {"device": device} for row in rows["breakdowns"]]
    if spans is not None:
        rows["spans"] = list(spans(steps, rows))
    path = create_run(folder / "run", command=["python", "train.py"], created_unix_ns=EPOCH_NS)
    now = {"ns": EPOCH_NS}
    shard = open_shard(path, 0, epoch_unix_ns=EPOCH_NS, devices=devices, clock=lambda: now["ns"])
    shard.append("steps", table_from_columns("steps", steps))
    for name, some in rows.items():
        if some:
            shard.append(name, table_from_rows(name, some))
    shard.flush()
    now["ns"] += int(steps["start_ps"][-1] + steps["dur_ps"][-1]) // 1000 + 1
    shard.close()
    return FindingsView(analyse_run(open_run(path)))


def inside_ps(view):
    return int(np.sum(view.clock.dur_ps))
