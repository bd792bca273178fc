"""What ran on a shard's devices, as arrays: the intervals that device time is computed from.

The peaks of a shard's devices: what a roofline stands below, and when memory is the limit. The instructions of programs
that spans are executions of.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.devices import DeviceSpec, device_spec, unknown_device_note
from phasepoint.stack.shard.hierarchy import NONE, referred_rows
from phasepoint.stack.shard.shard import StackShard

NO_DEVICE_NOTE = "no device work was recorded: record with the device's activities on"

_PLACE = re.compile(r"^(\w+:\d+)(?:\s|$)")


@dataclass(frozen=True)
class Peaks:
    """What the devices of a shard can do at most.

    Attributes:
        specs: specification by device (`gpu:0`); a device that is not known is absent.
        names: what the session calls its devices: `gpu:0` → `gpu:0 NVIDIA H100 80GB HBM3`.
    """

    specs: Mapping[str, DeviceSpec]
    names: Mapping[str, str]

    def bytes_per_s(self, device: str) -> float | None:
        """Bandwidth of a device's memory."""
        spec = self.specs.get(device)
        return None if spec is None else spec.memory_bytes_per_s.value

    def notes(self, devices: Iterable[str]) -> tuple[str, ...]:
        """Which of some devices have no known peaks."""
        unknown = [self.names.get(device, device) for device in sorted(set(devices)) if device not in self.specs]
        return tuple(unknown_device_note(name) for name in unknown)

    def flop_per_s(self, device: str, element_type: str | None) -> float | None:
        """Dense peak of a device for an element type, None where either is not known."""
        spec = self.specs.get(device)
        rate = None if spec is None or element_type is None else spec.flop_per_s.get(element_type)
        return None if rate is None else rate.value


def read_peaks(shard: StackShard) -> Peaks:
    """The peaks of the devices that the shard's session names: `gpu:0 NVIDIA H100 80GB HBM3`."""
    named = {place[1]: name for name in shard.shard.session.devices if (place := _PLACE.match(name))}
    specs = {device: spec for device, name in named.items() if (spec := device_spec(name)) is not None}
    return Peaks(specs, named)


@dataclass(frozen=True, eq=False)
class Executions:
    """Executions on devices, in the order of their spans. Arrays are `[n]`.

    Attributes:
        row: row of the shard's `spans`.
        start_ps: start, from the session's epoch.
        end_ps: end.
        device: device of each.
        category: compute, communication, data_movement or host.
        launch: row of the host's span that launched it, `NONE` where that is not known.
        orphan: kernels whose launch is not in the trace. Devices that are given whole programs (TPU, CPU) have no
            launches to miss.
    """

    row: Int64s
    start_ps: Int64s
    end_ps: Int64s
    device: NDArray[np.object_]
    category: NDArray[np.object_]
    launch: Int64s
    orphan: NDArray[np.bool_]

    @property
    def devices(self) -> list[str]:
        """Names of the devices, sorted."""
        return sorted(set(self.device.tolist()))

    def of(self, device: str) -> "Executions":
        """Those of one device."""
        return self.where(self.device == device)

    def where(self, chosen: NDArray[np.bool_] | Int64s) -> "Executions":
        """Those that are chosen: `[n]` which, or their numbers."""
        return Executions(*(getattr(self, field.name)[chosen] for field in fields(self)))


def read_executions(shard: StackShard) -> Executions:
    """The executions of a shard: spans of a device that are ops or kernels; marks of steps and programs are none.

    Raises:
        StoreError: the table cannot be read.
    """
    spans = shard.table("spans", ["window", "span", "device", "level", "category", "start_ps", "dur_ps", "launch"])
    on_device = pc.and_(pc.not_equal(spans["device"], "host"), pc.is_in(spans["level"], pa.array(["op", "kernel"])))
    row = np.flatnonzero(on_device.to_numpy(zero_copy_only=False))
    chosen = spans.take(pa.array(row))
    start_ps = chosen["start_ps"].to_numpy()
    launch = referred_rows(spans, "launch")[row]
    is_kernel = pc.equal(chosen["level"], "kernel").to_numpy()
    return Executions(
        row=row,
        start_ps=start_ps,
        end_ps=start_ps + chosen["dur_ps"].to_numpy(),
        device=texts_of(chosen["device"]),
        category=texts_of(chosen["category"]),
        launch=launch,
        orphan=is_kernel & (launch == NONE),
    )


def texts_of(column: pa.ChunkedArray) -> NDArray[np.object_]:
    """`[n]` texts of a dictionary column without nulls; equal ones share one object.

    NULs at their ends go: NumPy compares without them, and would find no text that has some.
    """
    encoded = column.combine_chunks()
    words = np.array([text.rstrip("\0") for text in encoded.dictionary.to_pylist()], object)
    return words[encoded.indices.to_numpy()] if len(words) else np.empty(0, object)


def distinct_instructions(spans: pa.Table) -> tuple[list[tuple[int, str]], Int64s]:
    """The instructions, as program and name, that spans are executions of.

    Args:
        spans: rows of `spans` with `program`, `op` and `name`.

    Returns:
        Each instruction once, sorted by program, and `[n]` the number of each span's. A missing program is -1.
    """
    code, names = encode_column(pc.coalesce(spans["op"].cast(pa.string()), spans["name"].cast(pa.string())))
    if not len(code):
        return [], np.empty(0, np.int64)
    program = spans["program"].fill_null(-1).to_numpy()
    pairs, number = np.unique(np.stack((program, code)), axis=1, return_inverse=True)
    return [(program, names[code]) for program, code in pairs.T.tolist()], number.ravel()
