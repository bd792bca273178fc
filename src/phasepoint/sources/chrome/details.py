"""Arguments of events → rows of `launches`, `collectives`, `metrics`, `allocations` and `counters`.

The host's calls that launched work, by correlation id, from slice to slice.

Layers of the rows of a slice, and of the executions that they launched.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.tables import TABLES, table_from_columns
from phasepoint.sources.chrome.kinds import Event
from phasepoint.sources.chrome.rows import spread_at
from phasepoint.sources.chrome.scan import ARG_FLOAT, ARG_FLOAT_TEXT, ARG_KEY, SLOTS
from phasepoint.sources.events.layers import NONE, LayerRows, LayersOfRanges
from phasepoint.sources.events.tables import nullable, text_column

CALLS = 1 << 19
"""Calls that are remembered beyond the slice in which they stand: the newest."""


class Launches:
    """Calls with a correlation id. Of several with one id the last counts.

    Args:
        parameters: names of what is remembered of each call beside its span and start.
    """

    def __init__(self, parameters: tuple[str, ...] = ()) -> None:
        self._columns = ("correlation", "span", "start", *parameters)
        self._calls = {name: np.empty(0, np.int64) for name in self._columns}

    def add(self, calls: Mapping[str, Int64s]) -> None:
        """Take the calls of a slice, by start: correlation, span, start and the parameters, `[n]` each."""
        if not len(calls["correlation"]):
            return
        merged = {name: np.concatenate((self._calls[name], calls[name])) for name in self._columns}
        order = np.argsort(merged["correlation"], kind="stable")
        found = merged["correlation"][order]
        order = order[np.append(found[1:] != found[:-1], True)]
        self._calls = {name: column[order] for name, column in merged.items()}

    def forget(self) -> None:
        """Drop the oldest calls, so that memory stays bounded."""
        surplus = len(self._calls["span"]) - CALLS
        if surplus > 0:
            least = np.partition(self._calls["span"], surplus)[surplus]
            kept = self._calls["span"] >= least
            self._calls = {name: column[kept] for name, column in self._calls.items()}

    def find(self, correlation: Int64s) -> dict[str, Int64s]:
        """Span, start and parameters of the calls with these ids; -1 where there is none."""
        known = self._calls["correlation"]
        if not len(known):
            return {name: np.full(len(correlation), -1, np.int64) for name in self._columns[1:]}
        place = np.minimum(np.searchsorted(known, correlation), len(known) - 1)
        there = known[place] == correlation
        return {name: np.where(there, self._calls[name][place], -1) for name in self._columns[1:]}


_NOTHING = np.iinfo(np.int64).min
_DEVICE_TYPES = {0: "host", 1: "gpu", 6: "gpu", 9: "xla", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia"}
"""c10::DeviceType of allocations. Source: pytorch, `c10/core/DeviceType.h`."""

_LAUNCH_SLOTS = ("grid", "block", "registers per thread", "shared memory", "est. achieved occupancy %", "graph id")
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallbase": "all_to_all",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "send": "send",
    "recv": "recv",
    "barrier": "barrier",
    "gather": "gather",
    "scatter": "scatter",
    "wait": "wait",
}


_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "Float8_e4m3fn": "float8_e4m3",
    "Float8_e5m2": "float8_e5m2",
}
"""c10::ScalarType. Source: pytorch, `c10/core/ScalarType.h`."""


class Arguments:
    """The arguments of a slice's rows.

    Args:
        keys: `[m]` row × 256 + slot.
        values: `[m]` their values.
        n_rows: rows.
        texts: the file's texts.
    """

    def __init__(self, keys: Int64s, values: Int64s, n_rows: int, texts: Sequence[str]) -> None:
        self.keys, self.values, self.texts = keys, values, texts
        self._n_rows = n_rows
        self.slots = set(np.flatnonzero(np.bincount(keys & 255)).tolist()) if len(keys) else set()

    def column(self, name: str, rows: Int64s) -> Int64s:
        """`[len(rows)]` values of one argument; the least integer where there is none."""
        column = np.full(len(rows), _NOTHING, np.int64)
        if SLOTS[name] in self.slots and len(rows):
            place = np.full(self._n_rows, -1, np.int64)
            place[rows] = np.arange(len(rows))
            spread_at(self.keys, self.values, SLOTS[name], place, column)
        return column

    def rows_with(self, name: str) -> Int64s:
        """SpooledRows that have one argument."""
        return np.asarray(self.keys[self.keys & 255 == SLOTS[name]] >> 8)

    def of_rows(self, place: Int64s) -> tuple[Int64s, Int64s]:
        """Keys and values of the rows that have a place, under it."""
        where = place[self.keys >> 8]
        kept = where >= 0
        return where[kept] << 8 | (self.keys[kept] & 255), self.values[kept]


def known(values: Int64s) -> pa.Array:
    """Integers, null where there is none."""
    return nullable(values, values == _NOTHING)


def launches_rows(arguments: Arguments, rows: Int64s, calls: Mapping[str, Int64s]) -> tuple[dict[str, Any], Int64s]:
    """Launch parameters of executions, their own or else those of the call that launched them.

    Args:
        arguments: the slice's arguments.
        rows: `[n]` rows of executions.
        calls: `[n]` parameters of the calls: grid, block, shared; -1 where there is none.

    Returns:
        Columns of `launches` but for the span, and which of the rows they are of.
    """
    own = {name: arguments.column(name, rows) for name in (*_LAUNCH_SLOTS, "graph node id")}
    for name, parameter in (("grid", "grid"), ("block", "block"), ("shared memory", "shared")):
        given = calls.get(parameter)
        if given is not None:
            own[name] = np.where((own[name] == _NOTHING) & (given != -1), given, own[name])
    kept = np.flatnonzero(np.any([column != _NOTHING for column in own.values()], axis=0))
    own = {name: column[kept] for name, column in own.items()}
    occupancy = own["est. achieved occupancy %"]
    graph = [_graph_text(*ids, arguments.texts) for ids in _pairs(own["graph id"], own["graph node id"])]
    return {
        "grid": _by_text(own["grid"], arguments.texts, _triple),
        "block": _by_text(own["block"], arguments.texts, _triple),
        "registers": known(own["registers per thread"]),
        "shared_bytes": known(own["shared memory"]),
        "occupancy_ratio": pa.array(occupancy.view(np.float64) / 100, mask=occupancy == _NOTHING),
        "graph": pa.array(graph, pa.string()).dictionary_encode(),
    }, kept


def collectives_rows(arguments: Arguments, rows: Int64s) -> tuple[dict[str, Any], Int64s]:
    """Parameters of collectives, of those rows that have any.

    Returns:
        Columns of `collectives` but for the span, and which of the rows they are of.
    """
    kind = arguments.column("Collective name", rows)
    kept = np.flatnonzero(kind != _NOTHING)
    rows, kind, texts = rows[kept], kind[kept], arguments.texts

    def column(name: str) -> Int64s:
        return arguments.column(name, rows)

    group = column("Process Group Name")
    group = np.where(group == _NOTHING, column("Process Group ID"), group)
    return {
        "kind": _by_text(kind, texts, _collective),
        "group": _by_text(group, texts),
        "ranks": _by_text(column("Process Group Ranks"), texts, _ranks),
        "size": known(column("Group size")),
        "sequence": known(column("Seq")),
        "dtype": _by_text(column("dtype"), texts, lambda text: _DTYPES.get(text, text)),
        "in_elements": known(column("In msg nelems")),
        "out_elements": known(column("Out msg nelems")),
    }, kept


def bandwidth_rows(arguments: Arguments, rows: Int64s) -> tuple[dict[str, Any], Int64s]:
    """The profiler's bandwidth of copies as columns of `metrics` but for the span, and which of the rows have one."""
    values = arguments.column("memory bandwidth (GB/s)", rows)
    kept = np.flatnonzero(values != _NOTHING)
    n_rows = np.zeros(len(kept), np.int64)
    return {
        "name": text_column(n_rows, ["memory bandwidth"]),
        "unit": text_column(n_rows, ["GB/s"]),
        "value": values[kept].view(np.float64),
    }, kept


