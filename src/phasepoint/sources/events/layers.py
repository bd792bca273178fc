"""Layers and directions of PyTorch's events: the modules around them, forward and backward, slice by slice.

A module's call is a Python frame `nn.Module: Linear_3`, nested in that of the module that calls it; an event of our own
recorder, which names the whole path; or, in older traces, a path that every operator carries (`Module Hierarchy`). What
runs inside has its layer. The backward of an operator carries the sequence number of the forward one, on the thread
that `Fwd thread id` names by a number of its own; it belongs to the layer whose forward had that number last.

Source: torch `torch/csrc/autograd/profiler_kineto.cpp` and `record_function.h` (PyTorch 2.13, read 2026-11-21).

Paths of the named stretches around each event: `forward/encoder/attention`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.compiled import compiled
from phasepoint.core.dense import number_keys
from phasepoint.core.nesting import depths, nest_spans
from phasepoint.core.tables import STAGES
from phasepoint.sources.events.rows import PlacedEvents
from phasepoint.sources.events.stages import spread_down
from phasepoint.sources.events.tables import NO_ID, Kind, text_column


def layer_paths(
    placed: PlacedEvents,
    kinds: list[Kind],
    parent: Int64s | None = None,
    *,
    labels: tuple[Int64s, list[str]] | None = None,
) -> pa.Array | None:
    """`[n_events]` names of the events of level layer around each event, outermost first; null outside all of them.

    An execution has the path of its launch.

    Args:
        placed: the events.
        kinds: their kinds.
        parent: `[n_events]` parents, without loops; None for those that time on the tracks gives.
        labels: `[n_events]` numbers of what stands in the path for each event, -1 for
            none, and these texts; None for its name.

    Returns:
        None where no event is of level layer.
    """
    is_layer = np.array([one.level == "layer" for one in kinds], np.bool_)
    if not len(placed.kind) or not is_layer[placed.kind].any():
        return None
    if parent is None:
        parent = nest_spans(placed.track, placed.start_ps, placed.end_ps).parent
    own_label, label_texts = (placed.kind, [one.name for one in kinds]) if labels is None else labels
    above = np.where(placed.launch != NO_ID, placed.launch, parent)
    path = np.full(len(above), -1, np.int64)
    texts: list[str | None] = []
    for rows in _by_depth(above):
        own = is_layer[placed.kind[rows]]
        path[rows] = np.where(above[rows] == NO_ID, -1, path[above[rows]])
        chosen = rows[own]
        numbers, first = number_keys(path[chosen], own_label[chosen])
        names = zip(path[chosen[first]].tolist(), own_label[chosen[first]].tolist(), strict=True)
        begin = len(texts)
        texts += [
            _join(texts[outer] if outer >= 0 else None, label_texts[at] if at >= 0 else None) for outer, at in names
        ]
        path[chosen] = numbers + begin
    return text_column(path, texts)


MOST_PATH = 4096
"""Characters of a path; a layer that would make it longer adds nothing. A choice: real ones have some hundred, and in a
file of spans that each hold the next, all paths would take the square of its size."""

MOST_DEPTH = 1000
"""What stands under so many has no path. A choice: call stacks have some hundred."""


def _join(outer: str | None, own: str | None) -> str | None:
    """The path of a layer within another; one without a name adds nothing."""
    path = "/".join(text for text in (outer, own) if text)
    return (path if len(path) <= MOST_PATH else outer) or None


def _by_depth(above: Int64s) -> list[Int64s]:
    """Rows a generation at a time: first those under nothing, then what stands under these; those in a loop of
    explicit ids in none."""
    depth = depths(above)
    order = np.argsort(depth, kind="stable")
    ends = np.searchsorted(depth[order], np.arange(-1, min(depth.max(), MOST_DEPTH) + 1), side="right")
    return [order[begin:end] for begin, end in pairwise(ends.tolist())]


NONE = -1  # in the place of a row, layer, direction or text
DIRECTIONS = STAGES[:4]
OPTIMIZER, BACKWARD, FORWARD, INPUT = range(4)

NUMBERS = 1 << 20
"""Sequence numbers that are remembered per thread beyond the slice in which they stand: the newest."""

_MODULE = "nn.Module: "
_OWN_BACKWARD = "phasepoint.backward"
_BACKWARD = ("autograd::engine::evaluate_function", _OWN_BACKWARD)
_MARK = re.compile(r"phasepoint\.layer#([^|]*)\|.*")
_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)#")
_LOADER = "enumerate(DataLoader)#"
_HIERARCHY = re.compile(r"(\w+)\((\w+)\)(?:::\w+)?")


@dataclass(frozen=True, eq=False)
class LayerRows:
    """What of a slice's rows layers are found by. Arrays are `[n]`; rows from earlier slices come first.

    Attributes:
        first: how many rows are from earlier slices; their layers are known.
        parent: row that encloses each, `NONE` at the top. Of a row of this slice it may be any.
        kind: number of the event's kind.
        track: number of its track.
        sequence: autograd's sequence number, below 0 where there is none.
        forward_thread: number of the forward's thread; 0 or below in the forward pass and where there is none.
        hierarchy: number of the text of its module hierarchy, `NONE` where there is none.
        layer, direction: of the first rows, as found before.
    """

    first: int
    parent: Int64s
    kind: Int64s
    track: Int64s
    sequence: Int64s
    forward_thread: Int64s
    hierarchy: Int64s
    layer: Int64s
    direction: Int64s


def is_layer_mark(name: str) -> bool:
    """Whether an event is our recorder's mark of a module's call or of a backward pass."""
    return name.startswith(("phasepoint.layer#", _OWN_BACKWARD))


def is_module_call(name: str) -> bool:
    """Whether a Python frame is a module's call."""
    return name.startswith(_MODULE)


