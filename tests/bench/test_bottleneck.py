"""What holds a network back: parts that add up, causes by their layers, changes against what they won."""

import io
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from phasepoint.bench.bottleneck.operations import Alternative, TimedOperation
from phasepoint.bench.bottleneck.proof import changed_pair, told_changes
from phasepoint.bench.bottleneck.verdict import DeviceRates, find_bottleneck, part_of
from phasepoint.bench.suite.ask import ask_suite
from phasepoint.bench.suite.result import BatchSpeed, Bottleneck, Change, LayerShare, Pair
from phasepoint.bench.suite.run import run_suite
from phasepoint.bench.suite.summary import summarize_suite
from phasepoint.report.html.suites import suite_html
from phasepoint.report.terminal.bench import render_suite

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

RATES = DeviceRates(flop_per_s=1e11, bytes_per_s=1e10)
PAIR = Pair("resnet50", "cpu:1", "eager", "f32")


def operation(name="addmm", work_ps=100, flop=0, moved_bytes=0, layer="fc"):
    return TimedOperation(name, layer, "Linear", work_ps, flop, moved_bytes)


@pytest.mark.parametrize(
    ("one", "part"),
    [
        (operation(flop=1000, moved_bytes=99), "compute"),
        (operation(flop=1000, moved_bytes=101), "bandwidth"),
        (operation("cat", moved_bytes=5), "data movement"),
        (operation("embedding", moved_bytes=5), "data movement"),
        (operation("relu", moved_bytes=5), "bandwidth"),
    ],
)
def test_what_bounds_an_operation(one, part):
    assert part_of(one, RATES) == part


def test_parts_add_up_and_the_largest_names_its_layers():
    work = [operation(flop=10**6, work_ps=600), operation("relu", 100, layer="act"), operation("copy_", 50)]
    found = find_bottleneck(work, 1000, RATES, [], {}, beside_ps=1000)
    assert found.parts_ps == {"compute": 600, "bandwidth": 100, "data movement": 50, "overhead": 250}
    assert (found.part, found.layers) == ("compute", (LayerShare("fc", "Linear", 600),))
    assert [(one.layer, one.part, one.operations) for one in found.every_layer] == [
        ("fc", "compute", 2),
        ("act", "bandwidth", 1),
    ]
    assert sum(one.time_ps for one in found.every_layer) + found.parts_ps["overhead"] == 1000
    assert (found.every_layer[0].time_ps, found.every_layer[0].flop) == (650, 10**6)
    beside_others = find_bottleneck(work, 500, RATES, [], {}, beside_ps=500)
    assert sum(beside_others.parts_ps.values()) == 500
    assert beside_others.parts_ps["compute"] == 400
    slower_now = find_bottleneck(work, 500, RATES, [], {}, beside_ps=1000)
    assert slower_now.parts_ps == {"compute": 300, "bandwidth": 50, "data movement": 25, "overhead": 125}
    idle = find_bottleneck([], 10, RATES, [], {}, beside_ps=10)
    assert (idle.part, idle.layers, idle.parts_ps["overhead"]) == ("overhead", (), 10)


def test_a_change_scales_what_was_run_in_it_and_shares_overhead_among_samples():
    work = [operation(work_ps=600), operation("relu", 200)]
    settings = [Alternative(2, "f32"), Alternative(1, "f32", 4)]
    two, four = find_bottleneck(work, 1000, RATES, settings, {0: [0.5, 2.0], 1: [None, 4.0]}, beside_ps=1000).changes
    assert (two.threads, two.batch, two.speedup) == (2, 1, pytest.approx(1000 / (200 + 300 + 200)))
    assert four.speedup == pytest.approx(1000 / (50 + 300 + 200))