def allocations_table(arguments: Arguments, rows: Int64s, time_ps: Int64s, span: Int64s, window: int) -> pa.Table:
    """SpooledRows of `allocations`.

    Args:
        arguments: the slice's arguments.
        rows: `[n]` rows of allocations.
        time_ps: `[n]` when.
        span: `[n]` span in progress on the thread, -1 where there is none.
        window: number of the window.
    """
    size = arguments.column("Bytes", rows)
    kept = np.flatnonzero(size != _NOTHING)
    rows, time_ps, span, size = rows[kept], time_ps[kept], span[kept], size[kept]
    places = _pairs(arguments.column("Device Type", rows), arguments.column("Device Id", rows))
    devices = {pair: _device_name(*pair) for pair in dict.fromkeys(places)}
    numbers = {pair: i for i, pair in enumerate(devices)}
    return table_from_columns(
        "allocations",
        {
            "window": np.full(len(rows), window, np.int64),
            "time_ps": time_ps,
            "device": text_column(np.array([numbers[pair] for pair in places], np.int64), list(devices.values())),
            "bytes": size,
            "allocated_bytes": known(arguments.column("Total Allocated", rows)),
            "reserved_bytes": known(arguments.column("Total Reserved", rows)),
            "address": known(arguments.column("Addr", rows)),
            "span": nullable(span, span < 0),
        },
    )


