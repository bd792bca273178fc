"""Keys of convolution problems: what is written is read, and the features of a problem by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.learn.choosing.convolutions import ConvProblem, conv_features, parse_conv_problem

SIZE = st.integers(1, 4000)


def format_conv_problem(p):
    """The key of a problem, as MIOpen writes it."""
    padding, stride, dilation, window = ("x".join(map(str, of)) for of in (p.padding, p.stride, p.dilation, p.filter))
    parts = (p.channels, *p.size, window, p.other_channels, *p.other_size, p.batch, padding, stride, dilation, p.bias)
    text = "-".join(map(str, (*parts, p.layout, p.dtype, p.direction)))
    return f"{text}_g{p.groups}" if p.groups > 1 else text


@st.composite
def problems(draw):
    axes = draw(st.sampled_from([2, 3]))
    many = lambda low: st.tuples(*[st.integers(low, 300)] * axes)  # noqa: E731
    layout = draw(st.sampled_from(["NCHW", "NHWC-NHWC-NHWC"] if axes == 2 else ["NCDHW", "NDHWC-NDHWC-NDHWC"]))
    return ConvProblem(
        draw(SIZE),
        draw(many(1)),
        draw(many(1)),
        draw(SIZE),
        draw(many(1)),
        draw(SIZE),
        draw(many(0)),
        draw(many(1)),
        draw(many(1)),
        draw(st.integers(0, 1)),
        layout,
        draw(st.sampled_from(["FP32", "FP16", "BF16", "INT8"])),
        draw(st.sampled_from("FBW")),
        draw(st.integers(1, 64)),
    )


@given(problems())
def test_what_is_written_is_read(problem):
    assert parse_conv_problem(format_conv_problem(problem)) == problem


@given(problems())
def test_features_are_finite_and_one_row_each(problem):
    features, names = conv_features([problem, problem])
    assert features.shape == (2, len(names))
    assert np.isfinite(features).all()
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "key",
    [
        "128-28-28-3x3-64-55-55-16-1x1-2x2-1x1-0-NCHW-FP32-B",
        "128-1-4-4-1x1x1-528-1-4-4-128-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-W",
        "32-27-27-3x3-128-27-27-64-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP16-F",
        "480-14-14-1x1-120-14-14-8-0x0-1x1-1x1-0-NCHW-FP32-B_g3",
    ],
)
def test_known_keys_come_back_as_they_were(key):
    assert format_conv_problem(parse_conv_problem(key)) == key


def test_parts_of_a_key():
    read = parse_conv_problem("128-28-27-3x1-64-55-53-16-1x0-2x2-1x1-0-NCHW-FP32-B_g4")
    assert (read.channels, read.size, read.filter) == (128, (28, 27), (3, 1))
    assert (read.other_channels, read.other_size, read.batch) == (64, (55, 53), 16)
    assert (read.padding, read.stride, read.dilation, read.groups) == ((1, 0), (2, 2), (1, 1), 4)
    assert (read.layout, read.dtype, read.direction) == ("NCHW", "FP32", "B")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "128-28-28",
        "128-28-28-3x3-64-55-55-16-1x1-2x2-1x1-0-NCHW-FP32-X",
        "128-28-28-3x3-64-55-55-16-1x1-2x2-1x1x1-0-NCHW-FP32-B",  # a dilation of three dimensions among two
        "0-28-28-3x3-64-55-55-16-1x1-2x2-1x1-0-NCHW-FP32-B",
        "128-28-28-3x3-64-55-55-16-1x1-0x2-1x1-0-NCHW-FP32-B",
        "128-28-28-3x3-64-55-55-16-1x1-2x2-1x1-0-NCHW-FP32-B_g0",
        "128-28-28-3x3-64-55-55-16-1x1-2x2-1x1-0-NCHW-FP32-B\n",
    ],
)
def test_what_is_no_key_is_not_read(key):
    assert parse_conv_problem(key) is None


def test_features_by_hand():
    # The data gradient of a forward convolution with 64 channels of 55 × 55 and 128 filters at stride 2.
    features, names = conv_features([parse_conv_problem("128-28-28-3x3-64-55-55-16-1x1-2x2-1x1-0-NCHW-FP32-B")])
    of = dict(zip(names, features[0].astype(float), strict=True))
    flop = 2 * 16 * 28 * 28 * 128 * 64 * 9
    moved = 4 * (16 * (64 * 55 * 55 + 128 * 28 * 28) + 128 * 64 * 9)
    assert of["log_channels"] == pytest.approx(np.log2(65))
    assert of["log_filters"] == pytest.approx(np.log2(129))
    assert of["log_flop"] == pytest.approx(np.log2(1 + flop))
    assert of["log_intensity"] == pytest.approx(np.log2(flop / moved), rel=1e-5)
    assert (of["is_B"], of["is_F"], of["is_FP32"], of["is_3d"], of["is_strided"]) == (1, 0, 1, 0, 1)
    assert of["log_m"] == pytest.approx(np.log2(1 + 64 * 9))
    assert of["log_depth"] == pytest.approx(np.log2(129))
    assert (of["twos_channels_of_group"], of["twos_filters_of_group"], of["twos_pixels"]) == (6, 7, 4)
    assert of["waste_64"] == pytest.approx(0.0, abs=1e-6)  # 576 = 9 tiles, 12,544 = 196 tiles


def test_directions_of_one_convolution_have_the_same_work():
    keys = (
        "64-55-55-3x3-128-28-28-16-1x1-2x2-1x1-0-NCHW-FP32-F",
        "128-28-28-3x3-64-55-55-16-1x1-2x2-1x1-0-NCHW-FP32-B",
        "128-28-28-3x3-64-55-55-16-1x1-2x2-1x1-0-NCHW-FP32-W",
    )
    features, names = conv_features([parse_conv_problem(key) for key in keys])
    for name in ("log_flop", "log_bytes", "log_channels", "log_in_h", "log_out_w"):
        assert len(set(features[:, names.index(name)])) == 1, name