def path_of_hierarchy(text: str) -> str | None:
    """Module path of a `Module Hierarchy`, None where it names none.

    Example:
        >>> path_of_hierarchy("TOP(Net)::forward.fc(Linear)::forward")
        'Net/fc'
    """
    parts = [found for part in text.split(".") if (found := _HIERARCHY.fullmatch(part))]
    names = [kind if name.upper() == "TOP" else name for name, kind in (found.groups() for found in parts)]
    return "/".join(name for name in names if name.upper() != "SELF") or None


class LayersOfRanges:
    """Finds layers in slices given in the order of time.

    Args:
        names: name of each kind of event.
        texts: the file's texts, by number.

    Attributes:
        paths: module paths, by the numbers that `find` gives.
    """

    def __init__(self, names: Sequence[str], texts: Sequence[str]) -> None:
        self.paths: list[str] = []
        self._codes: dict[str, int] = {}
        self._texts = texts
        self._names = names
        self._marks = np.array([self._code_of_mark(name) for name in names], np.int64)
        self._is_module = np.array([is_module_call(name) for name in names], np.bool_)
        self._is_backward = np.array([name.startswith(_BACKWARD) for name in names], np.bool_)
        self._is_optimizer = np.array([_OPTIMIZER.match(name) is not None for name in names], np.bool_)
        self._is_input = np.array([name.startswith(_LOADER) for name in names], np.bool_)
        self._full: dict[int, int] = {}
        self._children: dict[tuple[int, int], int] = {}
        self._forward = _ForwardLayers()

    def find(self, rows: LayerRows) -> tuple[Int64s, Int64s]:
        """Layer (number of `paths`) and direction (number of `DIRECTIONS`) of each row, `NONE` where unknown."""
        own = slice(rows.first, None)
        kind = rows.kind
        is_module = self._is_module[kind]
        anchor = self._marks[kind]
        self._add_hierarchies(rows, anchor)
        is_module[: rows.first] = False
        anchor[: rows.first] = rows.layer[: rows.first]
        layer = self._forward_layers(rows, anchor, is_module)
        is_op = rows.sequence >= 0
        is_op[: rows.first] = False
        is_backward = is_op & (rows.forward_thread > 0)
        ops = np.flatnonzero(is_op & ~is_backward)
        self._forward.add(rows.track[ops], rows.sequence[ops], layer[ops])
        back = np.flatnonzero(is_backward)
        if len(back):
            found = self._forward.find(rows.forward_thread[back], rows.sequence[back])
            named = back[found != NONE]
            anchor = layer.copy()
            anchor[named] = found[found != NONE]
            layer = spread_down(rows.first, rows.parent, anchor)
        direction = np.full(len(kind), NONE, np.int64)
        direction[self._is_optimizer[kind]] = OPTIMIZER
        direction[self._is_input[kind]] = INPUT
        direction[is_backward | self._is_backward[kind]] = BACKWARD
        direction[: rows.first] = rows.direction[: rows.first]
        direction = spread_down(rows.first, rows.parent, direction)
        forward = (direction == NONE) & ((layer != NONE) | is_op)
        direction[own][forward[own]] = FORWARD
        return layer, spread_down(rows.first, rows.parent, direction)

    def _code(self, path: str) -> int:
        code = self._codes.setdefault(path, len(self.paths))
        if code == len(self.paths):
            self.paths.append(path)
        return code

    def _code_of_mark(self, name: str) -> int:
        found = _MARK.fullmatch(name)
        return self._code(found[1]) if found else NONE

    def _add_hierarchies(self, rows: LayerRows, anchor: Int64s) -> None:
        given = np.flatnonzero(rows.hierarchy != NONE)
        if not len(given):
            return
        texts, place = np.unique(rows.hierarchy[given], return_inverse=True)
        paths = [path_of_hierarchy(self._texts[text]) for text in texts.tolist()]
        codes = np.array([NONE if path is None else self._code(path) for path in paths], np.int64)[place.ravel()]
        anchor[given] = np.where(codes == NONE, anchor[given], codes)

    def _forward_layers(self, rows: LayerRows, anchor: Int64s, is_module: NDArray[np.bool_]) -> Int64s:
        """Layers by the modules around each row."""
        modules = np.flatnonzero(is_module)
        if not len(modules):
            spread: Int64s = spread_down(rows.first, rows.parent, anchor)
            return spread
        around = _nearest(rows.first, rows.parent, is_module | (anchor != NONE))
        above = rows.parent[modules]
        outer = np.where(above < 0, NONE, around[above])
        of_outer = np.where(outer < 0, NONE, anchor[outer])
        codes: dict[int, int] = {}
        columns = (modules.tolist(), outer.tolist(), of_outer.tolist(), rows.kind[modules].tolist())
        for row, its_outer, code, kind in zip(*columns, strict=True):  # each module stands after the one around it
            codes[row] = self._child(codes.get(its_outer, code), kind)
        anchor[modules] = list(codes.values())
        return np.where(around < 0, NONE, anchor[around])

    def _child(self, outer: int, kind: int) -> int:
        """The layer of a module's call inside another. A call outside all, as a recomputation in the backward pass is,
        is that of the place where the module, which has a number of its own, was called first."""
        if outer == NONE:
            return self._full[kind] if kind in self._full else self._code(self._names[kind].removeprefix(_MODULE))
        code = self._children.get((outer, kind))
        if code is None:
            path = _join(self.paths[outer], self._names[kind].removeprefix(_MODULE))
            code = outer if path is None else self._code(path)
            self._children[outer, kind] = code
            self._full.setdefault(kind, code)
        return code


