"""What Kineto's JSON says of the job beside its events: the rank and the devices."""

from dataclasses import dataclass
from typing import Any

import msgspec

from phasepoint.sources.kineto_json import whole_number


@dataclass(frozen=True)
class KinetoHead:
    """Facts of a file.

    Attributes:
        rank: of the process, None where the file does not say.
        devices: `gpu:0 NVIDIA H100 80GB HBM3`, …
        base_unix_ns: Unix ns from which its times count; 0 where they are Unix times themselves.
    """

    rank: int | None = None
    devices: tuple[str, ...] = ()
    base_unix_ns: int = 0


class _File(msgspec.Struct):
    distributed: Any = msgspec.field(name="distributedInfo", default=None)
    devices: Any = msgspec.field(name="deviceProperties", default=None)
    base_ns: Any = msgspec.field(name="baseTimeNanoseconds", default=0)


def read_head(data: bytes) -> KinetoHead:
    """The facts; of a file that is no whole JSON object none are known."""
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return KinetoHead()
    rank = whole_number(file.distributed.get("rank")) if isinstance(file.distributed, dict) else None
    listed = file.devices if isinstance(file.devices, list) else []
    devices = tuple(
        f"gpu:{one['id']} {one['name']}" for one in listed if isinstance(one, dict) and {"id", "name"} <= one.keys()
    )
    return KinetoHead(rank if rank is None or rank >= 0 else None, devices, whole_number(file.base_ns) or 0)
