"""Peak rates of accelerators, each with its source. A device outside the table is unknown: nothing is guessed."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

_UNITS = {
    "GB": 10**9,
    "GiB": 2**30,
    "GB/s": 10**9,
    "TB/s": 10**12,
    "TFLOP/s": 10**12,
    "TOP/s": 10**12,
    "MiB": 2**20,
    "MHz": 10**6,
    "SM": 1,
    "CU": 1,
    "lanes": 1,
    "W": 1,
    "nm": 1,
}
_SHARED = ("multiprocessors", "cache_bytes", "power_w")
"""What the devices of one chip divide among them, of the numbers of its `Chip`."""
_PLACE = re.compile(r"^(?:gpu|tpu|cpu|cuda|rocm):\d+\s+", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """The document that gives a number.

    Attributes:
        title: its title, with the table where it has several.
        url: where it is.
        read: date on which its text was last compared with the table, None where that is still to be done.
    """

    title: str
    url: str
    read: str | None


@dataclass(frozen=True)
class Rate:
    """A number of one device with its source.

    Attributes:
        value: in the unit that the attribute holding it names.
        published: as the maker gives it, for the whole chip: `275 TFLOP/s`.
        source: where.
    """

    value: float
    published: str
    source: Source


@dataclass(frozen=True)
class Tile:
    """What a device's matrix unit works on at a time; dimensions are padded up to it.

    Attributes:
        rows: multiple of the rows (M) of a product.
        columns: multiple of its columns (N) and of the dimension that is summed over (K).
        source: where.
    """

    rows: int
    columns: int
    source: Source


@dataclass(frozen=True)
class Chip:
    """What lies between the peaks of a GPU and the times of its kernels: counts, clock, cache and power.

    Attributes:
        multiprocessors: SMs or CUs of one device.
        f32_lanes: sums of f32 that one of them begins per clock.
        cache_bytes: the last cache before the memory (L2, or AMD's Infinity Cache), bytes.
        clock_hz: boost clock, Hz.
        power_w: of the board, watts; None where the maker gives it only together with other chips.
        process_nm: the process as a number, nm; 4 for 4N and 4NP.
    """

    multiprocessors: Rate
    f32_lanes: Rate
    cache_bytes: Rate
    clock_hz: Rate
    process_nm: Rate
    power_w: Rate | None = None


@dataclass(frozen=True)
class DeviceSpec:
    """What one device (as a framework counts devices) can do at most.

    Attributes:
        name: product.
        vendor: maker.
        devices_per_chip: devices into which a framework divides one chip; the numbers here are of one device.
        memory_bytes: size of its memory, bytes.
        memory_bytes_per_s: bandwidth of its memory, bytes/s.
        flop_per_s: dense peak by element type (`bf16`, `f32`, `tf32`, `f8`, `s8`, …), flop/s; types not published are
            absent.
        sparse_flop_per_s: the same with two of four values zero (structured sparsity); empty where it has none.
        link_bytes_per_s: by kind of link (`nvlink`, `nvlink-c2c`, `infinity-fabric`, `ici`, `pcie`), bytes/s of both
            directions and all links together, as makers publish it; kinds not published are absent.
        architecture: what compilers call its kind (`sm_90`, `gfx942`); None where that is not a name of its own.
        tile: what its matrix unit works on at a time; None where that is not published.
        chip: counts, clock, cache and power of a GPU; None where they are not published.
    """

    name: str
    vendor: str
    devices_per_chip: int
    memory_bytes: Rate
    memory_bytes_per_s: Rate
    flop_per_s: Mapping[str, Rate]
    sparse_flop_per_s: Mapping[str, Rate] = field(default_factory=dict)
    link_bytes_per_s: Mapping[str, Rate] = field(default_factory=dict)
    architecture: str | None = None
    tile: Tile | None = None
    chip: Chip | None = None


def device_spec(name: str) -> DeviceSpec | None:
    """The specification of a device, None where the table has none by exactly this name.

    Args:
        name: as a driver or framework reports it (`NVIDIA H100 80GB HBM3`, `TPU v5 lite`), with or without the place in
            front (`gpu:0 NVIDIA H200`); case and punctuation do not matter.

    Example:
        >>> device_spec("TPU v4").flop_per_s["bf16"].value
        275000000000000.0
    """
    return _by_alias().get(_plain(_PLACE.sub("", name)))


def unknown_device_note(name: str) -> str:
    """One sentence for the reader where `device_spec` has no answer."""
    missing = f"no peak rates are known for device {name!r}, so ratios to its peak are left out; "
    wanted = _plain(_PLACE.sub("", name).split(":")[0])  # ROCm adds features to the name: gfx90a:sramecc+:xnack-
    products = [s.name for s in device_specs() if s.architecture is not None and _plain(s.architecture) == wanted]
    if products:
        return missing + f"it is the architecture of several products, and their peaks differ: {', '.join(products)}"
    return missing + "add it, with its source, to phasepoint/devices/specs.toml"


@cache
def device_specs() -> tuple[DeviceSpec, ...]:
    """All specifications, in the order of the table."""
    return tuple(spec for spec, _ in _load())


@cache
def _by_alias() -> Mapping[str, DeviceSpec]:
    by_alias: dict[str, DeviceSpec] = {}
    for spec, aliases in _load():
        for alias in aliases:
            if by_alias.setdefault(_plain(alias), spec) is not spec:
                raise ValueError(
                    f"specs.toml: {alias!r} names two devices, {by_alias[_plain(alias)].name} and {spec.name}"
                )
    return by_alias


@cache
def _load() -> tuple[tuple[DeviceSpec, tuple[str, ...]], ...]:
    table = tomllib.loads(files(__package__).joinpath("specs.toml").read_text(encoding="utf-8"), parse_float=Decimal)
    sources = {key: Source(entry["title"], entry["url"], entry.get("read")) for key, entry in table["sources"].items()}
    return tuple((_read_device(entry, sources), (entry["name"], *entry["aliases"])) for entry in table["device"])


def _read_device(entry: Mapping[str, Any], sources: Mapping[str, Source]) -> DeviceSpec:
    share, tile, chip = entry["devices_per_chip"], entry.get("tile"), entry.get("chip")

    def rate(number: Mapping[str, Any], *, shared: bool = True) -> Rate:
        value = float(number["value"] * _UNITS[number["unit"]] / (share if shared else 1))
        return Rate(value, f"{number['value']} {number['unit']}", sources[number["source"]])

    def rates(table: str) -> Mapping[str, Rate]:
        return MappingProxyType({kind: rate(number) for kind, number in entry.get(table, {}).items()})

    return DeviceSpec(
        name=entry["name"],
        vendor=entry["vendor"],
        devices_per_chip=share,
        memory_bytes=rate(entry["memory_bytes"]),
        memory_bytes_per_s=rate(entry["memory_bytes_per_s"]),
        flop_per_s=rates("flop_per_s"),
        sparse_flop_per_s=rates("sparse_flop_per_s"),
        link_bytes_per_s=rates("link_bytes_per_s"),
        architecture=entry.get("architecture"),
        tile=None if tile is None else Tile(tile["rows"], tile["columns"], sources[tile["source"]]),
        chip=None if chip is None else Chip(**{key: rate(chip[key], shared=key in _SHARED) for key in chip}),
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
