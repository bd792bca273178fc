"""A convolution problem as MIOpen's find database writes it, and back.

Source: ROCm/MIOpen, serialisation of conv::ProblemDescription: channels, spatial size, filter, other channels, other
size, batch, padding, stride, dilation, bias, layout (three of them where they differ from the default), element type,
direction, `_g` and the groups where there is more than one. In the directions B (data gradient) and W (weight
gradient) the first tensor is the gradient of the output, the second the input.
"""

import re
from dataclasses import dataclass

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


def format_conv_problem(problem: ConvProblem) -> str:
    """The key of a problem.

    Example:
        >>> format_conv_problem(parse_conv_problem("8-7-7-1x1-16-7-7-2-0x0-1x1-1x1-0-NCHW-FP16-F_g8"))
        '8-7-7-1x1-16-7-7-2-0x0-1x1-1x1-0-NCHW-FP16-F_g8'
    """
    p = problem
    parts = (p.channels, *p.size, _window(p.filter), p.other_channels, *p.other_size, p.batch)
    windows = (_window(p.padding), _window(p.stride), _window(p.dilation))
    text = "-".join(str(part) for part in (*parts, *windows, p.bias, p.layout, p.dtype, p.direction))
    return f"{text}_g{p.groups}" if p.groups > 1 else text


def _window(sizes: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in sizes)
