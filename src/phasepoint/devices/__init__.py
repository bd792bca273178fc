"""Peak rates and bandwidths of accelerators, each number with its unit and its source."""

from phasepoint.devices.specs import DeviceSpec, Rate, Source, Tile, device_spec, device_specs, unknown_device_note

__all__ = ["DeviceSpec", "Rate", "Source", "Tile", "device_spec", "device_specs", "unknown_device_note"]