def test_changes_stand_beside_what_they_won():
    changes = (Change(2, "f32", 1, 1.5), Change(1, "f32", 8, 2.0), Change(1, "bf16", 1, 0.5))
    found = Bottleneck("compute", {"compute": 75, "overhead": 25}, (LayerShare("fc", "Linear", 60),), changes)
    rows = [SimpleNamespace(pair=PAIR, latency_ps=900, bottleneck=found)]
    rows += [SimpleNamespace(pair=changed_pair(PAIR, changes[0]), latency_ps=500, bottleneck=None)]
    throughput = (BatchSpeed(1, 10.0), BatchSpeed(8, 25.0))
    told = told_changes(rows, [SimpleNamespace(pair=PAIR, throughput=throughput)])
    assert [(one.change, one.told, one.measured) for one in told] == [
        ("batch 8", 2.0, 2.5),
        ("2 threads", 1.5, 1.8),
        ("bf16", 0.5, None),
    ]
    assert {(one.part, one.part_ratio, one.layer) for one in told} == {("compute", 0.75, "fc (Linear)")}


def test_a_suite_that_proves_has_the_other_settings_too(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3}, raising=False)
    request = ask_suite(["resnet50"], devices=["cpu:1"], proves=True)
    settings = [(pair.device, pair.precision) for pair in request.pairs]
    assert settings == [("cpu:1", "f32"), ("cpu:4", "f32"), ("cpu:1", "bf16")]
    assert request.explains
    assert not ask_suite(["resnet50"], devices=["cpu:1"]).explains


MODELS = """
import torch
class Many(torch.nn.Module):
    def forward(self, x):
        for _ in range(300):
            x = x + 1
        return x
class Moves(torch.nn.Module):
    def forward(self, x):
        for _ in range(3):
            x = torch.cat([x[:, 1:], x[:, :1]], 1)
        return x
def product():
    layers = [torch.nn.Linear(1024, 1024) for _ in range(4)]
    return torch.nn.Sequential(*layers), (torch.randn(512, 1024),)
def elements():
    return torch.nn.Sequential(*[torch.nn.GELU() for _ in range(3)]), (torch.randn(1, 1 << 22),)
def tiny():
    return Many(), (torch.randn(1, 4),)
def moves():
    return Moves(), (torch.randn(1, 1 << 22),)
"""
PARTS = {"product": "compute", "elements": "bandwidth", "tiny": "overhead", "moves": "data movement"}


@pytest.mark.alone
def test_verdicts_of_networks_whose_cause_is_known(tmp_path, monkeypatch):
    (tmp_path / "causes.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    models = [f"causes:{name}" for name in PARTS]
    results = run_suite(tmp_path / "suite", ask_suite(models, devices=["cpu:1"], rounds=1, seconds=0.2, explains=True))
    summaries = summarize_suite(results)
    found = {row.pair.model.partition(":")[2]: row for row in summaries}
    assert {row.reason for row in summaries} == {""}
    assert {name: row.bottleneck.part for name, row in found.items()} == PARTS
    for row in found.values():
        assert sum(row.bottleneck.parts_ps.values()) == row.latency_ps
    assert found["product"].bottleneck.layers[0].kind == "Linear"
    changes = told_changes(summaries, results)
    assert "bf16" in {one.change for one in changes}
    console = Console(width=200, record=True, file=io.StringIO())
    render_suite(summaries, changes, console)
    assert "held back by" in console.export_text()
    page = suite_html("suite", summaries, results)
    assert "What would be faster" in page
    for row in found.values():
        inside = sum(one.time_ps for one in row.bottleneck.every_layer)
        assert inside + row.bottleneck.parts_ps["overhead"] == row.latency_ps
    assert [one.layer for one in found["product"].bottleneck.every_layer] == ["0", "1", "2", "3"]
    assert page.count("<details>") == len(PARTS)
    assert "causes:product on cpu:1, eager, f32" in page.partition("Inside each network")[2]
    assert "Models on settings" not in page
    others = [msgspec.structs.replace(one, pair=changed_pair(one.pair, Change(9, "f32", 1, 1.0))) for one in results]
    assert "Models on settings" in suite_html("suite", summarize_suite([*results, *others]), results)