def named_values(arguments: Arguments, is_wanted: NDArray[np.bool_]) -> tuple[Int64s, list[str], list[float]]:
    """Row, name and value of every number among the arguments of the wanted rows."""
    slot = arguments.keys & 255
    at = np.flatnonzero((slot == ARG_KEY) & is_wanted[arguments.keys >> 8])
    if not len(at):
        return at, [], []
    behind = arguments.values[at + 1]
    exact = slot[at + 1] == ARG_FLOAT
    values = np.where(exact, behind.view(np.float64), np.nan)
    for k in np.flatnonzero(slot[at + 1] == ARG_FLOAT_TEXT).tolist():
        values[k] = _float(arguments.texts[behind[k]])
    good = np.flatnonzero(np.isfinite(values))
    names = [arguments.texts[i] for i in arguments.values[at[good]].tolist()]
    return arguments.keys[at[good]] >> 8, names, values[good].tolist()


def metrics_table(
    arguments: Arguments, is_wanted: NDArray[np.bool_], kind: NDArray[Any], kinds: Sequence[Event], window: int
) -> pa.Table:
    """SpooledRows of `metrics` of hardware counters, which name the kernel but not its span."""
    rows, names, values = named_values(arguments, is_wanted)
    if not len(rows):
        return TABLES["metrics"].empty
    return table_from_columns(
        "metrics",
        {
            "window": np.full(len(rows), window, np.int64),
            "name": names,
            "unit": [""] * len(rows),
            "value": values,
            "of": [kinds[i].name for i in kind[rows].tolist()],
        },
    )


def counters_table(
    arguments: Arguments, is_wanted: NDArray[np.bool_], events: tuple[NDArray[Any], Sequence[Event]], time_ps: Int64s
) -> pa.Table:
    """SpooledRows of `counters`: a sample of each number of each counter event."""
    rows, names, values = named_values(arguments, is_wanted)
    if not len(rows):
        return TABLES["counters"].empty
    kind, kinds = events
    titles = [kinds[i].name for i in kind[rows].tolist()]
    return table_from_columns(
        "counters",
        {
            "name": [
                title if name in ("value", title) else f"{title} {name}".strip()
                for title, name in zip(titles, names, strict=True)
            ],
            "unit": [""] * len(rows),
            "device": ["host"] * len(rows),
            "time_ps": time_ps[rows],
            "value": values,
        },
    )


def _by_text(ids: Int64s, texts: Sequence[str], write: Callable[[str], str | None] | None = None) -> pa.Array:
    """Texts by number, rewritten; null where there is none."""
    distinct, numbers = np.unique(ids, return_inverse=True)
    found = [None if i == _NOTHING else texts[i] for i in distinct.tolist()]
    if write is not None:
        found = [None if text is None else write(text) for text in found]
    return text_column(numbers, found)


def _pairs(first: Int64s, second: Int64s) -> list[tuple[int, int]]:
    return list(zip(first.tolist(), second.tolist(), strict=True))


def _triple(text: str) -> str | None:
    plain = "".join(text.strip("[](){}").split())
    return plain or None


def _ranks(text: str) -> str | None:
    return _triple(text)


def _collective(text: str) -> str:
    squeezed = text.lower().strip("_").replace("_", "")
    return _COLLECTIVES.get(squeezed, text.strip("_").lower())


