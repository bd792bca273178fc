"""Where flop, bytes and occupancy of executions come from: counters, the compiler, formulas over shapes."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.hlo.shapes import parse_array
from phasepoint.stack.shard.executions import distinct_instructions
from phasepoint.stack.shard.hierarchy import NONE, find_rows, inherited, nearest_above
from phasepoint.stack.shard.shard import StackShard
from phasepoint.stack.work.counters import add_counters
from phasepoint.stack.work.quantities import OpWork, Quantities, no_quantities, op_work, share_out


def counter_quantities(shard: StackShard, row: Int64s) -> Quantities:
    """What hardware counters and the profiler's own statistics say.

    Args:
        shard: the shard.
        row: `[n]` rows of the executions in `spans`.
    """
    found = no_quantities(len(row))
    spans, metrics = shard.table("spans"), shard.table("metrics")
    metrics = metrics.filter(metrics["span"].is_valid())
    if metrics.num_rows:
        place = np.full(spans.num_rows + 1, NONE, np.int64)
        place[row] = np.arange(len(row))
        add_counters(found, metrics, place[find_rows(spans, metrics["window"].to_numpy(), metrics["span"].to_numpy())])
    _add_launch_occupancy(shard, row, found)
    return found


def compiler_quantities(shard: StackShard, row: Int64s, time_ps: Int64s) -> Quantities:
    """What the compiler's cost analysis says of the executions of a program's instructions.

    An instruction that runs as several kernels has its flop and bytes shared among them by their time.

    Args:
        shard: the shard.
        row: `[n]` rows of the executions in `spans`.
        time_ps: `[n]` their times.
    """
    found = no_quantities(len(row))
    spans = shard.table("spans").select(
        ["window", "span", "parent", "launch", "step", "program", "op", "name", "track", "level"]
    )
    taken = spans.take(pa.array(row))
    known, work, types = _instruction_work(shard, taken)
    if not known.any():
        return found
    found.element_type[:] = types
    known &= ~_holds_known(spans, row, known)
    owner = _instances(taken)
    for quantity, values in zip((found.flop, found.bytes), work.T, strict=True):
        has = known & (values >= 0)
        quantity.learn(has, share_out(owner, np.where(has, values, 0), time_ps)[has], "compiler")
    return found


def formula_quantities(shard: StackShard, row: Int64s, time_ps: Int64s) -> Quantities:
    """What shapes say, by `formulas`, and the sizes of copies.

    The innermost operator with a formula counts. Where it ran as kernels they share its work by their time; those that
    only move data for it, to another layout, have none of its flop.

    Args:
        shard: the shard.
        row: `[n]` rows of the executions in `spans`.
        time_ps: `[n]` their times.
    """
    found = no_quantities(len(row))
    spans = shard.table("spans")
    _add_copies(spans.take(pa.array(row)), found)
    works, of_span = _formula_of_spans(spans)
    if not works:
        return found
    origin = _origin(spans, of_span)[row]
    runs_itself = np.isin(origin, row)
    own = (origin != NONE) & (~runs_itself | (origin == row))
    rows = np.flatnonzero(own)
    index = of_span[origin[rows]]
    for quantity, of_works in (
        (found.read_bytes, [work.read_bytes for work in works]),
        (found.write_bytes, [work.write_bytes for work in works]),
        (found.bytes, [work.read_bytes + work.write_bytes for work in works]),
    ):
        shared = share_out(origin[rows], np.array(of_works, np.int64)[index], time_ps[rows])
        quantity.learn(rows, shared, "formula")
    taken = spans.take(pa.array(row[rows]))
    flop = np.array([-1 if work.flop is None else work.flop for work in works], np.int64)[index]
    computes = ~_moves_data(taken) | ~np.isin(origin[rows], origin[rows[~_moves_data(taken)]])
    found.flop.learn(rows[flop >= 0], np.zeros(np.count_nonzero(flop >= 0), np.int64), "formula")
    has = (flop >= 0) & computes
    found.flop.learn(rows[has], share_out(origin[rows[has]], flop[has], time_ps[rows[has]]), "formula")
    types = np.array([work.element_type for work in works], object)[index]
    name, names = encode_column(taken["name"])
    rounds = (types == "f32") & np.array([_ROUNDS.search(text) is not None for text in names], np.bool_)[name]
    found.element_type[rows[computes]] = np.where(rounds, "tf32", types)[computes]
    return found


_ROUNDS = re.compile("tf32|s1688")
"""In the names of NVIDIA's kernels that round factors of f32 to tf32; `s1688` is the shape of that tensor instruction
(16 × 8 × 8, for tf32 alone with sums in f32: PTX ISA, mma.m16n8k8)."""


def _add_launch_occupancy(shard: StackShard, row: Int64s, found: Quantities) -> None:
    """The occupancy that profilers reckon from launch parameters; counters go before it."""
    launches = shard.table("launches")
    launches = launches.filter(launches["occupancy_ratio"].is_valid())
    if not launches.num_rows:
        return
    spans = shard.table("spans")
    ratio = np.full(spans.num_rows + 1, np.nan)
    ratio[find_rows(spans, launches["window"].to_numpy(), launches["span"].to_numpy())] = launches[
        "occupancy_ratio"
    ].to_numpy()
    fresh = ~np.isnan(ratio[row]) & ~found.occupancy.known
    found.occupancy.learn(fresh, ratio[row][fresh], "formula")


def _instruction_work(shard: StackShard, taken: pa.Table) -> tuple[NDArray[np.bool_], Int64s, NDArray[np.object_]]:
    """Whether each execution `[n]` is of a known instruction; flop and bytes `[n, 2]`, -1 where unknown; type."""
    work, types = np.full((taken.num_rows, 2), -1, np.int64), np.full(taken.num_rows, None, object)
    has_program = taken["program"].is_valid().to_numpy()
    if not has_program.any():
        return has_program, work, types
    columns = shard.table("instructions", ["program", "op", "flop", "bytes", "shape", "operands"]).to_pydict().values()
    costs = {(program, op): rest for program, op, *rest in zip(*columns, strict=True)}
    instructions, number = distinct_instructions(taken)
    found = [costs.get(instruction) for instruction in instructions]
    values = [(-1, -1) if cost is None else tuple(-1 if v is None else v for v in cost[:2]) for cost in found]
    work[:] = np.array(values, np.int64).reshape(-1, 2)[number]
    kinds = [_element_type(costs, program, cost) for (program, _), cost in zip(instructions, found, strict=True)]
    types[:] = np.array([None, *kinds], object)[1:][number]
    return has_program & (work >= 0).any(axis=1), work, types


def _element_type(costs: Mapping[tuple[int, str], list[Any]], program: int, cost: list[Any] | None) -> str | None:
    """Element type of an instruction's first operand that is an array, else of its result."""
    if cost is None:
        return None
    operands = [costs[program, name][2] for name in cost[3] if (program, name) in costs]
    arrays = [array for shape in (*operands, cost[2]) if (array := parse_array(shape)) is not None]
    return arrays[0].element_type if arrays else None


