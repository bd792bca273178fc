"""Elementwise ops that could be one: each computes every element from the same element of its operands.

Either they ran one after another as kernels or programs of their own, which the spans show; or they are instructions of
one program of which one reads what another wrote. In both cases one fused op would not move some bytes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.encoding import encode_column, encode_rows, first_rows, renumber
from phasepoint.core.units import PS_PER_US
from phasepoint.findings.evidence.device_ops import DeviceOps, read_device_ops
from phasepoint.findings.evidence.graphs import Node, ProgramGraph, read_graphs
from phasepoint.findings.view import FindingsView
from phasepoint.hlo.shapes import parse_array

_NEUTRAL = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "broadcast", "iota"})


def _words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_HLO = _words(
    "abs add and ceil clamp compare convert divide floor is-finite maximum minimum multiply negate not or "
    "reduce-precision remainder round-nearest-afz round-nearest-even select sign subtract xor"
)
_HLO_DEAR = _words(
    "atan2 cbrt cosine erf exponential exponential-minus-one log log-plus-one logistic power rsqrt sine sqrt tan tanh"
)
_ATEN = _words(
    "abs add addcdiv addcmul bitwise_and bitwise_not bitwise_or ceil clamp clamp_max clamp_min div eq floor ge gt "
    "hardtanh hardtanh_backward le leaky_relu leaky_relu_backward lerp logical_and logical_not logical_or lt "
    "masked_fill maximum minimum mul ne neg reciprocal relu rsub sign sub square sqrt rsqrt threshold "
    "threshold_backward where"
)
_ATEN_DEAR = _words(
    "cos elu elu_backward erf exp expm1 gelu gelu_backward log log1p mish pow sigmoid sigmoid_backward silu "
    "silu_backward sin softplus softplus_backward tanh tanh_backward"
)
_ATEN_VIEWS = _words(
    "alias as_strided detach expand lift_fresh narrow numpy_T permute reshape select slice squeeze t transpose "
    "unbind unsqueeze view view_as"
)
_KERNEL = re.compile(r"(vectorized_|unrolled_|^void at::native::)elementwise_kernel")
_MOVES = re.compile(r"copy_kernel|direct_copy|FillFunctor", re.IGNORECASE)

CHEAP, DEAR = 1, 2
"""What an elementwise op is: bound by the bytes that it moves; or perhaps by its arithmetic (tanh, exp)."""


def class_of_instruction(graph: ProgramGraph, node: Node) -> int:
    """`CHEAP` or `DEAR` for an elementwise instruction or fusion, 0 for any other."""
    shape = parse_array(node.shape)
    if shape is None:
        return 0
    inside = [one for one in graph.inside(node) if one.opcode not in _NEUTRAL]
    if not inside or any(one.opcode not in _HLO and one.opcode not in _HLO_DEAR for one in inside):
        return 0
    if any((own := parse_array(one.shape)) is None or own.elements not in (1, shape.elements) for one in inside):
        return 0
    return DEAR if any(one.opcode in _HLO_DEAR for one in inside) else CHEAP


def class_of_name(name: str) -> int:
    """The same of an ATen operator or a kernel of PyTorch's, by its name."""
    space, _, op = name.rpartition("::")
    if space == "aten":
        plain = op.removesuffix("_")
        return CHEAP if plain in _ATEN else DEAR if plain in _ATEN_DEAR else 0
    return CHEAP if _KERNEL.search(name) and not _MOVES.search(name) else 0


def is_view(name: str) -> bool:
    """Whether an ATen operator looks at its operand in another way and touches no element."""
    return name.startswith("aten::") and name.removeprefix("aten::").removesuffix("_") in _ATEN_VIEWS


LEAST_OP_PS = 5 * PS_PER_US
"""An op shorter than 5 µs takes its launch's time rather than its bytes'."""
MOST_GAP_PS = 200 * PS_PER_US
"""Between two ops of a chain at most 200 µs count as the later one's launch; what is longer is other work's."""

