"""Measured configurations of a kernel on a device: one parquet file `KERNEL_DEVICE`, parameters and time_ms."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.errors import ModelError

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
    import pyarrow.parquet as pq

    kernel, _, device = path.stem.rpartition("_")
    if not kernel or not device:
        raise ModelError(f"{path}: the name does not say kernel and device; KERNEL_DEVICE.parquet is expected")
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
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
