"""Collectives across ranks: who came late, who waited for whom, and how long the transfer itself took.

The same collective is found on all ranks by group, kind and sequence number; where the trace has no such numbers, by
its place among those of one name on one stream of one step, or in one step where threads of the host carry them out
(XLA on CPUs; gloo, MPI and UCC, by the marks that PyTorch makes there). Clocks are aligned where collectives end. A
rank has arrived when its execution starts; until the last one arrives the others wait, and what remains is the
transfer: for every rank, total = wait + transfer, exactly. A rank straggles if it is last far more often than chance
has it, or for far longer.
"""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.core.statistics import median_ps
from phasepoint.core.tables import Column
from phasepoint.stack.shard.clock_alignment import Clocks, align_clocks
from phasepoint.stack.shard.executions import read_executions, texts_of
from phasepoint.stack.shard.hierarchy import NONE, find_rows, inherited
from phasepoint.stack.shard.shard import RowsAndNotes, StackShard, analysis

_INT = pa.int64()

_PART = (
    Column("shard", pa.string(), "the shard"),
    Column("epoch_unix_ns", _INT, "when its session began", "ns"),
    Column("device", pa.string(), "the device"),
    Column("kind", pa.string(), "kind of collective"),
    Column("key", pa.string(), "equal on all ranks that took part, and on no other collective"),
    Column("start_ps", _INT, "start, from the session's epoch", "ps"),
    Column("end_ps", _INT, "end", "ps"),
)
"""One execution of a collective, as `_finish` takes them of all shards."""

_KINDS = (
    ("reduce_scatter", "reduce[_-]?scatter|psum_scatter"),
    ("all_reduce", "all[_-]?reduce|psum|pmean"),
    ("all_gather", "all[_-]?gather"),
    ("all_to_all", "all[_-]?to[_-]?all"),
    ("broadcast", "broadcast"),
    ("send_recv", "send_?recv|collective-?permute|ppermute"),
    ("reduce", "reduce"),
)
"""Kind → what its kernels' names hold. Source: NCCL and RCCL device functions; HLO opcodes, and the
operations of JAX that XLA names them by."""

_AT_HOST = re.compile("(gloo|mpi|ucc):")
"""How PyTorch's process groups mark the collectives that their own threads carry out."""

