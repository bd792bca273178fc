"""Marks of layers in a PyTorch job: what they say, and that the job does not notice."""

import json
import sys

import pytest

torch = pytest.importorskip("torch")

from phasepoint.recorder import record  # noqa: E402
from phasepoint.recorder.profilers.torch.dynamo import before_compiling  # noqa: E402
from phasepoint.recorder.profilers.torch.layers import LayerEvents  # noqa: E402
from phasepoint.recorder.profilers.torch.session import TorchSession  # noqa: E402
from phasepoint.sources.chrome.reader import read_kineto  # noqa: E402
from phasepoint.sources.events.capture import CaptureRequest  # noqa: E402
from phasepoint.sources.ingest.convert import convert_windows  # noqa: E402
from phasepoint.stack import analyse  # noqa: E402
from phasepoint.store import open_run  # noqa: E402

pytestmark = pytest.mark.torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.nn.functional.gelu(self.lin(x)) + x


def network():
    return torch.nn.Sequential(Block(), Block(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))


def names_of(work, layers=None):
    """Marks of a capture of some work, in order."""
    session, own = TorchSession(), layers or LayerEvents()
    session._layers = own
    session.start(with_programs=False)
    try:
        work()
    finally:
        capture = session.stop()
    events = json.loads(capture())["traceEvents"]
    marks = [e for e in events if e.get("ph") == "X" and e["name"].startswith("phasepoint.layer#")]
    return [e["name"].removeprefix("phasepoint.layer#") for e in sorted(marks, key=lambda e: (e["ts"], -e["dur"]))]


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """Whatever other tests compiled in this process."""
    monkeypatch.setattr("phasepoint.recorder.profilers.torch.layers.has_compiled", lambda: False)


def test_every_module_is_named_by_its_path_and_class():
    net = network()
    assert names_of(lambda: net(torch.ones(2, 8))) == [
        "Sequential|Sequential",
        "Sequential/0|Block",
        "Sequential/0/lin|Linear",
        "Sequential/1|Block",
        "Sequential/1/lin|Linear",
        "Sequential/2|Dropout",
        "Sequential/3|Linear",
    ]


def test_names_last_and_a_module_from_elsewhere_stands_below_its_caller():
    layers, net, helper = LayerEvents(), Block(), [torch.nn.Linear(8, 8)]

    class Calls(torch.nn.Module):
        def forward(self, x):
            return helper[0](x)

    calls = Calls()
    assert names_of(lambda: calls(torch.ones(2, 8)), layers) == ["Calls|Calls", "Calls/Linear|Linear"]
    assert names_of(lambda: calls(torch.ones(2, 8)), layers) == ["Calls|Calls", "Calls/Linear|Linear"]
    assert names_of(lambda: net(torch.ones(2, 8)), layers) == ["Block|Block", "Block/lin|Linear"]


def test_an_exception_of_the_job_passes_and_ends_its_marks():
    class Fails(torch.nn.Module):
        def forward(self, x):
            raise KeyError("the job's own")

    net = torch.nn.Sequential(torch.nn.Identity(), Fails())

    def work():
        with pytest.raises(KeyError, match="the job's own"):
            net(torch.ones(1))
        torch.nn.Identity()(torch.ones(1))

    assert names_of(work) == [
        "Sequential|Sequential",
        "Sequential/0|Identity",
        "Sequential/1|Fails",
        "Identity|Identity",
    ]


def test_a_fault_of_ours_stays_ours_and_ends_the_marking(monkeypatch):
    layers, net = LayerEvents(), network()

    def broken(module, stack):
        raise RuntimeError("planted")

    monkeypatch.setattr(layers, "_name", broken)
    assert names_of(lambda: net(torch.ones(2, 8)), layers) == []
    assert layers.ended == "RuntimeError in a hook: planted"
    assert not torch.nn.modules.module._has_any_global_hook()


def test_outside_windows_there_are_no_hooks():
    session = TorchSession()
    assert not torch.nn.modules.module._has_any_global_hook()
    session.start(with_programs=False)
    assert torch.nn.modules.module._has_any_global_hook()
    session.stop()
    assert not torch.nn.modules.module._has_any_global_hook()


def test_a_job_that_compiles_is_left_alone():
    layers = LayerEvents()
    remove = before_compiling(layers.end)
    try:
        layers.install()
        assert torch.nn.modules.module._has_any_global_hook()
        compiled = torch.compile(
            Block(), backend="eager"
        )  # warns where there are global hooks; warnings are errors here
        assert not torch.nn.modules.module._has_any_global_hook()
        compiled(torch.ones(2, 8))
        layers.install()
        assert layers.ended == "the job uses torch.compile"
        assert not torch.nn.modules.module._has_any_global_hook()
    finally:
        remove()
        layers.remove()
        torch._dynamo.reset()
    assert "init_theirs" not in repr(sys.modules["torch._dynamo.eval_frame"].OptimizeContext.__init__)


def test_what_is_traced_in_a_window_holds_no_marks():
    net = Block()
    graphs = []
    names_of(lambda: graphs.append(torch.jit.trace(net, torch.ones(2, 8))))
    assert "_record_function" not in str(graphs[0].inlined_graph)


def train(steps):
    """A small training run; gives its losses and final parameters as exact hexadecimal."""
    torch.manual_seed(0)
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    losses = []
    for x, y in steps(torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)):
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    return losses, [value.hex() for p in net.parameters() for value in p.flatten().tolist()]


def test_a_recorded_job_has_layers_in_every_window_and_the_same_result(tmp_path):
    expected = train(lambda loader: loader)
    with record(tmp_path / "run", budget=None, window_steps=3, framework="torch") as run:
        recorded = train(run.steps)
    assert run.off_reason is None
    assert recorded == expected
    convert_windows(tmp_path / "run")
    found = open_run(tmp_path / "run")
    spans = found.table("spans").to_pylist()
    windows = {window["window"] for window in found.table("windows").to_pylist()}
    linears = {"Sequential/0/lin", "Sequential/1/lin", "Sequential/3"}
    for direction in ("forward", "backward"):
        seen = {(s["window"], s["layer"]) for s in spans if s["direction"] == direction and s["device"] == "cpu:0"}
        for layer in linears:
            assert {window for window, one in seen if one == layer} == windows
    assert any(s["direction"] == "optimizer" and s["layer"] is None for s in spans)
    rows = {row["layer"]: row for row in analyse(found, "A2").rows.to_pylist()}
    assert set(rows) == {*linears, "Sequential", "Sequential/0", "Sequential/1", "Sequential/2"}
    assert rows["Sequential/0/lin"]["type"] == "Linear"
    assert rows["Sequential/0"]["type"] == "Block"


def test_a_backward_pass_is_marked_from_its_call_to_its_return():
    net, session = network(), TorchSession()
    original = torch.autograd.backward
    session._layers = LayerEvents()
    session.start(with_programs=False)
    net(torch.ones(2, 8)).sum().backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).backward()
    data = session.stop()()
    assert torch.autograd.backward is original
    events = [e for e in json.loads(data)["traceEvents"] if e.get("ph") == "X"]
    first, _failed = (e for e in events if e["name"] == "phasepoint.backward")
    inside = [e["name"] for e in events if first["ts"] <= e["ts"] < first["ts"] + first["dur"]]
    assert "aten::ones_like" in inside
    assert any(name.startswith("autograd::engine::evaluate_function") for name in inside)
    read = read_kineto(data, CaptureRequest()).spans.to_pylist()
    assert {s["direction"] for s in read if s["name"] == "aten::ones_like"} == {"backward"}
