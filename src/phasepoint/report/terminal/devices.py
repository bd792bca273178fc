"""The devices' peak rates: all of them as one table, one of them with the source of every number."""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter

from rich.console import Console
from rich.text import Text

from phasepoint.devices import DeviceSpec, Rate
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.terminal import grid

_KINDS = ("f64", "f32", "tf32", "bf16", "f8", "f4", "s8")
_LEAST_WIDTH = 112
"""Characters that the table of all devices takes."""

_LINKS = ("nvlink", "infinity-fabric", "ici", "pcie")
"""Links between devices, the fastest first, which is the one shown."""


def render(specs: Sequence[DeviceSpec], console: Console) -> None:
    """Print a table of all devices: of a device as a framework counts them, so half a chip where it has two."""

    def fastest_link(spec: DeviceSpec) -> str:
        rates = (spec.link_bytes_per_s[kind] for kind in _LINKS if kind in spec.link_bytes_per_s)
        return _figure(next(rates, None), 1e9)

    columns = (
        TableColumn("device", lambda spec: spec.name),
        TableColumn("memory GB", lambda spec: _figure(spec.memory_bytes, 1e9), "GB"),
        TableColumn("GB/s", lambda spec: _figure(spec.memory_bytes_per_s, 1e9), "GB/s"),
        *(TableColumn(kind, partial(_peak, kind), "Tflop/s") for kind in _KINDS),
        TableColumn("links GB/s", fastest_link, "GB/s"),
    )
    # A figure cut short would be a wrong one: on a narrow terminal the lines run over.
    console.width = max(console.width, _LEAST_WIDTH)
    console.print(grid(Table(columns, specs)))
    console.print(
        Text("\nDense peaks in Tflop/s (s8: Top/s); `phasepoint devices NAME` gives every number's source.", "dim")
    )


def render_one(spec: DeviceSpec, console: Console) -> None:
    """Print every number of one device with its source."""
    share = f", {spec.devices_per_chip} devices a chip" if spec.devices_per_chip > 1 else ""
    console.print(Text.assemble((spec.name, "bold"), f"  {spec.vendor}{share}"))
    rates: Mapping[str, tuple[Rate, float, str]] = {
        "memory": (spec.memory_bytes, 1e9, "GB"),
        "memory bandwidth": (spec.memory_bytes_per_s, 1e9, "GB/s"),
        **{f"{kind} dense": (rate, 1e12, _unit(kind)) for kind, rate in spec.flop_per_s.items()},
        **{f"{kind} sparse": (rate, 1e12, _unit(kind)) for kind, rate in spec.sparse_flop_per_s.items()},
        **{f"{kind}, both ways": (rate, 1e9, "GB/s") for kind, rate in spec.link_bytes_per_s.items()},
    }
    sources = list(dict.fromkeys(rate.source for rate, _, _ in rates.values()))
    rows = [
        (what, f"{_figure(rate, scale)} {unit}", rate.published, f"[{sources.index(rate.source) + 1}]")
        for what, (rate, scale, unit) in rates.items()
    ]
    titles = ("", "of one device", "published", "source")
    columns = [TableColumn(title, itemgetter(index), wraps=True) for index, title in enumerate(titles)]
    console.print(grid(Table(columns, rows)))
    for number, source in enumerate(sources, start=1):
        compared = f"compared {source.read}" if source.read else "not yet compared"
        place = f" ({compared}) {source.url}" if source.url else ""
        console.print(Text(f"[{number}] {source.title}{place}", "dim"))


def _peak(kind: str, spec: DeviceSpec) -> str:
    return _figure(spec.flop_per_s.get(kind), 1e12)


def _unit(kind: str) -> str:
    return "Top/s" if kind.startswith("s") else "Tflop/s"


def _figure(rate: Rate | None, scale: float) -> str:
    return "" if rate is None else f"{rate.value / scale:.5g}"