_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Kinds in which no rank can end before all have arrived."""

_SIGMAS = 3
"""Standard deviations by which a rank must be last more often than by chance: one of 740 ranks is by chance alone."""


def _keys(
    shard: StackShard, rows: Int64s, device: NDArray[np.object_], start_ps: Int64s
) -> tuple[list[str], list[str]]:
    """`[n]` kind of each collective, and a text that is equal on all of its ranks and no other."""
    spans, told = shard.table("spans"), shard.table("collectives")
    at = np.full(spans.num_rows, NONE)
    at[find_rows(spans, told["window"].to_numpy(), told["span"].to_numpy())] = np.arange(told.num_rows)
    of = at[rows]
    columns = {name: told[name].to_pylist() for name in ("kind", "group", "ranks", "sequence")}
    names = texts_of(spans["name"])[rows]
    tracks = texts_of(spans["track"])[rows]
    steps = inherited(spans, "step").take(pa.array(rows)).to_pylist()
    kinds, keys, seen = [], [], dict[str, int]()
    for i in np.lexsort((rows, start_ps)).tolist():
        row = {name: values[of[i]] if of[i] != NONE else None for name, values in columns.items()}
        kind = row["kind"] or next(
            (k for k, words in _KINDS if re.search(words, str(names[i]), re.IGNORECASE)), "other"
        )
        group = f"{row['group']} {row['ranks']}"
        if row["sequence"] is not None:
            key = f"{kind} of {group} number {row['sequence']}"
        else:
            place = group if row["group"] is not None else str(tracks[i]).removeprefix(f"{device[i]} ")
            if str(device[i]).startswith(("cpu", "host")):
                place = "any thread"  # threads have other names in every process, and take turns
            key = f"{kind} {names[i]} of {place} in step {steps[i]}"
        turn = seen[f"{device[i]} {key}"] = seen.get(f"{device[i]} {key}", -1) + 1
        kinds.append((i, kind))
        keys.append((i, f"{key} turn {turn}"))
    return [kind for _, kind in sorted(kinds)], [key for _, key in sorted(keys)]


@dataclass(frozen=True, eq=False)
class _Matched:
    """Executions of collectives of all shards, times by one clock. Arrays are `[n]`, but for what says otherwise.

    Attributes:
        number: number of the collective.
        rank: number of the rank: a device of a host, or of one of its attempts.
        kind: its kind.
        arrived_ps: when the rank arrived.
        wait_ps: how long it waited for the last one.
        dur_ps: how long its execution took.
        late_ps: how much later than the one before it came; 0 if it was not the last.
        last: whether it was.
        apart_ps: how much later than the one before it the last one of its collective came.
        skew_ps: first to last arrival of its collective.
        size: ranks of its collective on which it was found; below 2 there is nothing to compare.
    """

    number: Int64s
    rank: Int64s
    kind: NDArray[np.object_]
    arrived_ps: Int64s
    wait_ps: Int64s
    dur_ps: Int64s
    late_ps: Int64s
    last: Bools
    apart_ps: Int64s
    skew_ps: Int64s
    size: Int64s


def _finish(table: pa.Table) -> list[dict[str, object]]:
    """Rows by rank and kind from the collectives of all shards: for each rank first that of all kinds."""
    shards = texts_of(pc.dictionary_encode(table["shard"]).unify_dictionaries()).astype(str)
    used, clock = np.unique(shards, return_inverse=True)
    number = encode_column(table["key"])[0]
    kind = np.array(table["kind"].to_pylist(), object)
    together = np.isin(kind.astype(str), _TOGETHER)
    clocks = align_clocks(number, clock, table["end_ps"].to_numpy(), together, hosts=len(used))
    label = [f"{shard} {device}" for shard, device in zip(clock.tolist(), table["device"].to_pylist(), strict=True)]
    labels, first, rank = np.unique(np.array(label, str), return_index=True, return_inverse=True)
    matched = _match(table, number, rank, clocks.offset_ps[clock], clocks.aligned[clock])
    rows = []
    for i in np.lexsort((labels, table["host"].to_numpy()[first])):
        head = {"host": table["host"][int(first[i])].as_py(), "device": table["device"][int(first[i])].as_py()}
        rows += _rank_rows(matched, int(i), {**head, **_clock_row(table, clocks, clock, int(first[i]))})
    return rows


def _clock_row(table: pa.Table, clocks: Clocks, clock: Int64s, at: int) -> dict[str, int | None]:
    """Offset of a row's host in absolute time: sessions have epochs of their own."""
    host = int(clock[at])
    if not clocks.aligned[host]:
        return {"clock_offset_ps": None, "clock_error_ps": None}
    epochs = table["epoch_unix_ns"]
    apart_ps = (epochs[at].as_py() - epochs[int(np.argmax(clock == 0))].as_py()) * 1000
    offset_ps = int(clocks.offset_ps[host]) + apart_ps
    fits = abs(offset_ps) < 2**63
    return {"clock_offset_ps": offset_ps if fits else None, "clock_error_ps": int(clocks.error_ps[host])}


def _match(table: pa.Table, number: Int64s, rank: Int64s, offset_ps: Int64s, aligned: Bools) -> _Matched:
    """Compare the arrivals of each collective; on a host whose clock is not aligned there is nothing to compare."""
    n = len(number)
    number = np.where(aligned, number, number.max(initial=0) + 1 + np.arange(n))
    arrived_ps = table["start_ps"].to_numpy() - offset_ps
    order = np.lexsort((rank, arrived_ps, number))
    _, first, count = np.unique(number[order], return_index=True, return_counts=True)
    ends = first + count - 1
    group = np.repeat(np.arange(len(first)), count)
    time = arrived_ps[order]
    last = np.zeros(n, np.bool_)
    last[ends[count > 1]] = True
    late_ps = np.where(last, time - time[np.maximum(np.arange(n) - 1, 0)], 0) if n else time
    values = {
        "number": number[order],
        "arrived_ps": time,
        "wait_ps": time[ends][group] - time,
        "late_ps": late_ps,
        "last": last,
        "apart_ps": late_ps[ends][group],
        "skew_ps": (time[ends] - time[first])[group],
        "size": count[group],
    }
    dur_ps = (table["end_ps"].to_numpy() - table["start_ps"].to_numpy())[order]
    kind = np.array(table["kind"].to_pylist(), object)[order]
    return _Matched(rank=rank[order], kind=kind, dur_ps=dur_ps, **values)


def _rank_rows(matched: _Matched, rank: int, head: dict[str, int | str | None]) -> list[dict[str, object]]:
    """The row of all kinds of one rank, then one of each kind, by time."""
    mine = matched.rank == rank
    if not (mine & (matched.size > 1)).any():
        head = {**head, "clock_error_ps": None}
    rows = []
    for kind in [None, *sorted(set(matched.kind[mine].tolist()))]:
        chosen = mine if kind is None else mine & (matched.kind == kind)
        rows.append({**head, "kind": kind, **_row(matched, chosen, head["clock_error_ps"])})
    return sorted(rows, key=lambda row: (row["kind"] is not None, -int(str(row["total_ps"]))))