def _holds_known(spans: pa.Table, row: Int64s, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Executions inside which others of known work ran: a loop, a call. Their parts count."""
    chosen = np.zeros(spans.num_rows, np.bool_)
    chosen[row[known]] = True
    above = nearest_above(spans, chosen)[row[known]]
    holds = np.zeros(spans.num_rows, np.bool_)
    holds[above[above != NONE]] = True
    return holds[row]


def first_of_instances(taken: pa.Table) -> NDArray[np.bool_]:
    """`[n]` whether an execution is the first of the kernels that an op's execution ran as.

    Args:
        taken: rows of `spans`, in their order.
    """
    first = np.zeros(taken.num_rows, np.bool_)
    first[np.unique(_instances(taken), return_index=True)[1]] = True
    return first


def _instances(taken: pa.Table) -> Int64s:
    """`[n]` number of the op's execution that each is part of: kernels of one op one after another on a track.

    Ops are executions of their own.
    """
    parts = [encode_column(taken[name])[0] for name in ("window", "track", "step", "program", "op")]
    order = np.lexsort((np.arange(taken.num_rows), parts[1], parts[0]))
    begins = np.ones(taken.num_rows, np.bool_)
    same = np.ones(max(taken.num_rows - 1, 0), np.bool_)
    for part in parts:
        same &= part[order][1:] == part[order][:-1]
    is_kernel = pc.equal(taken["level"], "kernel").to_numpy()[order]
    begins[1:] = ~(same & is_kernel[1:])
    owner = np.empty(taken.num_rows, np.int64)
    owner[order] = np.cumsum(begins) - 1
    return owner


def _add_copies(taken: pa.Table, found: Quantities) -> None:
    """Copies and fills move the bytes that the profiler gives."""
    sized = taken["bytes"].is_valid().to_numpy() & _moves_data(taken)
    found.bytes.learn(sized, taken["bytes"].fill_null(0).to_numpy()[sized], "formula")


def _moves_data(taken: pa.Table) -> NDArray[np.bool_]:
    return np.asarray(pc.equal(taken["category"], "data_movement").to_numpy(), np.bool_)


def _formula_of_spans(spans: pa.Table) -> tuple[list[OpWork], Int64s]:
    """The distinct works by formula, and `[n_spans]` which of them each span has, -1 for none."""
    name, names = encode_column(spans["name"])
    shape, shapes = encode_column(spans["shape"])
    result = np.full(spans.num_rows, -1, np.int64)
    rows = np.flatnonzero(shape >= 0)
    if not len(rows):
        return [], result
    pairs, inverse = np.unique(np.stack((name[rows], shape[rows])), axis=1, return_inverse=True)
    works: dict[OpWork, int] = {}
    codes = []
    for i, j in pairs.T.tolist():
        work = op_work(names[i], shapes[j])
        codes.append(-1 if work is None else works.setdefault(work, len(works)))
    result[rows] = np.array(codes, np.int64)[inverse.ravel()]
    return list(works), result


def _origin(spans: pa.Table, of_span: Int64s) -> Int64s:
    """`[n_spans]` row of the innermost operator with a formula, the span's own or above it; `NONE` without."""
    has = of_span >= 0
    above = nearest_above(spans, has)[has]
    innermost = has.copy()
    innermost[above[above != NONE]] = False
    own = pa.array(np.arange(spans.num_rows), mask=~innermost)
    origin: Int64s = inherited(spans.append_column("origin", own), "origin").fill_null(NONE).to_numpy()
    return origin
