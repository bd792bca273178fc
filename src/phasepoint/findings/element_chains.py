"""Chains of elementwise ops that ran one after another as kernels or programs of their own, from the spans."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.core.units import PS_PER_US
from phasepoint.findings.elementwise import CHEAP, class_of_instruction, class_of_name, is_view
from phasepoint.findings.finding import Int64s
from phasepoint.findings.shape_text import parse_array
from phasepoint.findings.view import FindingsView
from phasepoint.phases.captured import step_keys

Floats = NDArray[np.float64]

LEAST_OP_PS = 5 * PS_PER_US
"""An op shorter than 5 µs takes its launch's time rather than its bytes'."""
MOST_GAP_PS = 200 * PS_PER_US
"""Between two ops of a chain at most 200 µs count as the later one's launch; what is longer is other work's."""

_COLUMNS = ("host", "attempt", "window", "device", "name", "program", "start_ps", "self_ps", "track", "span", "parent")


@dataclass(frozen=True, eq=False)
class ElementChains:
    """What chains of elementwise ops take of the captured steps whose spans were kept.

    Attributes:
        index: `[n]` those steps, as positions in `Captured.row`.
        bytes_ps: `[n]` time that goes with the bytes which one fused op would not move.
        launch_ps: `[n]` gaps between the ops of the chains.
        ops: name → its time in chains, the largest first.
    """

    index: Int64s
    bytes_ps: Floats
    launch_ps: Floats
    ops: dict[str, int]


def find_chains(view: FindingsView) -> ElementChains:
    """Chains of two or more.

    Two ops are of one chain if one follows the other on a device, both are elementwise, and, where programs are known,
    each is all that its program does and both have as many elements.

    Of a chain of n ops, each of which reads its operand and writes its result, one fused op moves 1/n of the bytes. An
    op that may be bound by its arithmetic counts as much as the chain's median of the others.
    """
    spans, index, seen = _device_spans(view)
    kind, size = _classes(view, spans)
    start_ps, self_ps = (spans.column(name).to_numpy() for name in ("start_ps", "self_ps"))
    place = _codes(spans, ("host", "attempt", "window", "device"))
    order = np.lexsort((start_ps, place))
    place, index, kind, size, start_ps, self_ps = (x[order] for x in (place, index, kind, size, start_ps, self_ps))
    same = (np.diff(place) == 0) & (np.diff(index) == 0) & (np.diff(size) == 0) & (kind[1:] > 0) & (kind[:-1] > 0)
    first = np.flatnonzero(np.concatenate(([True], ~same)))
    last = np.append(first[1:], len(place))
    bytes_ps, launch_ps = np.zeros((2, len(view.captured.row)))
    names = spans.column("name").to_pylist()
    ops: dict[str, int] = {}
    for begin, end in zip(first[last - first > 1].tolist(), last[last - first > 1].tolist(), strict=True):
        one = slice(begin, end)
        time_ps = _memory_time(kind[one], self_ps[one])
        gaps = start_ps[begin + 1 : end] - start_ps[begin : end - 1] - self_ps[begin : end - 1]
        bytes_ps[index[begin]] += time_ps.sum() * (1 - 1 / (end - begin))
        launch_ps[index[begin]] += np.clip(gaps, 0, MOST_GAP_PS).sum() if time_ps.any() else 0
        for row, ps in zip(order[one].tolist(), time_ps.astype(np.int64).tolist(), strict=True):
            ops[names[row]] = ops.get(names[row], 0) + ps
    return ElementChains(seen, bytes_ps[seen], launch_ps[seen], dict(sorted(ops.items(), key=lambda item: -item[1])))


def _memory_time(kind: Int64s, self_ps: Int64s) -> Floats:
    """`[n]` of each op's time what its bytes take; nothing where no op of the chain is surely bound by them."""
    cheap = kind == CHEAP
    if not cheap.any():
        return np.zeros(len(kind))
    return np.where(cheap, self_ps, np.minimum(self_ps, np.median(self_ps[cheap])))


