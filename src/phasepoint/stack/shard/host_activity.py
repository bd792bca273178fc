"""What the host's threads did at every instant: disjoint segments of each track, with a name that a user knows.

The name is that of the outermost op, else of the nearest annotation, else of the innermost call.
"""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.intervals import IntervalSet
from phasepoint.core.nesting import nest_spans
from phasepoint.stack.shard.hierarchy import NONE, climb
from phasepoint.stack.shard.shard import StackShard

_SYNCHRONISES = re.compile(
    r"^(cuda|cu|hip|mtia)\w*(Device|Stream|Event|Ctx)Synchronize|BlockHostUntil|BlockUntilReady|\bAwait", re.IGNORECASE
)
"""Calls in which the host waits for the device. Source: CUDA and HIP runtime APIs; XLA's stream executor and PJRT."""

_STREAM_WAITS = re.compile(r"StreamWait(Event|Value)", re.IGNORECASE)
"""Calls by which a stream is told to wait for another one."""

_IDLES = re.compile(
    r"method (acquire|sleep|select|poll|wait|run_backward)\b|^threading\.py\(\d+\): wait|^queue\.py\(\d+\): get"
)
"""Python functions in which a thread stands still, or waits for the thread that runs the backward pass."""

_INPUT = re.compile(r"data_?loader|\bIteratorGetNext|\binfeed|\btf_data", re.IGNORECASE)
"""Annotations under which the next batch is made or waited for. Source: PyTorch's `enumerate(DataLoader)#…__next__`."""


@dataclass(frozen=True, eq=False)
class HostActivity:
    """Segments of the host's tracks; those of one track do not overlap. Arrays are `[n_segments]`, by track and start.

    Attributes:
        track: number of the track, as `HostSide.tracks` has it.
        times: start and end.
        row: row of the innermost span.
        above: `[n_spans]` row of the span that encloses each in time on its track. Explicit parents may leave out what
            stands between: frames of Python know only each other.
    """

    track: Int64s
    times: IntervalSet
    row: Int64s
    above: Int64s

    def of(self, track: int) -> "HostActivity":
        """Those of one track."""
        return self.where(slice(*np.searchsorted(self.track, (track, track + 1))))

    def where(self, chosen: slice | Bools | Int64s) -> "HostActivity":
        """Those that are chosen: from which to which, `[n_segments]` which, or their numbers."""
        times = IntervalSet(self.times.start_ps[chosen], self.times.end_ps[chosen])
        return HostActivity(self.track[chosen], times, self.row[chosen], self.above)


def host_activity(spans: pa.Table, tracks: Int64s) -> HostActivity:
    """Segments of the tracks on which nothing was launched to: threads of the host, and CPU devices.

    Marks of steps are no activity.

    Args:
        spans: rows of `spans`.
        tracks: `[n]` a number for each one's track.
    """
    on_host = pc.or_(pc.equal(spans["device"], "host"), pc.starts_with(spans["device"].cast(pa.string()), "cpu:"))
    row = np.flatnonzero(pc.and_(on_host, pc.not_equal(spans["level"], "model")).to_numpy())
    start_ps = spans["start_ps"].to_numpy()[row]
    nesting = nest_spans(tracks[row], start_ps, start_ps + spans["dur_ps"].to_numpy()[row])
    inner = row[nesting.segment_span]
    order = np.lexsort((nesting.segment_start_ps, tracks[inner]))
    times = IntervalSet(nesting.segment_start_ps[order], nesting.segment_end_ps[order])
    above = np.full(spans.num_rows, NONE)
    above[row] = np.where(nesting.parent == NONE, NONE, row[nesting.parent]) if len(row) else row
    return HostActivity(tracks[inner][order], times, inner[order], above)


@dataclass(frozen=True, eq=False)
class Naming:
    """What a user calls the activity of each span. Arrays are `[n]`, one value a span.

    Attributes:
        named: row of the span whose name says it.
        is_input: whether the next batch is made or waited for.
        waits: whether the host waits for the device.
        idles: whether the thread stands still.
        stream_waits: whether a stream is told to wait for another.
    """

    named: Int64s
    is_input: Bools
    waits: Bools
    idles: Bools
    stream_waits: Bools


def name_activity(spans: pa.Table, above: Int64s) -> Naming:
    """Name the activity of each span.

    Args:
        spans: rows of `spans` with `level` and `name`.
        above: `[n]` row of the span that encloses each, as `HostActivity` has it.
    """
    rows = np.arange(spans.num_rows)
    is_op = pc.equal(spans["level"], "op").to_numpy()
    outermost = is_op & (climb(above, is_op) == NONE)
    is_annotation = pc.equal(spans["level"], "layer").to_numpy()
    op = np.where(outermost, rows, climb(above, outermost))
    annotation = np.where(is_annotation, rows, climb(above, is_annotation))
    named = np.where(op != NONE, op, np.where(annotation != NONE, annotation, rows))
    loads = is_annotation & _matches(spans["name"], _INPUT)
    is_input = loads | (climb(above, loads) != NONE)
    named = np.where(is_input & (annotation != NONE), annotation, named)
    waits, idles, stream_waits = (_matches(spans["name"], kind) for kind in (_SYNCHRONISES, _IDLES, _STREAM_WAITS))
    return Naming(named, is_input, waits, idles, stream_waits)


@dataclass(frozen=True, eq=False)
class HostSide:
    """The host's side of a shard. Arrays are `[n_spans]`.

    Attributes:
        start_ps: start of each span, from the session's epoch.
        end_ps: its end.
        tracks: a number for each one's track.
        activity: what the host's threads did.
        naming: what a user calls that.
    """

    start_ps: Int64s
    end_ps: Int64s
    tracks: Int64s
    activity: HostActivity
    naming: Naming

    def told_to_wait(self, launches: Int64s) -> Bools:
        """`[n_spans]` the launches, of these rows, before which a stream was told to wait.

        That is since the launch before on their thread.
        """
        told = np.zeros(len(self.start_ps), np.bool_)
        launches, waits = np.unique(launches), np.flatnonzero(self.naming.stream_waits)
        for track in np.unique(self.tracks[waits]):
            mine = launches[self.tracks[launches] == track]
            mine = mine[np.argsort(self.start_ps[mine], kind="stable")]
            waits_ps = np.sort(self.start_ps[waits[self.tracks[waits] == track]])
            told[mine] = np.diff(np.searchsorted(waits_ps, self.start_ps[mine]), prepend=0) > 0
        return told


def read_host(shard: StackShard) -> HostSide:
    """The host's side of a shard.

    Raises:
        StoreError: the table cannot be read.
    """
    spans = shard.table("spans")
    start_ps = spans["start_ps"].to_numpy()
    tracks = spans["track"].combine_chunks().indices.to_numpy().astype(np.int64)
    activity = host_activity(spans, tracks)
    naming = name_activity(spans, activity.above)
    return HostSide(start_ps, start_ps + spans["dur_ps"].to_numpy(), tracks, activity, naming)


def _matches(names: pa.ChunkedArray, pattern: re.Pattern[str]) -> Bools:
    """Whether each name matches; each distinct name is looked at once."""
    encoded = names.unify_dictionaries().combine_chunks()
    found = np.fromiter((pattern.search(name) is not None for name in encoded.dictionary.to_pylist()), np.bool_)
    codes = encoded.indices.to_numpy()
    return found[codes] if len(found) else np.zeros(len(codes), np.bool_)
