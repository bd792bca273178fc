"""Measured configurations of a kernel on a device: one parquet file `KERNEL_DEVICE`, parameters and time_ms.

What a kernel's configuration is to a model: its parameters, and the products that they mean together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.errors import ModelError
from phasepoint.core.tables import read_parquet

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


TIME = "time_ms"


@dataclass(frozen=True)
class Sweep:
    """One file.

    Attributes:
        kernel: before the last `_` of the file's name.
        device: after it.
        names: [p] of the parameters.
        configs: int64 [n, p], no two alike.
        time_ms: float64 [n], NaN where a configuration does not run.
        notes: what was left out.
    """

    kernel: str
    device: str
    names: tuple[str, ...]
    configs: NDArray[np.int64]
    time_ms: NDArray[np.float64]
    notes: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The file's stem."""
        return f"{self.kernel}_{self.device}"


def read_sweeps(folder: str | Path) -> tuple[Sweep, ...]:
    """All sweeps of a folder, or the one file that is named; sorted by name.

    Raises:
        ModelError: there is none, or one cannot be used.
    """
    place = Path(folder)
    files = (place,) if place.is_file() else tuple(sorted(place.glob("*.parquet")))
    if not files:
        raise ModelError(
            f"{place} holds no parquet file; one per kernel and device, KERNEL_DEVICE.parquet, is expected"
        )
    return tuple(_read(path) for path in files)


def _read(path: Path) -> Sweep:
    import pyarrow as pa

    kernel, _, device = path.stem.rpartition("_")
    if not kernel or not device:
        raise ModelError(f"{path}: the name does not say kernel and device; KERNEL_DEVICE.parquet is expected")
    try:
        table = read_parquet(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as parquet ({error})") from error
    names = tuple(name for name in table.column_names if name != TIME)
    if TIME not in table.column_names or not names:
        raise ModelError(f"{path} has the columns {', '.join(table.column_names)}; parameters and {TIME} are expected")
    if any(table[name].null_count for name in names):
        raise ModelError(f"{path}: a parameter is missing in some rows; only {TIME} may be null")
    try:
        configs = np.stack([table[name].cast("int64").to_numpy() for name in names], axis=1)
        times = table[TIME].cast("float64").to_numpy().astype(np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise ModelError(f"{path}: parameters are whole numbers and {TIME} a number ({error})") from error
    times = np.where(times > 0, times, np.nan)
    if not np.isfinite(times).any():
        raise ModelError(f"{path} holds no configuration that runs")
    return _without_repeats(Sweep(kernel, device, names, configs.astype(np.int64), times))


def _without_repeats(sweep: Sweep) -> Sweep:
    """Of a configuration measured more than once the least time counts."""
    configs, of = np.unique(sweep.configs, axis=0, return_inverse=True)
    if len(configs) == len(sweep.configs):
        return sweep
    least = np.full(len(configs), np.inf)
    np.minimum.at(least, of.ravel(), np.where(np.isfinite(sweep.time_ms), sweep.time_ms, np.inf))
    note = f"{sweep.group}: {len(sweep.configs) - len(configs)} rows repeat a configuration; the least time counts"
    times = np.where(np.isfinite(least), least, np.nan)
    return Sweep(sweep.kernel, sweep.device, sweep.names, configs, times, (note,))