def _graph_text(graph: int, node: int, texts: Sequence[str]) -> str | None:
    """`3 node 7`: a graph and the node of it that a replay executes."""
    if graph == _NOTHING or texts[graph] == "0":
        return None
    return texts[graph] if node == _NOTHING else f"{texts[graph]} node {texts[node]}"


def _device_name(kind: int, number: int) -> str:
    """`gpu:0`: an allocation's device by PyTorch's numbers of type and device."""
    family = _DEVICE_TYPES.get(kind, "host" if kind == _NOTHING else f"device type {kind}")
    return family if family == "host" else f"{family}:{max(number, 0)}"


def _float(text: str) -> float:
    """A counter's value; not a number where it is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


class SliceLayers:
    """Fills in layers slice by slice, and remembers those of the newest launches.

    Args:
        names: name of each kind of event.
        texts: the file's texts.
    """

    def __init__(self, names: Sequence[str], texts: Sequence[str]) -> None:
        self._torch = LayersOfRanges(names, texts)
        self._calls = np.empty((3, 0), np.int64)

    @property
    def paths(self) -> list[str]:
        """Module paths by number."""
        return self._torch.paths

    def fill(
        self, columns: dict[str, NDArray[Any]], arguments: Arguments, first: int, on_device: NDArray[np.bool_]
    ) -> None:
        """Set `layer` and `direction` of rows.

        Args:
            columns: of the rows, from earlier slices first: span, parent, kind, track, correlation, launch.
            arguments: of the rows.
            first: how many are from earlier slices.
            on_device: `[n]` whether each ran on a device.
        """
        rows = np.arange(len(on_device))
        # What an execution has from its launch is not handed down to what it encloses: in one piece it is not either.
        held = {name: columns[name][:first].copy() for name in ("layer", "direction")}
        handed = {name: np.where(on_device, NONE, columns[name]) for name in held}
        layer, direction = self._torch.find(
            LayerRows(
                first=first,
                parent=_rows_of(columns["span"], columns["parent"]),
                kind=columns["kind"].astype(np.int64),
                track=columns["track"].astype(np.int64),
                sequence=arguments.column("Sequence number", rows),
                forward_thread=arguments.column("Fwd thread id", rows),
                hierarchy=np.maximum(arguments.column("Module Hierarchy", rows), NONE),
                **handed,
            )
        )
        layer[:first], direction[:first] = held["layer"], held["direction"]
        self._remember(columns, np.stack((columns["span"], layer, direction)), first, on_device)
        launched = np.flatnonzero(on_device & (columns["launch"] >= 0))
        if len(launched) and self._calls.shape[1]:
            place = np.minimum(np.searchsorted(self._calls[0], columns["launch"][launched]), self._calls.shape[1] - 1)
            there = self._calls[0, place] == columns["launch"][launched]
            layer[launched[there]], direction[launched[there]] = self._calls[1:, place[there]]
            layer[:first], direction[:first] = held["layer"], held["direction"]
        columns["layer"], columns["direction"] = layer, direction

    def _remember(
        self, columns: dict[str, NDArray[Any]], rows: Int64s, first: int, on_device: NDArray[np.bool_]
    ) -> None:
        """Keep the layers of a slice's calls; their spans have rising numbers."""
        is_call = (columns["correlation"] != NONE) & (columns["span"] != NONE) & ~on_device
        is_call[:first] = False
        self._calls = np.concatenate((self._calls, rows[:, is_call]), axis=1)[:, -CALLS:]


def _rows_of(span: Int64s, wanted: Int64s) -> Int64s:
    """SpooledRows of spans by number, `NONE` for those that are not there. The spans' numbers rise from row to row."""
    rows = np.flatnonzero(span != NONE)
    if not len(rows):
        return np.full(len(wanted), NONE, np.int64)
    first, last = int(span[rows[0]]), int(span[rows[-1]])
    if last - first + 1 == len(rows):  # one after another, as they are where nothing is held from before
        inside = (wanted >= first) & (wanted <= last)
        return np.where(inside, rows[np.where(inside, wanted - first, 0)], NONE)
    place = np.minimum(np.searchsorted(span[rows], wanted), len(rows) - 1)
    return np.where(span[rows[place]] == wanted, rows[place], NONE)
