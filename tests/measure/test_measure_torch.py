"""PyTorch's levels on small real networks: which layers, how often, and that everything closes. No times are judged."""

from collections import Counter

import pytest

from phasepoint.measure.instrument import frameworks_of
from phasepoint.stack import measure

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.relu(self.inner(x))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.head.weight.new_zeros(1).add(x))


def closes(found):
    assert sum(one.latency_ps for one in found.layers) + found.unattributed_ps == found.model_ps
    assert all(0 <= one.ops_ps <= one.latency_ps for one in found.layers)


def test_forward_layers_and_the_ops_inside_them():
    net = Net().eval()

    def infer(x):
        with torch.no_grad():
            return net(x)

    found = measure(infer, [torch.ones(2, 8)], repeats=3, warmups=1)
    closes(found)
    names = {(one.layer, one.direction): (one.kind, one.calls) for one in found.layers}
    assert names == {
        ("Net", "forward"): ("Net", 1),
        ("Net/blocks/0", "forward"): ("Block", 1),
        ("Net/blocks/0/inner", "forward"): ("Linear", 1),
        ("Net/blocks/1", "forward"): ("Block", 1),
        ("Net/blocks/1/inner", "forward"): ("Linear", 1),
        ("Net/head", "forward"): ("Linear", 1),
    }
    where = {(one.op, one.layer): one.calls for one in found.ops}
    assert {layer for op, layer in where if op == "aten::relu"} == {"Net/blocks/0", "Net/blocks/1"}
    assert {layer for op, layer in where if op == "aten::addmm"} == {
        "Net/blocks/0/inner",
        "Net/blocks/1/inner",
        "Net/head",
    }
    assert where["aten::new_zeros", "Net"] == 1
    assert (found.framework, [one.level for one in found.levels], found.unavailable) == ("torch", ["M", "L", "K"], ())


def test_backward_ops_belong_to_the_layer_whose_forward_made_them():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def train(x):
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()

    found = measure(train, [torch.ones(2, 8)], repeats=2, warmups=1)
    closes(found)
    ways = Counter(one.direction for one in found.layers)
    assert ways == {"forward": 6, "backward": 6, "optimizer": 1}
    backward = {(one.op, one.layer) for one in found.ops if one.direction == "backward"}
    assert {layer for op, layer in backward if op == "AddmmBackward0"} == {
        "Net/blocks/0/inner",
        "Net/blocks/1/inner",
        "Net/head",
    }
    assert {layer for op, layer in backward if op == "ReluBackward0"} == {"Net/blocks/0", "Net/blocks/1"}
    assert {one.layer for one in found.ops if one.direction == "optimizer"} == {"SGD"}
    assert {one.layer for one in found.ops if one.op == "SumBackward0"} == {None}


def test_a_recomputed_layer_is_seen_in_both_passes():
    from torch.utils.checkpoint import checkpoint

    block = Block()

    def train(x):
        checkpoint(block, x, use_reentrant=False).sum().backward()

    found = measure(train, [torch.ones(2, 8, requires_grad=True)], repeats=1, warmups=1)
    closes(found)
    calls = {(one.layer, one.direction): one.calls for one in found.layers}
    assert calls["Block/inner", "forward"] == 2
    assert calls["Block/inner", "backward"] >= 1


def test_nothing_is_left_behind():
    from torch.nn.modules import module

    before = (len(module._global_forward_pre_hooks), len(module._global_forward_hooks))
    measure(Net(), [torch.ones(2, 8)], levels="ML", repeats=1, warmups=0)
    assert (len(module._global_forward_pre_hooks), len(module._global_forward_hooks)) == before


def test_the_framework_is_told_by_module_and_tensor():
    assert frameworks_of([Net()]) == frameworks_of([{"x": (torch.ones(1),)}]) == {"torch"}


def test_two_networks_of_one_class_have_two_names_and_a_stranger_its_callers():
    strange = torch.nn.Tanh()

    class Borrower(Net):
        def forward(self, x):
            return strange(super().forward(x))

    one, two = Borrower(), Borrower()

    def infer(x):
        return one(x), two(x)

    found = measure(infer, [torch.ones(2, 8)], levels="ML", repeats=1)
    names = {layer.layer for layer in found.layers}
    assert {"Borrower", "Borrower/head", "Borrower/Tanh", "Borrower_1", "Borrower_1/head"} <= names
