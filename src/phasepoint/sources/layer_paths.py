"""Paths of the named stretches around each event: `forward/encoder/attention`."""

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Int64s
from phasepoint.core.nesting import nest_spans
from phasepoint.sources.dense import number_keys
from phasepoint.sources.event_rows import PlacedEvents
from phasepoint.sources.event_tables import NO_ID, Kind, text_column


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


def _join(outer: str | None, own: str | None) -> str | None:
    """The path of a layer within another; one without a name adds nothing."""
    return "/".join(text for text in (outer, own) if text) or None


def _by_depth(above: Int64s) -> list[Int64s]:
    """Rows a generation at a time: first those under nothing, then what stands under these."""
    depth = np.where(above == NO_ID, 0, -1)
    level = 0
    rows = [np.flatnonzero(depth == 0)]
    waiting = np.flatnonzero(depth < 0)
    while len(waiting):
        reached = depth[above[waiting]] == level
        if not reached.any():  # a loop of explicit ids: those stay without a path
            break
        level += 1
        depth[waiting[reached]] = level
        rows.append(waiting[reached])
        waiting = waiting[~reached]
    return rows