_WRAPPER = re.compile(r"^autograd::|Backward0?$")
_COLUMNS = ("host", "attempt", "window", "device", "name", "program", "start_ps", "self_ps")


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
    place = encode_rows(spans, ("host", "attempt", "window", "device"))
    order = np.lexsort((start_ps, place))
    place, index, kind, size, start_ps, self_ps = (x[order] for x in (place, index, kind, size, start_ps, self_ps))
    same = (np.diff(place) == 0) & (np.diff(index) == 0) & (np.diff(size) == 0) & (kind[1:] > 0) & (kind[:-1] > 0)
    first = np.flatnonzero(np.concatenate(([True], ~same)))
    last = np.append(first[1:], len(place))
    count = last - first
    first, count = first[count > 1], count[count > 1]
    chain = np.repeat(np.arange(len(first)), count)
    place_in = np.arange(len(chain)) - np.repeat(np.cumsum(count) - count, count)
    member = first[chain] + place_in
    time_ps = _memory_time(kind[member], self_ps[member], chain)
    total_ps = _sums(chain, time_ps, len(first))
    gap_ps = np.where(place_in > 0, start_ps[member] - start_ps[member - 1] - self_ps[member - 1], 0)
    gaps_ps = _sums(chain, np.clip(gap_ps, 0, MOST_GAP_PS), len(first))
    steps = len(view.captured.row)
    bytes_ps = _sums(index[first], total_ps * (1 - 1 / count), steps)
    launch_ps = _sums(index[first], np.where(total_ps > 0, gaps_ps, 0), steps)
    ops = _by_op(spans.column("name"), order[member], time_ps)
    return ElementChains(seen, bytes_ps[seen], launch_ps[seen], ops)


