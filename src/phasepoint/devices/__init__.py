"""Peak rates and bandwidths of accelerators, each number with its unit and its source; and the CPU, measured."""

from phasepoint.devices.specs import (
    Chip,
    DeviceSpec,
    Rate,
    Source,
    Tile,
    device_spec,
    device_specs,
    unknown_device_note,
)

__all__ = ["Chip", "DeviceSpec", "Rate", "Source", "Tile", "device_spec", "device_specs", "unknown_device_note"]
