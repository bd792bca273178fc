"""Made recordings of one job, for tests of the comparison: a network of equal blocks on a machine that disturbs it."""

from dataclasses import dataclass, field

import numpy as np

from phasepoint.core.tables import CATEGORIES, table_from_rows
from phasepoint.stack.diff.alignment import AlignedOp
from phasepoint.stack.diff.step_samples import StepSamples
from phasepoint.store import create_run, open_run, open_shard

START_NS = 1_700_000_000_000_000_000
US = 1_000_000

OPS = (("forward", "dot", 200), ("backward", "dot", 380), ("forward", "gelu_fusion", 40))
"""Direction, name and time in µs of the ops of a block."""


@dataclass(frozen=True)
class Machine:
    """How a machine disturbs a job; the figures are standard deviations of log times.

    Attributes:
        speed: of the whole recording.
        place: of each op of a recording: where its memory lies.
        drift: of windows, each half of the last one's.
        step: of each op of each step.
        preempted: share of ops that something interrupts, for about as long as they take.
    """

    speed: float = 0.06
    place: float = 0.004
    drift: float = 0.03
    step: float = 0.04
    preempted: float = 0.03


@dataclass(frozen=True)
class Job:
    """A job.

    Attributes:
        blocks: equal layers.
        slower: by layer, what its ops take times as long.
        head: whether a last layer is unlike the others.
        host_us: time of a step in which no op runs.
    """

    blocks: int = 8
    slower: dict[str, float] = field(default_factory=dict)
    head: bool = True
    host_us: int = 300

    def ops(self) -> dict[AlignedOp, float]:
        """Time in ps of each op."""
        found = {}
        for block in range(self.blocks):
            layer = f"Net/Block_{block}"
            for direction, name, time_us in OPS:
                found[AlignedOp("cpu", layer, direction, name, "f32[8]")] = time_us * US * self.slower.get(layer, 1.0)
        if self.head:
            found[AlignedOp("cpu", "Net/Head", "forward", "dot", "f32[9]")] = 90 * US * self.slower.get("Net/Head", 1.0)
        return dict(sorted(found.items()))


def recorded(seed, job=None, *, machine=None, windows=40, window_steps=5, path="made", faster=1.0):
    """One recording: samples of `windows` windows, and ten times as many steps on the clock."""
    job, machine, rng = job or Job(), machine or Machine(), np.random.default_rng(seed)
    keys, times = tuple(job.ops()), np.array(list(job.ops().values()))
    n = windows * window_steps
    shift = rng.normal(0, machine.speed) - np.log(faster)
    drift = np.zeros(windows)
    for i in range(windows):
        drift[i] = rng.normal(0, machine.drift) + (drift[i - 1] / 2 if i else 0)
    logs = shift + np.repeat(drift, window_steps) + rng.normal(0, machine.place, (len(keys), 1))
    values = times[:, None] * np.exp(logs + rng.normal(0, machine.step, (len(keys), n)))
    values *= 1 + (rng.random(values.shape) < machine.preempted) * rng.exponential(1, values.shape)
    self_ps = np.rint(values).astype(np.int64)
    step_ps = self_ps.sum(axis=0) + job.host_us * US
    clock = step_ps[rng.integers(0, n, 10 * n)]
    categories = np.zeros((len(CATEGORIES), n), np.int64)
    categories[CATEGORIES.index("compute")] = self_ps.sum(axis=0)
    categories[CATEGORIES.index("idle")] = job.host_us * US
    return StepSamples(
        path=path,
        program=None,
        clock_ps=clock,
        window=np.repeat(np.arange(windows), window_steps),
        step_ps=step_ps,
        keys=keys,
        self_ps=self_ps,
        executions=np.full(len(keys), n),
        categories_ps=categories,
    )