def _memory_time(kind: Int64s, self_ps: Int64s, chain: Int64s) -> Floats:
    """`[n]` of each op's time what its bytes take; nothing where no op of its chain is surely bound by them."""
    cheap = kind == CHEAP
    order = np.lexsort((self_ps[cheap], chain[cheap]))
    values = self_ps[cheap][order]
    n_chains = int(chain.max(initial=-1)) + 1
    count = np.bincount(chain[cheap], minlength=n_chains)
    begin = np.cumsum(count) - count
    some = count > 0
    lower, upper = (begin + (count - 1) // 2)[some], (begin + count // 2)[some]
    median_ps = np.zeros(n_chains)
    median_ps[some] = (values[lower] + values[upper]) / 2
    return np.where(cheap, self_ps, np.minimum(self_ps, median_ps[chain]))


def _sums(group: Int64s, values: Floats, groups: int) -> Floats:
    return np.asarray(np.bincount(group, values, minlength=groups), np.float64)


def _by_op(names: pa.ChunkedArray, row: Int64s, time_ps: Floats) -> dict[str, int]:
    """Name → its time, the largest first."""
    code, texts = encode_column(names)
    sums = np.zeros(len(texts), np.int64)
    np.add.at(sums, code[row], time_ps.astype(np.int64))
    found = np.unique(code[row])
    return {texts[i]: int(sums[i]) for i in found[np.argsort(-sums[found], kind="stable")].tolist()}


def _device_spans(view: FindingsView) -> tuple[pa.Table, Int64s, Int64s]:
    """Spans that may be of a chain, or end one; the captured step of each; all captured steps with spans."""
    spans = view.table("spans")
    captured = view.captured
    index = captured.index_of(view.clock.rows_of(spans))
    known = index >= 0
    known[known] = captured.window[index[known]] == spans.column("window").to_numpy()[known]
    seen = renumber(index[known])[0]
    of_framework = _by_text(spans, "name", lambda name: name.startswith("aten::")).astype(bool)
    nested = _inside_another(spans, of_framework)
    beside = _by_text(spans, "name", lambda name: is_view(name) or _WRAPPER.search(name) is not None).astype(bool)
    on_device = _by_text(spans, "device", lambda device: device != "host").astype(bool)
    level = _by_text(spans, "level", lambda level: level in ("op", "kernel")).astype(bool)
    keep = known & on_device & level & ~nested & ~beside
    return spans.select(_COLUMNS).filter(pa.array(keep)), index[keep], seen


def _inside_another(spans: pa.Table, of_framework: Bools) -> Bools:
    """Whether an ATen operator stands inside another, which it does the work of."""
    place = encode_rows(spans, ("host", "attempt", "window"))
    parent = pc.fill_null(spans.column("parent"), -1).to_numpy()
    span = spans.column("span").to_numpy()
    width = int(span.max(initial=0)) + 2
    outer = np.sort((place * width + span)[of_framework])
    mine = place * width + parent
    at = np.minimum(np.searchsorted(outer, mine), max(len(outer) - 1, 0))
    return of_framework & (parent >= 0) & (outer[at] == mine) if len(outer) else np.zeros(len(span), bool)


def _classes(view: FindingsView, spans: pa.Table) -> tuple[Int64s, Int64s]:
    """Class of every span as of `elementwise`, 0 where it is too short; elements of its result, -1 where not known."""
    kind, size = _by_text(spans, "name", class_of_name), np.full(spans.num_rows, -1, np.int64)
    ran: dict[tuple[int, int, int], set[str]] = {}
    for one in view.once(read_device_ops).kinds:
        if one.program is not None:
            ran.setdefault((one.host, one.attempt, one.program), set()).add(one.op)
    alone = {key: next(iter(ops)) for key, ops in ran.items() if len(ops) == 1}
    code = encode_rows(spans, ("host", "attempt", "program"))
    keys = spans.select(["host", "attempt", "program"]).take(pa.array(first_rows(code))).to_pylist()
    for number, found in enumerate(keys):
        if found["program"] is None:
            continue
        graph, op = view.once(read_graphs).get(key := tuple(found.values())), alone.get(key)
        node = graph.nodes.get(op) if graph is not None and op is not None else None
        shape = parse_array(node.shape) if node is not None else None
        mine = code == number
        known = graph is not None and node is not None and shape is not None
        kind[mine] = class_of_instruction(graph, node) if known else 0  # type: ignore[arg-type]
        size[mine] = shape.elements if shape is not None else -1
    kind[spans.column("self_ps").to_numpy() < LEAST_OP_PS] = 0
    return kind, size


def _by_text(table: pa.Table, column: str, rule: Callable[[str], int]) -> Int64s:
    """`[n]` what a rule says of each row's text."""
    codes, texts = encode_column(table.column(column))
    return np.array([*(int(rule(text)) for text in texts), 0], np.int64)[codes]


_PASSING = frozenset({"bitcast", "optimization-barrier", "opt-barrier"})


def needless_time(view: FindingsView) -> Floats:
    """`[n]` of each row of the devices' ops the time that goes with bytes which a fusion would not move.

    What is written once and read by elementwise instructions alone need not be written, nor read. An instruction's time
    is taken to go with its bytes; one that may be bound by its arithmetic counts at most at the rate of the others.
    """
    ops = view.once(read_device_ops)
    share = np.zeros(len(ops.kinds))
    per_op = ops.of_kinds(ops.self_ps) / np.maximum(ops.of_kinds(ops.count), 1)
    for key, graph in view.once(read_graphs).items():
        of_program = [i for i, kind in enumerate(ops.kinds) if (kind.host, kind.attempt, kind.program) == key]
        for i, ratio in _shares(graph, ops, of_program, per_op).items():
            share[i] = ratio
    return np.asarray(share[ops.kind] * ops.self_ps, np.float64)


def _shares(graph: ProgramGraph, ops: DeviceOps, kinds: list[int], per_op: Floats) -> dict[int, float]:
    """By op of the program, the share of its time that goes with needless bytes."""
    ran = {ops.kinds[i].op: i for i in kinds if per_op[i] >= LEAST_OP_PS}
    classes = {op: class_of_instruction(graph, graph.nodes[op]) for op in ran if op in graph.nodes}
    saved = _needless_bytes(graph, {op for op, kind in classes.items() if kind})
    rates = [per_op[ran[op]] / (graph.nodes[op].bytes or 1) for op, kind in classes.items() if kind == CHEAP]
    if not rates:
        return {}
    usual = float(np.median(rates))
    shares = {}
    for op, size in saved.items():
        moved = graph.nodes[op].bytes or 0
        slow = 1.0 if classes[op] == CHEAP else min(usual * moved / per_op[ran[op]], 1.0)
        if moved:
            shares[ran[op]] = min(size / moved, 1.0) * slow
    return shares


def _needless_bytes(graph: ProgramGraph, elementwise: set[str]) -> dict[str, int]:
    """By instruction, the bytes that it writes for, or reads from, other elementwise ones alone."""
    saved: dict[str, int] = {}
    for body in graph.bodies.values():
        if not any(node.op in elementwise for node in body):
            continue
        readers = _readers(body)
        for node in body:
            if node.op not in elementwise or node.is_root:
                continue
            reading = readers.get(node.op, [])
            shape = parse_array(node.shape)
            if not reading or shape is None:
                continue
            sizes = [parse_array(graph.nodes[op].shape) for op in reading if op in elementwise]
            if len(sizes) < len(reading) or any(own is None or own.elements != shape.elements for own in sizes):
                continue
            size = _written(node)
            for op in {node.op, *reading}:
                saved[op] = saved.get(op, 0) + size
    return saved


def _written(node: Node) -> int:
    """Bytes of the result, from its text: `f32[8,8]` → 256."""
    shape = parse_array(node.shape)
    bits = "".join(c for c in (shape.element_type if shape else "")[1:] if c.isdigit() or c == "e").partition("e")[0]
    return shape.elements * max(int(bits or 8), 8) // 8 if shape else 0


def _readers(body: tuple[Node, ...]) -> dict[str, list[str]]:
    """By instruction, those that read it, through what passes a value on."""
    passing = {node.op: node.operands[0] for node in body if node.opcode in _PASSING and len(node.operands) == 1}
    readers: dict[str, list[str]] = {}
    for node in body:
        if node.op in passing:
            if node.is_root:
                readers.setdefault(node.operands[0], []).append(node.op)
            continue
        for operand in node.operands:
            origin = operand
            while origin in passing:
                origin = passing[origin]
            readers.setdefault(origin, []).append(node.op)
    return readers
