"""Layers of the rows of a slice, and of the executions that they launched."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.sources.kineto_details import Arguments
from phasepoint.sources.kineto_launches import CALLS
from phasepoint.sources.torch_layers import NONE, LayerRows, TorchLayers


class SliceLayers:
    """Fills in layers slice by slice, and remembers those of the newest launches.

    Args:
        names: name of each kind of event.
        texts: the file's texts.
    """

    def __init__(self, names: Sequence[str], texts: Sequence[str]) -> None:
        self._torch = TorchLayers(names, texts)
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
        layer, direction = self._torch.find(
            LayerRows(
                first=first,
                parent=_rows_of(columns["span"], columns["parent"]),
                kind=columns["kind"].astype(np.int64),
                track=columns["track"].astype(np.int64),
                sequence=arguments.column("Sequence number", rows),
                forward_thread=arguments.column("Fwd thread id", rows),
                hierarchy=np.maximum(arguments.column("Module Hierarchy", rows), NONE),
                layer=columns["layer"],
                direction=columns["direction"],
            )
        )
        self._remember(columns, np.stack((columns["span"], layer, direction)), first, on_device)
        launched = np.flatnonzero(on_device & (columns["launch"] >= 0))
        if len(launched) and self._calls.shape[1]:
            place = np.minimum(np.searchsorted(self._calls[0], columns["launch"][launched]), self._calls.shape[1] - 1)
            there = self._calls[0, place] == columns["launch"][launched]
            layer[launched[there]], direction[launched[there]] = self._calls[1:, place[there]]
        columns["layer"], columns["direction"] = layer, direction

    def _remember(
        self, columns: dict[str, NDArray[Any]], rows: Int64s, first: int, on_device: NDArray[np.bool_]
    ) -> None:
        """Keep the layers of a slice's calls; their spans have rising numbers."""
        is_call = (columns["correlation"] != NONE) & (columns["span"] != NONE) & ~on_device
        is_call[:first] = False
        self._calls = np.concatenate((self._calls, rows[:, is_call]), axis=1)[:, -CALLS:]


def _rows_of(span: Int64s, wanted: Int64s) -> Int64s:
    """Rows of spans by number, `NONE` for those that are not there. The spans' numbers rise from row to row."""
    rows = np.flatnonzero(span != NONE)
    if not len(rows):
        return np.full(len(wanted), NONE, np.int64)
    first, last = int(span[rows[0]]), int(span[rows[-1]])
    if last - first + 1 == len(rows):  # one after another, as they are where nothing is held from before
        inside = (wanted >= first) & (wanted <= last)
        return np.where(inside, rows[np.where(inside, wanted - first, 0)], NONE)
    place = np.minimum(np.searchsorted(span[rows], wanted), len(rows) - 1)
    return np.where(span[rows[place]] == wanted, rows[place], NONE)