def _device_spans(view: FindingsView) -> tuple[pa.Table, Int64s, Int64s]:
    """Spans that may be of a chain, or end one; the captured step of each; all captured steps with spans."""
    spans = view.table("spans").filter(pc.is_valid(view.table("spans").column("step")))
    captured = view.captured
    of_row = step_keys(view.table("steps")).rows_of(spans)
    index = np.searchsorted(captured.row, of_row)
    known = index < len(captured.row)
    known[known] = captured.row[index[known]] == of_row[known]
    known[known] = captured.window[index[known]] == spans.column("window").to_numpy()[known]
    seen = np.unique(index[known])
    names = spans.column("name").cast(pa.string())
    of_framework = pc.starts_with(names, "aten::").to_numpy()
    nested = _inside_another(spans, of_framework)
    views = _by_name(names, is_view).astype(bool)
    device = pc.not_equal(spans.column("device").cast(pa.string()), "host").to_numpy()
    level = pc.is_in(spans.column("level").cast(pa.string()), value_set=pa.array(["op", "kernel"])).to_numpy()
    wrapper = pc.starts_with(names, "autograd::").to_numpy() | pc.match_substring_regex(names, "Backward0?$").to_numpy()
    keep = known & device & level & ~nested & ~views & ~wrapper
    return spans.filter(pa.array(keep)).select(_COLUMNS), index[keep], seen


def _inside_another(spans: pa.Table, of_framework: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether an ATen operator stands inside another, which it does the work of."""
    place = _codes(spans, ("host", "attempt", "window"))
    parent = pc.fill_null(spans.column("parent"), -1).to_numpy()
    span = spans.column("span").to_numpy()
    width = int(span.max(initial=0)) + 2
    outer = np.sort((place * width + span)[of_framework])
    mine = place * width + parent
    at = np.minimum(np.searchsorted(outer, mine), max(len(outer) - 1, 0))
    return of_framework & (parent >= 0) & (outer[at] == mine) if len(outer) else np.zeros(len(span), bool)


def _classes(view: FindingsView, spans: pa.Table) -> tuple[Int64s, Int64s]:
    """Class of every span as of `elementwise`, 0 where it is too short; elements of its result, -1 where not known."""
    names = spans.column("name").cast(pa.string())
    kind, size = _by_name(names, class_of_name).astype(np.int64), np.full(len(names), -1, np.int64)
    programs = pc.fill_null(spans.column("program"), -1).to_numpy()
    compiled = np.flatnonzero(programs >= 0)
    ran: dict[tuple[int, int, int], set[str]] = {}
    for one in view.device_ops.kinds:
        if one.program is not None:
            ran.setdefault((one.host, one.attempt, one.program), set()).add(one.op)
    alone = {key: next(iter(ops)) for key, ops in ran.items() if len(ops) == 1}
    hosts, attempts = (spans.column(name).to_numpy() for name in ("host", "attempt"))
    for row in compiled.tolist():
        key = (int(hosts[row]), int(attempts[row]), int(programs[row]))
        graph, op = view.graphs.get(key), alone.get(key)
        node = graph.nodes.get(op) if graph is not None and op is not None else None
        shape = parse_array(node.shape) if node is not None else None
        known = graph is not None and node is not None and shape is not None
        kind[row] = class_of_instruction(graph, node) if known else 0  # type: ignore[arg-type]
        size[row] = shape.elements if shape is not None else -1
    kind[spans.column("self_ps").to_numpy() < LEAST_OP_PS] = 0
    return kind, size


def _by_name(names: pa.ChunkedArray, rule: Callable[[str], int]) -> NDArray[np.int64]:
    encoded = names.combine_chunks().dictionary_encode()
    values = np.array([int(rule(name)) for name in encoded.dictionary.to_pylist()], np.int64)
    return values[encoded.indices.to_numpy()] if len(values) else np.zeros(len(names), np.int64)


def _codes(table: pa.Table, columns: tuple[str, ...]) -> Int64s:
    code = np.zeros(table.num_rows, np.int64)
    for name in columns:
        column = table.column(name)
        if pa.types.is_integer(column.type):
            values = column.to_numpy()
        else:
            values = column.cast(pa.string()).combine_chunks().dictionary_encode().indices.to_numpy()
        values = np.unique(values, return_inverse=True)[1].ravel()
        code = code * (int(values.max(initial=0)) + 1) + values
    return code