def written(path, samples, *, frameworks=None, devices=("cpu:0",), kind=None, numbered=0, evaluated=0, compile_us=0):
    """The recording as a run: its steps, windows, ops, breakdowns and instructions.

    Args:
        path: where.
        samples: of `recorded`; the clock is made of the captured steps alone.
        frameworks, devices: of the manifest.
        kind: hint of all steps.
        numbered: number from which the compiler counts its instructions.
        evaluated: first windows whose steps run another program.
        compile_us: what the first step compiles, on top of what it takes.
    """
    create_run(path, command=("python",), frameworks=frameworks or {"jax": "0.10"}, devices=devices)
    times = iter((START_NS,))
    end_ns = START_NS + int(samples.step_ps.sum()) // 1000  # the session ends with its last step
    writer = open_shard(path, 0, epoch_unix_ns=START_NS, clock=lambda: next(times, end_ns))
    at = np.concatenate([[0], np.cumsum(samples.step_ps)[:-1]]).tolist()
    steps = [
        {"step": i, "start_ps": at[i], "dur_ps": int(dur_ps), "kind": kind} for i, dur_ps in enumerate(samples.step_ps)
    ]
    steps[0] |= {"compile_ps": compile_us * US, "dur_ps": steps[0]["dur_ps"] + compile_us * US}
    names = [f"{key.name}.{numbered + i}" for i, key in enumerate(samples.keys)]
    writer.append("steps", table_from_rows("steps", steps))
    writer.append("windows", table_from_rows("windows", _windows(samples, at)))
    writer.append("ops", table_from_rows("ops", list(_ops(samples, names, evaluated))))
    writer.append("breakdowns", table_from_rows("breakdowns", list(_breakdowns(samples))))
    writer.append("instructions", table_from_rows("instructions", list(_instructions(samples, names))))
    writer.append("programs", table_from_rows("programs", [_program(1, "jit_train"), _program(2, "jit_eval")]))
    writer.close()
    return open_run(path)


def _program(program, name):
    return {"program": program, "name": name, "first_window": 0, "instructions": 9}


def _windows(samples, at):
    rows = []
    for window in range(int(samples.window.max()) + 1):
        steps = np.flatnonzero(samples.window == window)
        costs = dict.fromkeys(("start_cost_ps", "stop_cost_ps", "capture_cost_ps"), 0)
        rows.append(
            {
                **{"window": window, "first_step": int(steps[0]), "last_step": int(steps[-1])},
                **{"start_ps": at[steps[0]], "dur_ps": int(samples.step_ps[steps].sum()), "reason": "sample"},
                **{"probability": 0.1, **costs, "format": "xplane", "raw": None, "bytes": 1},
            }
        )
    return rows


def _ops(samples, names, evaluated):
    for step, window in enumerate(samples.window.tolist()):
        for i, key in enumerate(samples.keys):
            time_ps = int(samples.self_ps[i, step])
            where = {
                "window": window,
                "step": step,
                "device": "cpu:0",
                "program": 1 + (window < evaluated),
                "level": "op",
            }
            what = {"op": names[i], "category": "compute", "layer": key.layer, "count": 1}
            yield {**where, **what, "total_ps": time_ps, "self_ps": time_ps}


def _breakdowns(samples):
    for step, window in enumerate(samples.window.tolist()):
        for category, wall_ps in zip(CATEGORIES, samples.categories_ps[:, step].tolist(), strict=True):
            where = {"window": window, "step": step, "device": "cpu:0"}
            yield {**where, "category": category, "wall_ps": wall_ps}


def _instructions(samples, names):
    for key, name in zip(samples.keys, names, strict=True):
        scope = "transpose(jvp(Net))" if key.direction == "backward" else "jvp(Net)"
        yield {
            **{"program": 1, "computation": "main", "op": name, "opcode": key.name, "category": "compute"},
            **{"shape": f"{key.shape}{{0}}", "operands": [], "calls": [], "is_root": False, "is_entry": True},
            **{"layer": key.layer, "op_name": f"jit(step)/{scope}/{key.layer}/{key.name}"},
        }
