"""The programs of a recorded run, each with its measured times, so that prediction stands beside measurement."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.errors import NoDataError, SourceError
from phasepoint.learn.hlo_graph.kernels import Kernels, kernels_of_module
from phasepoint.learn.predict.hlo import MOST_BYTES, Program, read_hlo
from phasepoint.learn.predict.types import Measured
from phasepoint.store import Run, Shard

_WAITS_ON_CPU = (
    "measured on a CPU whose threads share the work: spans of kernels hold waits for one another, so that their sum is "
    "above what one core would take"
)

KernelTimes = Mapping[str, tuple[int, int, str]]
"""Name of a kernel → executions, self time of all of them in ps, device."""


def run_programs(run: Run) -> tuple[Program, ...]:
    """The programs of a run's first process that has any, the one with most measured time first.

    Args:
        run: opened, its captures converted.

    Raises:
        NoDataError: it holds no programs, or none was kept whole.
        SourceError: a program in it is damaged.
    """
    for shard in run.shards:
        programs = _shard_programs(run, shard)
        if programs:
            return tuple(sorted(programs, key=lambda one: -_measured_ps(one)))
    raise NoDataError(
        f"{run.path}: the run holds no compiled programs (HLO) to predict; JAX runs hold them if their windows were "
        f"converted by this release: record it anew, or give an HLO file"
    )


def _shard_programs(run: Run, shard: Shard) -> list[Program]:
    rows = run.table("programs", shard=shard.name)
    if "hlo" not in rows.column_names:
        return []
    times = _times_by_program(run, shard)
    found = []
    for row in rows.select(["program", "name", "hlo"]).to_pylist():
        if row["hlo"] is None:
            continue
        where = f"program {row['name']} of {shard.name}"
        program = read_hlo(_unpack(row["hlo"], where), where)
        measured = _measured(kernels_of_module(program.module), times.get(row["program"], {}))
        notes = program.notes
        if measured is not None and measured.device.startswith("cpu"):
            notes = (*notes, _WAITS_ON_CPU)
        found.append(replace(program, measured=measured, notes=notes))
    return found


def _times_by_program(run: Run, shard: Shard) -> Mapping[int, KernelTimes]:
    columns = ["program", "op", "device", "level", "count", "self_ps"]
    ops = run.table("ops", columns=columns, shard=shard.name)
    on_device = pc.and_(pc.is_valid(ops["program"]), pc.is_in(ops["level"], pa.array(["op", "kernel"])))
    totals = (
        ops.filter(on_device).group_by(["program", "op", "device"]).aggregate([("count", "sum"), ("self_ps", "sum")])
    )
    found: dict[int, dict[str, tuple[int, int, str]]] = {}
    for row in totals.to_pylist():
        of = found.setdefault(row["program"], {})
        count, self_ps, _ = of.get(row["op"], (0, 0, ""))
        of[row["op"]] = count + row["count_sum"], self_ps + row["self_ps_sum"], str(row["device"])
    return found


def _measured(kernels: Kernels, times: KernelTimes) -> Measured | None:
    """Self time of a program's kernels in one execution; None where none of them was seen."""
    seen = [kernel for kernel in kernels.kernels if kernel.name in times]
    runs = [times[kernel.name][0] / kernel.executions for kernel in seen if kernel.executions]
    if not runs:
        return None
    executions = max(round(median(runs)), 1)
    total = sum(times[kernel.name][1] for kernel in seen)
    each = {kernel.name: times[kernel.name][1] // max(times[kernel.name][0], 1) for kernel in seen}
    return Measured(total // executions, executions, times[seen[0].name][2], each)


def _measured_ps(program: Program) -> int:
    return 0 if program.measured is None else program.measured.time_ps * program.measured.executions


def _unpack(data: bytes, where: str) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            plain: bytes = stream.read(MOST_BYTES + 1)
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(f"{where}: its HLO is damaged: {error}; convert the run's windows again") from error
    if len(plain) > MOST_BYTES:
        raise SourceError(f"{where}: more than 2 GiB of HLO, which no proto can hold")
    return plain
