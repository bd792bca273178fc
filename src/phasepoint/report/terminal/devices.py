"""The devices' peak rates: all of them as one table, one of them with the source of every number."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.devices import DeviceSpec, Rate, Source

_COLUMNS = ("f64", "f32", "tf32", "bf16", "f8", "f4", "s8")
_LEAST_WIDTH = 112
_LINKS = ("nvlink", "infinity-fabric", "ici", "pcie")


def render(specs: Sequence[DeviceSpec], console: Console) -> None:
    """Print a table of all devices: of a device as a framework counts them, so half a chip where it has two."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    grid.add_column("device", no_wrap=True)
    for title in ("memory GB", "GB/s", *_COLUMNS, "links GB/s"):
        grid.add_column(title, justify="right", no_wrap=True)
    for spec in specs:
        memory = (_figure(spec.memory_bytes, 1e9), _figure(spec.memory_bytes_per_s, 1e9))
        peaks = (_figure(spec.flop_per_s.get(kind), 1e12) for kind in _COLUMNS)
        link = next((spec.link_bytes_per_s[kind] for kind in _LINKS if kind in spec.link_bytes_per_s), None)
        grid.add_row(spec.name, *memory, *peaks, _figure(link, 1e9))
    # A figure cut short would be a wrong one: on a narrow terminal the lines run over.
    console.width = max(console.width, _LEAST_WIDTH)
    console.print(grid)
    console.print(
        Text("\nDense peaks in Tflop/s (s8: Top/s); `phasepoint devices NAME` gives every number's source.", "dim")
    )


def render_one(spec: DeviceSpec, console: Console) -> None:
    """Print every number of one device with its source."""
    share = f", {spec.devices_per_chip} devices a chip" if spec.devices_per_chip > 1 else ""
    console.print(Text.assemble((spec.name, "bold"), f"  {spec.vendor}{share}"))
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("", "of one device", "published", "source"):
        grid.add_column(title, overflow="fold")
    rows: Mapping[str, tuple[Rate, float, str]] = {
        "memory": (spec.memory_bytes, 1e9, "GB"),
        "memory bandwidth": (spec.memory_bytes_per_s, 1e9, "GB/s"),
        **{f"{kind} dense": (rate, 1e12, _unit(kind)) for kind, rate in spec.flop_per_s.items()},
        **{f"{kind} sparse": (rate, 1e12, _unit(kind)) for kind, rate in spec.sparse_flop_per_s.items()},
        **{f"{kind}, both ways": (rate, 1e9, "GB/s") for kind, rate in spec.link_bytes_per_s.items()},
    }
    sources = list(dict.fromkeys(rate.source for rate, _, _ in rows.values()))
    for what, (rate, scale, unit) in rows.items():
        number = f"[{sources.index(rate.source) + 1}]"
        grid.add_row(what, f"{_figure(rate, scale)} {unit}", rate.published, number)
    console.print(grid)
    for index, source in enumerate(sources, start=1):
        console.print(Text(f"[{index}] {_source(source)}", "dim"))


def _source(source: Source) -> str:
    if not source.url:
        return source.title
    return f"{source.title} ({f'compared {source.read}' if source.read else 'not yet compared'}) {source.url}"


def _unit(kind: str) -> str:
    return "Top/s" if kind.startswith("s") else "Tflop/s"


def _figure(rate: Rate | None, scale: float) -> str:
    return "" if rate is None else f"{rate.value / scale:.5g}"
