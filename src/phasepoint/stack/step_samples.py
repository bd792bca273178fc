"""What a run's steps, and the ops and categories of its captured steps, took: the samples that runs are compared by."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.core.encoding import encode_rows, first_rows
from phasepoint.core.errors import NoDataError
from phasepoint.core.tables import CATEGORIES
from phasepoint.phases.captured import StepKeys, step_keys
from phasepoint.stack.op_keys import OpKey, encode_keys
from phasepoint.store import Run

Int64s = NDArray[np.int64]

_DEVICE_LEVELS = ("op", "kernel")
_SAMPLE = ("host", "attempt", "window", "step")


@dataclass(frozen=True, eq=False)
class StepSamples:
    """The steps of one kind of one recording.

    Attributes:
        path: the run.
        clock_ps: `[n_steps]`, duration of every step, in the order of hosts and steps.
        clock_host: `[n_steps]`, host and attempt of each, as a number.
        window: `[n]`, the window that saw each captured step, as a number from 0.
        step_ps: `[n]`, duration of each captured step.
        keys: `[n_ops]`, the ops.
        self_ps: `[n_ops, n]`, self time of each op in each captured step.
        executions: `[n_ops]`, over all captured steps.
        categories_ps: `[len(CATEGORIES), n]`, wall time of each category, the mean of the devices.
    """

    path: str
    clock_ps: Int64s
    clock_host: Int64s
    window: Int64s
    step_ps: Int64s
    keys: tuple[OpKey, ...]
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


def read_step_samples(run: Run, kind: str | None) -> StepSamples:
    """The samples of a run whose captures are converted.

    Args:
        run: the run.
        kind: steps of this hint alone; None for those without one.

    Raises:
        NoDataError: the run has no steps of this kind, or none captured with its ops.
        StoreError: a table cannot be read.
    """
    steps = run.table("steps")
    same = pc.is_null(steps["kind"]) if kind is None else pc.equal(steps["kind"].cast(pa.string()), kind)
    steps = steps.filter(pc.fill_null(same, False))
    if not steps.num_rows:
        raise NoDataError(
            f"{run.path}: holds no steps to compare; record a training loop, or import a trace with steps"
        )
    keys = step_keys(steps)
    ops, row = _captured(keys, _device_ops(run.table("ops")))
    if not ops.num_rows:
        raise NoDataError(
            f"{run.path}: no step was captured with its ops, so nothing says which layer took the time; "
            "record for longer or with a larger --budget"
        )
    sample = encode_rows(ops, _SAMPLE)
    first = first_rows(sample)
    op_keys, op = encode_keys(run, ops)
    chosen = ops.take(pa.array(first))
    return StepSamples(
        path=run.path,
        clock_ps=steps["dur_ps"].to_numpy(),
        clock_host=encode_rows(steps, ("host", "attempt")),
        window=encode_rows(chosen, ("host", "attempt", "window")),
        step_ps=steps["dur_ps"].to_numpy()[row[first]],
        keys=op_keys,
        self_ps=_sums((op, sample), (len(op_keys), len(first)), ops["self_ps"]),
        executions=_sums((op,), (len(op_keys),), ops["count"]),
        categories_ps=_read_categories(run, chosen),
    )


def _captured(keys: StepKeys, ops: pa.Table) -> tuple[pa.Table, Int64s]:
    """The ops within these steps, and the row of its step for each."""
    row = keys.rows_of(ops)
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