def _row(matched: _Matched, chosen: Bools, error_ps: object) -> dict[str, object]:
    both = chosen & (matched.size > 1)
    n, last = int(both.sum()), both & matched.last
    late, late_ps = int(last.sum()), int(matched.late_ps[last].sum())
    wait_ps, total_ps = int(matched.wait_ps[both].sum()), int(matched.dur_ps[both].sum())
    chance = 1 / matched.size[both]
    # Each collective counts once, and again by how late it was: of several in a step only the first one may wait long.
    often = any(
        found > (chance * weight).sum() + _SIGMAS * float(np.sqrt((chance * (1 - chance) * weight**2).sum()))
        for found, weight in ((late, np.ones(n)), (late_ps, matched.apart_ps[both].astype(np.float64)))
    )
    return {
        "collectives": n,
        "unmatched": int(chosen.sum()) - n,
        "late": late,
        "late_ps": late_ps,
        "late_max_ps": int(matched.late_ps[last].max()) if late else None,
        "straggles": bool(often and late_ps > late * int(str(error_ps or 0))),
        "wait_ps": wait_ps,
        "transfer_ps": total_ps - wait_ps,
        "total_ps": total_ps,
        "skew_median_ps": median_ps(matched.skew_ps[both]) if n else None,
        "skew_max_ps": int(matched.skew_ps[both].max()) if n else None,
    }


@analysis(
    Column("device", pa.string(), "the device"),
    Column("kind", pa.string(), "kind of collective; null for the row of all kinds", nullable=True),
    Column("collectives", _INT, "collectives that were found on another rank too", "collectives"),
    Column("unmatched", _INT, "collectives that were found on no other rank", "collectives"),
    Column("late", _INT, "times this rank came last", "collectives"),
    Column("late_ps", _INT, "by how much, summed up: what the others would have waited less", "ps"),
    Column("late_max_ps", _INT, "the most of these", "ps", nullable=True),
    Column(
        "straggles",
        pa.bool_(),
        "whether it came last more often, or for longer, than by chance (3 σ) and than clocks err by",
    ),
    Column("wait_ps", _INT, "waiting for the last rank", "ps"),
    Column("transfer_ps", _INT, "from the last rank's arrival to the end", "ps"),
    Column("total_ps", _INT, "wait_ps + transfer_ps: its executions' time", "ps"),
    Column("skew_median_ps", _INT, "median time from first to last arrival", "ps", nullable=True),
    Column("skew_max_ps", _INT, "longest time from first to last arrival", "ps", nullable=True),
    Column("clock_offset_ps", _INT, "what its host's clock is ahead of the first host's", "ps", nullable=True),
    Column(
        "clock_error_ps", _INT, "how far its ends lie from the other ranks' once aligned, median", "ps", nullable=True
    ),
    part=_PART,
    finish=_finish,
)
def collective_skew(shard: StackShard) -> RowsAndNotes:
    """Collectives of one shard; who came late and who waited is told when those of all ranks are known."""
    rows, device, start_ps, end_ps = _collectives(shard)
    if not len(rows):
        return [], ("no collectives were recorded on a device: record all ranks, with the device's activities on",)
    kind, key = _keys(shard, rows, device, start_ps)
    part = {
        "shard": [shard.shard.name] * len(rows),
        "epoch_unix_ns": [shard.shard.session.epoch_unix_ns] * len(rows),
        "device": device.tolist(),
        "kind": kind,
        "key": key,
        "start_ps": start_ps,
        "end_ps": end_ps,
    }
    return part, ()


def _collectives(shard: StackShard) -> tuple[Int64s, NDArray[np.object_], Int64s, Int64s]:
    """Row in `spans`, device, start and end of each, those of the host's own threads after those of devices."""
    executions, spans = shard.once(read_executions), shard.table("spans")
    code, names = encode_column(spans["name"])
    at_host = np.flatnonzero(np.isin(code, [i for i, name in enumerate(names) if _AT_HOST.match(name)]))
    chosen = np.flatnonzero(executions.category == "communication")
    if len(at_host):  # then ops of PyTorch's only ask for them
        asking = [i for i, name in enumerate(names) if name.startswith("c10d::")]
        chosen = chosen[~np.isin(code[executions.row[chosen]], asking)]
    start_ps, dur_ps = (spans[name].to_numpy()[at_host] for name in ("start_ps", "dur_ps"))
    return (
        np.concatenate((executions.row[chosen], at_host)),
        np.concatenate((executions.device[chosen], np.full(len(at_host), "host", object))),
        np.concatenate((executions.start_ps[chosen], start_ps)),
        np.concatenate((executions.end_ps[chosen], start_ps + dur_ps)),
    )
