"""What a run's steps, and the ops and categories of its captured steps, took: the samples that runs are compared by."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_rows, first_rows, renumber
from phasepoint.core.errors import NoDataError
from phasepoint.core.tables import CATEGORIES
from phasepoint.phases.clock.steps import StepSeries, read_series
from phasepoint.stack.diff.alignment import AlignedOp, encode_keys
from phasepoint.store import Run

NO_STEPS = "holds no steps to compare; record a training loop, or import a trace with its steps"

_DEVICE_LEVELS = ("op", "kernel")
_SAMPLE = ("host", "attempt", "window", "step")


@dataclass(frozen=True, eq=False)
class StepSamples:
    """The steps of one kind of one recording.

    Attributes:
        path: the run.
        program: name of the program that most of each captured step's work is in, where they have several such;
            None where they have one or none. Then only steps of that program are here, and the clock is theirs.
        clock_ps: `[n_steps]`, duration of every step less what it compiled, in the order of hosts and steps.
        window: `[n]`, the window that saw each captured step, as a number from 0.
        step_ps: `[n]`, duration of each captured step.
        keys: `[n_ops]`, the ops.
        self_ps: `[n_ops, n]`, self time of each op in each captured step.
        executions: `[n_ops]`, over all captured steps.
        categories_ps: `[len(CATEGORIES), n]`, wall time of each category, the mean of the devices.
    """

    path: str
    program: str | None
    clock_ps: Int64s
    window: Int64s
    step_ps: Int64s
    keys: tuple[AlignedOp, ...]
    self_ps: Int64s
    executions: Int64s
    categories_ps: Int64s


def step_kinds(run: Run) -> dict[str | None, int]:
    """Time of the steps of each hint (`run.phase`), None for those without one.

    Raises:
        StoreError: the table cannot be read.
    """
    steps = run.table("steps", columns=["kind", "dur_ps"])
    kinds, durations = steps["kind"].to_pylist(), steps["dur_ps"].to_pylist()
    times: dict[str | None, int] = {}
    for kind, dur_ps in zip(kinds, durations, strict=True):
        times[kind] = times.get(kind, 0) + dur_ps
    return times


@dataclass(frozen=True, eq=False)
class CapturedSteps:
    """The captured steps of one kind of a run.

    Attributes:
        run: the run.
        clock_ps: `[n_steps]`, duration of every step of the kind, captured or not.
        ops: rows of `ops` in captured steps, with `step_ps`, the step's duration.
        sample: `[n_rows]`, the captured step of each row, as a number from 0.
        programs: of each captured step, the program that most of its work is in; None where it has none.
    """

    run: Run
    clock_ps: Int64s
    ops: pa.Table
    sample: Int64s
    programs: tuple[str | None, ...]

    def main_programs(self) -> dict[str | None, int]:
        """Time of the captured steps by their program."""
        times: dict[str | None, int] = {}
        step_ps = self.ops["step_ps"].to_numpy()[first_rows(self.sample)]
        for name, dur_ps in zip(self.programs, step_ps.tolist(), strict=True):
            times[name] = times.get(name, 0) + dur_ps
        return times


def read_captured_steps(run: Run, kind: str | None) -> CapturedSteps:
    """The captured steps of a run whose captures are converted.

    Args:
        run: the run.
        kind: steps of this hint alone; None for those without a hint.

    Raises:
        NoDataError: the run has no steps of this kind, or none captured with its ops.
        StoreError: a table cannot be read.
    """
    steps = run.table("steps")
    same = pc.is_null(steps["kind"]) if kind is None else pc.equal(steps["kind"].cast(pa.string()), kind)
    steps = steps.filter(pc.fill_null(same, False))
    if not steps.num_rows:
        raise NoDataError(f"{run.path}: {NO_STEPS}")
    compile_ps = pc.fill_null(steps["compile_ps"], 0).to_numpy()
    clock_ps = np.maximum(steps["dur_ps"].to_numpy() - compile_ps, 1)
    ops, row = _of_steps(read_series(steps), _device_ops(run.table("ops")))
    if not ops.num_rows:
        raise NoDataError(
            f"{run.path}: no step was captured with its ops, so nothing says which layer took the time; "
            "record for longer or with a larger --budget"
        )
    ops = ops.append_column("step_ps", pa.array(clock_ps[row]))
    sample = encode_rows(ops, _SAMPLE)
    return CapturedSteps(run, clock_ps, ops, sample, _programs_of_steps(run, ops, sample))


def step_samples(captured: CapturedSteps, program: str | None = None) -> StepSamples:
    """The samples of a run.

    Args:
        captured: its captured steps.
        program: steps whose work is mostly in this program alone, one of `captured.programs`; None for all.
    """
    ops, sample = captured.ops, captured.sample
    if program is not None:
        kept = np.array([name == program for name in captured.programs])
        ops, sample = ops.filter(pa.array(kept[sample])), renumber(sample[kept[sample]])[1]
    first = first_rows(sample)
    op_keys, op = encode_keys(captured.run, ops)
    chosen = ops.take(pa.array(first))
    step_ps = chosen["step_ps"].to_numpy()
    return StepSamples(
        path=captured.run.path,
        program=program,
        clock_ps=captured.clock_ps if program is None else step_ps,
        window=encode_rows(chosen, ("host", "attempt", "window")),
        step_ps=step_ps,
        keys=op_keys,
        self_ps=_sums((op, sample), (len(op_keys), len(first)), ops["self_ps"]),
        executions=_sums((op,), (len(op_keys),), ops["count"]),
        categories_ps=_read_categories(captured.run, chosen),
    )


def _programs_of_steps(run: Run, ops: pa.Table, sample: Int64s) -> tuple[str | None, ...]:
    """Name of the program with the most self time in each captured step; None where that work has no program."""
    keys = ("host", "attempt", "program")
    rows = run.table("programs", columns=["program", "name"]).to_pylist()
    names = {tuple(row[key] for key in keys): row["name"] for row in rows}
    code = encode_rows(ops, keys)
    of_code = [names.get(tuple(row.values())) for row in ops.take(pa.array(first_rows(code))).select(keys).to_pylist()]
    found = list(dict.fromkeys(of_code))
    place = np.array([found.index(name) for name in of_code], np.int64)
    times = _sums((sample, place[code]), (int(sample.max()) + 1, len(found)), ops["self_ps"])
    return tuple(found[i] for i in times.argmax(axis=1).tolist())


def _of_steps(steps: StepSeries, ops: pa.Table) -> tuple[pa.Table, Int64s]:
    """The ops within these steps, and the row of its step for each."""
    row = steps.rows_of(ops)
    known = row >= 0
    return ops.filter(pa.array(known)), row[known]


def _device_ops(ops: pa.Table) -> pa.Table:
    """Ops and kernels on a device; where there are none, whatever there is: a CPU's framework ops run on the host."""
    is_work = pc.is_in(ops["level"].cast(pa.string()), pa.array(_DEVICE_LEVELS))
    on_device = pc.not_equal(ops["device"].cast(pa.string()), "host")
    for wanted in (pc.and_(is_work, on_device), is_work):
        found = ops.filter(wanted)
        if found.num_rows:
            return found
    return ops


