"""Convolution problems: as MIOpen's find database writes them, as numbers for a model, with their measured solvers.

Source: ROCm/MIOpen, serialisation of conv::ProblemDescription: channels, spatial size, filter, other channels, other
size, batch, padding, stride, dilation, bias, layout (three of them where they differ from the default), element type,
direction, `_g` and the groups where there is more than one. In the directions B (data gradient) and W (weight
gradient) the first tensor is the gradient of the output, the second the input.

To a model a problem is its sizes, the matrix product behind it, what divides what. Measured solvers are a table,
problems × solvers: one parquet file per device, named after it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.errors import ModelError
from phasepoint.core.tables import read_parquet

if TYPE_CHECKING:
    import pyarrow as pa

DIRECTIONS = ("F", "B", "W")

_WINDOW = r"\d+x\d+(?:x\d+)?"
_PATTERN = re.compile(
    r"(?P<channels>\d+)-(?P<size>\d+-\d+(?:-\d+)?)"
    rf"-(?P<filter>{_WINDOW})-(?P<other_channels>\d+)-(?P<other_size>\d+-\d+(?:-\d+)?)-(?P<batch>\d+)"
    rf"-(?P<padding>{_WINDOW})-(?P<stride>{_WINDOW})-(?P<dilation>{_WINDOW})-(?P<bias>\d+)"
    r"-(?P<layout>[A-Za-z0-9]+(?:-[A-Za-z0-9]+-[A-Za-z0-9]+)?)-(?P<dtype>[A-Z0-9]+)-(?P<direction>[FBW])"
    r"(?:_g(?P<groups>\d+))?"
)


@dataclass(frozen=True)
class ConvProblem:
    """One convolution. Sizes and windows have two entries (height, width) or three (depth first).

    Attributes:
        channels: of the tensor that is named first: the input; in the directions B and W the output's gradient.
        size: its spatial size.
        filter: the filter's spatial size.
        other_channels: of the other tensor.
        other_size: its spatial size.
        batch: images.
        padding: per side.
        stride: of the filter.
        dilation: of the filter, 1 for none.
        bias: 1 with a bias.
        layout: as written: one for all tensors, or three joined by `-`.
        dtype: as written: FP32, FP16, BF16, INT8, …
        direction: F forward, B data gradient, W weight gradient.
        groups: 1 for none.
    """

    channels: int
    size: tuple[int, ...]
    filter: tuple[int, ...]
    other_channels: int
    other_size: tuple[int, ...]
    batch: int
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    bias: int
    layout: str
    dtype: str
    direction: str
    groups: int = 1


def parse_conv_problem(text: str) -> ConvProblem | None:
    """The problem of a key; None where the key is of no known form, or its sizes do not have the same dimensions.

    Example:
        >>> parse_conv_problem("128-28-28-3x3-64-55-55-16-1x1-2x2-1x1-0-NCHW-FP32-B").other_size
        (55, 55)
    """
    found = _PATTERN.fullmatch(text)
    if found is None:
        return None
    part = found.groupdict()
    sizes = {
        name: tuple(int(x) for x in re.split("[x-]", part[name]))
        for name in ("size", "filter", "other_size", "padding", "stride", "dilation")
    }
    numbers = {name: int(part[name]) for name in ("channels", "other_channels", "batch", "bias")}
    groups = int(part["groups"] or 1)
    positive: tuple[int, ...] = (numbers["channels"], numbers["other_channels"], numbers["batch"], groups)
    positive += (*sizes["size"], *sizes["filter"], *sizes["other_size"], *sizes["stride"], *sizes["dilation"])
    if len({len(of) for of in sizes.values()}) != 1 or min(positive) < 1:
        return None
    words = {name: part[name] for name in ("layout", "dtype", "direction")}
    return ConvProblem(**numbers, **sizes, **words, groups=groups)  # type: ignore[arg-type]


_SIZES = ("channels", "filters", "batch", "groups")
_SPATIAL = ("in", "out", "filter", "padding", "stride", "dilation")
_AXES = ("d", "h", "w")
_DTYPES = {"FP32": 4, "FP16": 2, "BF16": 2, "INT8": 1, "FP64": 8, "FP8": 1, "BF8": 1}
_TILES = (32, 64, 128, 256)
_DIVIDED = ("channels_of_group", "filters_of_group", "pixels", "columns", "batch", "in_w", "depth")


def conv_features(problems: Sequence[ConvProblem]) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """One row per problem, and the names of the columns.

    Sizes are logarithms to base 2 of (1 +) the size; the rest are flags, exponents of the largest power of two that
    divides a size (7 at most), and shares of tiles that are not used.

    Args:
        problems: two- and three-dimensional ones may be mixed; two dimensions are depth 1.

    Returns:
        float32 [n, features], names.
    """
    raw = _raw(problems)
    columns = {f"log_{name}": np.log2(1.0 + value) for name, value in raw.items() if name != "element_bytes"}
    columns |= _flags(problems, raw)
    columns |= _product(raw, columns)
    return np.stack(list(columns.values()), axis=1).astype(np.float32), tuple(columns)


def _raw(problems: Sequence[ConvProblem]) -> dict[str, NDArray[np.float64]]:
    """Sizes of the forward convolution, whatever the direction."""
    rows = []
    for p in problems:
        pad = 3 - len(p.size)
        first, second = (p.channels, p.size), (p.other_channels, p.other_size)
        (c, size), (k, out) = (first, second) if p.direction == "F" else (second, first)
        spatial = [
            (fill,) * pad + of
            for fill, of in ((1, size), (1, out), (1, p.filter), (0, p.padding), (1, p.stride), (1, p.dilation))
        ]
        rows.append((c, k, p.batch, p.groups, *(x for of in spatial for x in of), _DTYPES.get(p.dtype, 4)))
    names = (*_SIZES, *(f"{of}_{axis}" for of in _SPATIAL for axis in _AXES), "element_bytes")
    table = np.array(rows, np.float64).reshape(len(rows), len(names))
    return dict(zip(names, table.T, strict=True))


def _flags(problems: Sequence[ConvProblem], raw: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    flags = {f"is_{way}": np.array([p.direction == way for p in problems], float) for way in DIRECTIONS}
    flags |= {f"is_{kind}": np.array([p.dtype == kind for p in problems], float) for kind in ("FP32", "FP16", "BF16")}
    flags["is_3d"] = np.array([len(p.size) == 3 for p in problems], float)
    flags["channels_last"] = np.array([p.layout.startswith(("NHWC", "NDHWC")) for p in problems], float)
    flags["element_bytes"] = raw["element_bytes"]
    window = raw["filter_d"] * raw["filter_h"] * raw["filter_w"]
    flags["is_pointwise"] = (window == 1).astype(float)
    flags["is_depthwise"] = (raw["groups"] == raw["channels"]).astype(float)
    flags["is_strided"] = (raw["stride_d"] * raw["stride_h"] * raw["stride_w"] > 1).astype(float)
    flags["keeps_size"] = ((raw["in_h"] == raw["out_h"]) & (raw["in_w"] == raw["out_w"])).astype(float)
    return flags


def _product(
    raw: dict[str, NDArray[np.float64]], columns: dict[str, NDArray[np.float64]]
) -> dict[str, NDArray[np.float64]]:
    """The matrix product that does the same: rows, columns, depth, work, bytes, tiles and their waste."""
    c, k = raw["channels"] / raw["groups"], raw["filters"] / raw["groups"]
    window = raw["filter_d"] * raw["filter_h"] * raw["filter_w"]
    pixels = raw["out_d"] * raw["out_h"] * raw["out_w"]
    in_pixels = raw["in_d"] * raw["in_h"] * raw["in_w"]
    outputs, patch = raw["batch"] * pixels, c * window
    ways = [columns[f"is_{way}"] > 0 for way in DIRECTIONS]
    m = np.select(ways, [k, patch, k])
    n = np.select(ways, [outputs, outputs, patch])
    depth = np.select(ways, [patch, k, outputs])
    moved = raw["batch"] * (in_pixels * raw["channels"] + pixels * raw["filters"])
    moved = (moved + raw["filters"] * patch) * raw["element_bytes"]
    flop = 2.0 * outputs * raw["filters"] * patch
    sizes = {"m": m, "n": n, "depth": depth, "patch": patch, "pixels": pixels, "in_pixels": in_pixels}
    sizes |= {"outputs": outputs, "channels_of_group": c, "filters_of_group": k, "flop": flop, "bytes": moved}
    found = {f"log_{name}": np.log2(1.0 + value) for name, value in sizes.items()}
    found["log_intensity"] = np.log2(flop / moved)
    found["log_m_over_n"], found["log_depth_over_m"] = np.log2(m / n), np.log2(depth / m)
    divided = {**raw, **sizes, "columns": raw["batch"] * pixels}
    found |= {f"twos_{name}": _twos(divided[name]) for name in _DIVIDED}
    for tile in _TILES:
        found[f"tiles_{tile}"] = np.log2(np.ceil(m / tile) * np.ceil(n / tile) * raw["groups"])
        found[f"waste_{tile}"] = 1.0 - m * n / (np.ceil(m / tile) * np.ceil(n / tile) * tile * tile)
    for tile in (2, 3):
        covered = np.ceil(raw["out_h"] / tile) * np.ceil(raw["out_w"] / tile) * tile * tile
        found[f"winograd_waste_{tile}"] = 1.0 - raw["out_h"] * raw["out_w"] / covered
    found["winograd_tiles"] = np.log2(np.ceil(raw["out_h"] / 2) * np.ceil(raw["out_w"] / 2) * raw["batch"])
    return found


def _twos(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """Exponent of the largest power of two that divides a size, 7 at most."""
    whole = size.astype(np.int64)
    return np.asarray(np.sum([whole % (1 << power) == 0 for power in range(1, 8)], axis=0), np.float64)


COLUMNS = ("problem", "solver", "time_ms")


@dataclass(frozen=True)
class SolverTable:
    """What was measured on one device; problems with at least two solvers.

    Attributes:
        device: stem of the file.
        keys: [n] as written.
        problems: [n].
        solvers: [s] sorted by name.
        log_time: float32 [n, s], natural logarithm of ms; NaN where a solver was not measured.
        notes: what was left out.
    """

    device: str
    keys: tuple[str, ...]
    problems: tuple[ConvProblem, ...]
    solvers: tuple[str, ...]
    log_time: NDArray[np.float32]
    notes: tuple[str, ...] = ()


def solver_files(path: str | Path) -> tuple[Path, ...]:
    """The parquet files of a folder, sorted, or the one file that is named.

    Raises:
        ModelError: there is none.
    """
    place = Path(path)
    found = (place,) if place.is_file() else tuple(sorted(place.glob("*.parquet")))
    if not found:
        raise ModelError(f"{place} holds no parquet file; one per device is expected: {', '.join(COLUMNS)}")
    return found


def read_solvers(path: str | Path) -> SolverTable:
    """Read one device's file; of a pair that was measured more than once the least time counts.

    Raises:
        ModelError: the file cannot be read, columns are missing, or no problem is left to choose in.
    """
    import pyarrow as pa

    place = Path(path)
    try:
        table = read_parquet(place)
    except (OSError, ValueError) as error:
        raise ModelError(f"{place} cannot be read as parquet ({error})") from error
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise ModelError(f"{place} has no column {', '.join(missing)}; expected {', '.join(COLUMNS)}")
    try:
        times = table["time_ms"].cast("float64").to_numpy()
    except pa.ArrowInvalid as error:
        raise ModelError(f"{place}: time_ms holds no numbers ({error})") from error
    problem, keys = _encode(table["problem"])
    solver, solvers = _encode(table["solver"])
    usable = np.isfinite(times) & (times > 0) & (problem >= 0) & (solver >= 0)
    notes = [f"{(~usable).sum()} rows without a time above 0 are left out"] if not usable.all() else []
    log_time = np.full((len(keys), len(solvers)), np.inf, np.float32)
    np.minimum.at(log_time, (problem[usable], solver[usable]), np.log(times[usable]).astype(np.float32))
    log_time[np.isinf(log_time)] = np.nan
    return _with_choice(place, keys, solvers, log_time, notes)


def shapes_seen(problems: Sequence[ConvProblem], among: Sequence[ConvProblem]) -> NDArray[np.bool_]:
    """Whether the like of each problem is among others: the same but for batch, element type or direction, `[n]`."""
    shapes = {_shape(problem) for problem in among}
    return np.array([_shape(problem) in shapes for problem in problems], bool)


def _with_choice(
    place: Path, keys: list[str], solvers: list[str], log_time: NDArray[np.float32], notes: list[str]
) -> SolverTable:
    """The problems that are understood and have two solvers or more."""
    parsed = [parse_conv_problem(key) for key in keys]
    unknown = sum(problem is None for problem in parsed)
    if unknown:
        first = next(key for key, problem in zip(keys, parsed, strict=True) if problem is None)
        notes.append(f"{unknown} problems whose key is not understood are left out, the first is {first!r}")
    enough = np.isfinite(log_time).sum(axis=1) >= 2
    if not enough.all():
        notes.append(f"{(~enough).sum()} problems with fewer than two measured solvers are left out")
    kept = [row for row, problem in enumerate(parsed) if problem is not None and enough[row]]
    if not kept:
        raise ModelError(f"{place} holds no problem with two measured solvers; {'; '.join(notes) or 'it is empty'}")
    return SolverTable(
        place.stem,
        tuple(keys[row] for row in kept),
        tuple(problem for row in kept if (problem := parsed[row]) is not None),
        tuple(solvers),
        log_time[kept],
        tuple(f"{place.stem}: {note}" for note in notes),
    )


def _encode(column: "pa.ChunkedArray") -> tuple[NDArray[np.int64], list[str]]:
    """Numbers of texts, −1 for null, and the texts, sorted."""
    texts = sorted(str(text) for text in column.unique().to_pylist() if text is not None)
    number = {text: place for place, text in enumerate(texts)}
    return np.array([-1 if text is None else number[str(text)] for text in column.to_pylist()], np.int64), texts


def _shape(problem: ConvProblem) -> tuple[object, ...]:
    first, second = (problem.channels, problem.size), (problem.other_channels, problem.other_size)
    ends = (first, second) if problem.direction == "F" else (second, first)
    windows = (problem.filter, problem.padding, problem.stride, problem.dilation)
    return (*ends, *windows, problem.groups, problem.layout)
