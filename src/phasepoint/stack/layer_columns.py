"""Columns that tables of layers have in common."""

import pyarrow as pa

from phasepoint.core.tables import Column

HOST = Column("host", pa.int64(), "rank of the process")
DEVICE = Column("device", pa.string(), "the device: gpu:0, tpu:0, cpu:0")
LAYER = Column("layer", pa.string(), "module path; null for what belongs to no layer", nullable=True)
TYPE = Column("type", pa.string(), "class of the layer: Conv2d, Linear", nullable=True)
INDEX = Column("index", pa.int64(), "place in the order in which the layers first ran")
STEPS = Column("steps", pa.int64(), "captured steps in which it ran, where steps are known", "steps", nullable=True)
LATENCY = Column(
    "latency_ps", pa.int64(), "time in which its own work was under way, host or device, over the captured steps", "ps"
)
STEP_LATENCY = Column("step_latency_ps", pa.int64(), "median of one step", "ps", nullable=True)
SHARE = Column("share_ratio", pa.float64(), "share of the column before it in the host's sum", "ratio", nullable=True)
KERNELS = Column("kernels", pa.int64(), "executions on the device", "executions")
DEVICE_TIME = Column(
    "device_ps",
    pa.int64(),
    "durations of its kernels (self times of ops, which nest) added up",
    "ps",
)


def shares(values: "pa.Array | list[int]") -> list[float | None]:
    """Each value over the sum of all, None where that is 0."""
    listed = values.to_pylist() if isinstance(values, pa.Array) else [int(value) for value in values]
    total = sum(value or 0 for value in listed)
    return [None if value is None or not total else value / total for value in listed]
