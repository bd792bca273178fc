"""The peaks of a shard's devices: what a roofline stands below, and when memory is the limit."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from phasepoint.devices import DeviceSpec, device_spec, unknown_device_note
from phasepoint.stack.shard import StackShard

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
