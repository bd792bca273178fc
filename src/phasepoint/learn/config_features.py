"""What a kernel's configuration is to a model: its parameters, and the products that they mean together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_GROUPS = (
    ("threads", ("block_size", "block_dim", "threads", "work_group_size", "workgroup", "mdimc", "ndimc")),
    ("tile", ("tile_size", "tile_dim", "work_per_thread", "mwg", "nwg")),
)


def config_features(names: Sequence[str], configs: NDArray[np.int64]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """One row per configuration: logarithms to base 2 of the parameters, of threads in a block, of the tile.

    Args:
        names: of the parameters, [p]; `threads` and `tile` are known by them and left out where no name says so.
        configs: [n, p].

    Returns:
        float64 [n, features], names.
    """
    logs = np.log2(np.where(configs > 0, configs, 0.5))
    columns = dict(zip(names, logs.T, strict=True))
    for group, starts in _GROUPS:
        of = [place for place, name in enumerate(names) if name.lower().startswith(starts)]
        if len(of) > 1:
            columns[f"{group} of all"] = logs[:, of].sum(axis=1)
    both = [columns[f"{group} of all"] for group, _ in _GROUPS if f"{group} of all" in columns]
    if len(both) > 1:
        columns["work of a block"] = both[0] + both[1]
    return np.stack(list(columns.values()), axis=1), tuple(columns)


def threads_of(names: Sequence[str], configs: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Threads of a block, `[n]`; None where no parameter says so."""
    of = _of_block(names)
    return np.prod(np.maximum(configs[:, of], 1), axis=1).astype(np.float64) if of else None


def odd_sides(names: Sequence[str], configs: NDArray[np.int64]) -> NDArray[np.float64]:
    """How many sides of the block are no power of two, `[n]`; 0 where no parameter says so."""
    sides = np.maximum(configs[:, _of_block(names)], 1)
    return np.asarray((sides & (sides - 1) > 0).sum(axis=1), np.float64)


def _of_block(names: Sequence[str]) -> list[int]:
    """Places of the parameters that are sides of a block of threads."""
    return [place for place, name in enumerate(names) if name.lower().startswith(_GROUPS[0][1])]


def unit_features(names: Sequence[str], configs: NDArray[np.int64]) -> NDArray[np.float64]:
    """The features that vary, each from 0 to 1: where distances between configurations are measured."""
    features, _ = config_features(names, configs)
    spread = np.ptp(features, axis=0)
    varied = features[:, spread > 0]
    return np.asarray((varied - varied.min(axis=0)) / np.ptp(varied, axis=0), np.float64) if varied.size else varied
