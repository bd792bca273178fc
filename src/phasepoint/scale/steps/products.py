"""A matrix product on one TPU, called from the host: the call, then the longer of arithmetic and memory.

Its own file: a table of parts, as its neighbours for GPUs and TPUs.
"""

from phasepoint.core.errors import UsageError
from phasepoint.devices.specs import DeviceSpec
from phasepoint.scale.steps.constants import Part, Parts

ELEMENT_BYTES = {"bfloat16": 2, "float32": 4, "int8": 1}

PRODUCT_PARTS = (
    Part("bfloat16", 1.2, "device", "products of bf16"),
    Part("float32", 1.2, "device", "products of f32, which the matrix unit takes as bf16 by default"),
    Part("int8", 1.2, "device", "products of s8"),
    Part("memory", 1.0, "host", "reading both operands, writing the result"),
    Part("call", 1.0, "beside", "100 µs of the host's for a call that it waits for"),
)


def product_parts(rows: int, columns: int, inner: int, dtype: str, device: DeviceSpec) -> Parts:
    """What a product [rows, inner] × [inner, columns] would take at the peak.

    Raises:
        UsageError: an element type without a known peak.
    """
    peak = device.flop_per_s.get("s8" if dtype == "int8" else "bf16")
    if dtype not in ELEMENT_BYTES or peak is None:
        raise UsageError(
            f"products of {dtype} on {device.name}: no peak is known; there are {', '.join(ELEMENT_BYTES)}"
        )
    written = 4 if dtype == "int8" else ELEMENT_BYTES[dtype]
    moved = ELEMENT_BYTES[dtype] * inner * (rows + columns) + written * rows * columns
    return {
        dtype: 2 * rows * columns * inner / peak.value,
        "memory": moved / device.memory_bytes_per_s.value,
        "call": 1e-4,
    }