def _sums(place: tuple[Int64s, ...], shape: tuple[int, ...], values: pa.ChunkedArray) -> Int64s:
    sums = np.zeros(shape, np.int64)
    np.add.at(sums, place, values.to_numpy())
    return sums


def _read_categories(run: Run, samples: pa.Table) -> Int64s:
    """Wall time by category and captured step; of several devices the mean, rounded down."""
    rows = run.table("breakdowns")
    both = pa.concat_tables([samples.select(_SAMPLE), rows.select(_SAMPLE)], promote_options="permissive")
    code = encode_rows(both, _SAMPLE)
    place = np.full(int(code.max()) + 1, -1, np.int64)
    place[code[: samples.num_rows]] = np.arange(samples.num_rows)
    sample = place[code[samples.num_rows :]]
    known = sample >= 0
    rows, sample = rows.filter(pa.array(known)), sample[known]
    number = {name: i for i, name in enumerate(CATEGORIES)}
    category = np.array([number[name] for name in rows["category"].to_pylist()], np.int64)
    shape = (len(CATEGORIES), samples.num_rows)
    sums = _sums((category, sample), shape, rows["wall_ps"])
    devices = _sums((category, sample), shape, pa.chunked_array([pa.array(np.ones(len(sample), np.int64))]))
    return sums // np.maximum(devices, 1)
