"""A leveled measurement on a terminal."""

import io

from rich.console import Console

from phasepoint.measure.command import MeasuredRegion
from phasepoint.measure.levels import level_samples
from phasepoint.measure.result import InstrumentReading, LayerKey, LayerOpKey, LayerOpTime, LayerTime, Sample
from phasepoint.report.terminal.stack import render_measurement

MS = 10**9
CONV, HEAD = LayerKey("Net/conv", "forward"), LayerKey("Net/[red]head", "forward")


def printed(top):
    at_l = InstrumentReading({CONV: LayerTime(8 * MS, 0, 1), HEAD: LayerTime(1 * MS, 0, 2)})
    at_k = InstrumentReading(
        {CONV: LayerTime(12 * MS, 0, 1)}, ops={LayerOpKey(CONV, "aten::conv2d", "op", "cpu:0"): LayerOpTime(7 * MS, 1)}
    )
    samples = [
        Sample("M", 10 * MS, 10 * MS),
        Sample("L", 10 * MS, 10 * MS, 0, at_l),
        Sample("K", 15 * MS, 15 * MS, 0, at_k),
    ]
    found = level_samples(samples, framework="torch", framework_version="2.13", devices=("cpu:0",), notes=("mind",))
    text = io.StringIO()
    render_measurement(MeasuredRegion("forward", found), Console(file=text, width=120), top=top)
    return [" ".join(line.split()) for line in text.getvalue().splitlines()]


def test_levels_layers_and_ops():
    lines = printed(top=20)
    assert lines[0] == "forward: torch 2.13, cpu:0"
    assert "K kernels 15.0 ms – 15.0 ms 5.00 ms 1, 0 dropped" in lines
    assert "Net/conv forward 1 8.00 ms 80.0 % 8.00 ms 12.0 ms 50.0 %" in lines
    assert "Net/[red]head forward 2 1.00 ms 10.0 % 1.00 ms – –" in lines
    assert "in no layer 1.00 ms 10.0 %" in lines
    assert "aten::conv2d 1 7.00 ms Net/conv forward" in lines
    assert lines[-1] == "note: mind"


def test_what_is_left_out_is_said_with_its_time():
    assert "… 1 more with 1.00 ms; --top shows them" in printed(top=1)