class _ForwardLayers:
    """Layers of forward operators by thread and sequence number; of equal ones the last counts."""

    def __init__(self) -> None:
        self._tracks: dict[int, tuple[Int64s, Int64s]] = {}
        self._hits: dict[int, Counter[int]] = {}

    def add(self, track: Int64s, sequence: Int64s, layer: Int64s) -> None:
        """Take the forward operators of a slice, by start. `[n]` each."""
        for one in np.unique(track).tolist():
            mine = track == one
            numbers, layers = self._tracks.get(one, (np.empty(0, np.int64), np.empty(0, np.int64)))
            numbers, layers = np.concatenate((numbers, sequence[mine])), np.concatenate((layers, layer[mine]))
            order = np.argsort(numbers, kind="stable")
            last = np.append(numbers[order][1:] != numbers[order][:-1], True)
            kept = order[last][-NUMBERS:]
            self._tracks[one] = numbers[kept], layers[kept]

    def find(self, thread: Int64s, sequence: Int64s) -> Int64s:
        """`[n]` layers of the forwards of backward operators, `NONE` where there is none.

        The thread's own number stands nowhere else, so it is taken to be the track that has had most of its numbers,
        of this slice and of those before.
        """
        result = np.full(len(sequence), NONE, np.int64)
        for one in np.unique(thread).tolist():
            mine = np.flatnonzero(thread == one)
            hits = self._hits.setdefault(one, Counter())
            found = {}
            for track, (numbers, layers) in self._tracks.items():
                place = np.minimum(np.searchsorted(numbers, sequence[mine]), len(numbers) - 1)
                there = numbers[place] == sequence[mine]
                hits[track] += int(np.count_nonzero(there))
                found[track] = np.where(there, layers[place], NONE)
            if hits.total():
                result[mine] = found[max(hits, key=lambda track: (hits[track], -track))]
        return result


@compiled()
def _nearest(first, parent, chosen):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """`[n]` the nearest chosen row at or above each row, -1 where there is none."""
    result = np.full(len(parent), -1, np.int64)
    for i in range(len(parent)):
        if chosen[i]:
            result[i] = i
        elif i >= first and 0 <= parent[i] < i:
            result[i] = result[parent[i]]
    return result
