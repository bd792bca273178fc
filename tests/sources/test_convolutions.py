"""What convolutions of PyTorch give, against PyTorch itself."""

import json

import pytest

from phasepoint.sources.chrome.convolutions import convolution_result
from phasepoint.sources.chrome.reader import read_kineto
from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.stack.work.quantities import op_work

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


def net(dims, **options):
    return getattr(torch.nn, f"Conv{dims}d")(8, 16, 3, **options)


NETS = [
    (net(1, stride=2, padding=1), (2, 8, 20)),
    (net(2, padding=1), (2, 8, 20, 20)),
    (net(2, stride=(2, 1), padding=(0, 2), dilation=(1, 2), groups=4, bias=False), (2, 8, 21, 20)),
    (net(2, padding="same", dilation=2), (2, 8, 20, 20)),
    (net(3, stride=2), (1, 8, 9, 10, 11)),
]


INNERMOST = ("aten::mkldnn_convolution", "aten::_slow_conv2d_forward", "aten::slow_conv3d", "aten::thnn_conv2d")


def traced(run):
    with torch.profiler.profile(record_shapes=True) as profiler:
        run()
    return profiler


def spans_of(profiler, tmp_path):
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    spans = read_kineto((tmp_path / "trace.json").read_bytes(), CaptureRequest()).spans
    return [(row["name"], row["shape"]) for row in spans.to_pylist() if row["shape"] and "conv" in row["name"]]


@pytest.mark.parametrize(("module", "shape"), NETS)
def test_the_result_is_that_of_pytorch(module, shape, tmp_path):
    x = torch.randn(shape)
    with torch.no_grad():
        profiler = traced(lambda: module(x))
    wanted = [size for size in module(x).shape if size > 1]
    given = [text.partition(" -> f32")[2] for name, text in spans_of(profiler, tmp_path) if name in INNERMOST]
    assert given
    for text in given:  # a convolution of rows runs as one of planes of height 1
        assert [size for size in json.loads(text) if size > 1] == wanted


@pytest.mark.parametrize(("module", "shape"), NETS)
def test_flop_are_those_of_pytorchs_counter(module, shape, tmp_path):
    from torch.utils.flop_counter import FlopCounterMode

    x = torch.randn(shape, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        module(x)
    forward = counter.get_total_flops()
    spans = spans_of(traced(lambda: module(x).sum().backward()), tmp_path)
    told = {name: work.flop for name, text in spans if (work := op_work(name, text)) is not None}
    assert told["aten::convolution"] == forward
    assert told["aten::convolution_backward"] == 2 * forward


@pytest.mark.parametrize(
    ("name", "dims", "concrete"),
    [
        ("aten::mm", [[2, 3], [3, 4]], ["", ""]),
        ("aten::convolution", [[1, 3, 8, 8], [3, 4, 3, 3]], ["", "", "", "[2]", "[0]", "[1]", "True", "[0]", "1"]),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3]], ["", ""]),
        ("aten::conv2d", [[1, 3, 2, 2], [4, 3, 9, 9]], ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "1"]),
        ("aten::conv2d", [[1, 3, 8, 8], [4, 3, 3, 3]], ["", "", "", "[0, 0]", "[0, 0]", "[1, 1]", "1"]),
        ("aten::conv2d", [[3, 8, 8], [4]], ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "1"]),
        ("aten::conv2d", "text", ["", "", "", "same", "[0, 0]", "[1, 1]", "1"]),
        ("aten::convolution_backward", [[1, 4, 6, 6], [1, 3, 8, 8], [4, 3, 3, 3]], [""] * 7),
    ],
)
def test_what_does_not_fit_is_not_told(name, dims, concrete):
    assert convolution_result(name, json.dumps(dims).encode(), json.dumps(concrete).encode()) == []


def test_a_broken_text_is_not_told():
    assert convolution_result("aten::conv2d", b"[[1", b"[") == []
