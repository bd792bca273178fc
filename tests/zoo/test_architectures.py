"""The zoo's architectures: each builds and runs, counts are those published, weights cost what trained ones do."""

from importlib.util import find_spec

import pytest

from phasepoint.zoo.architectures.catalogue import QUICK, all_architectures

pytestmark = pytest.mark.torch
ALL = all_architectures()


def test_there_are_enough_of_each_kind():
    assert len(ALL) >= 65
    assert len(QUICK) >= 20
    assert set(QUICK) <= ALL.keys()
    tasks = {one.task for one in ALL.values()}
    assert tasks >= {
        *("classification", "detection", "segmentation", "super-resolution", "generation", "diffusion", "speech"),
        *("language", "translation", "recommendation"),
    }
    assert {one.library for one in ALL.values()} == {"torchvision", "timm", "transformers", "phasepoint"}
    assert {ALL[name].library for name in QUICK} == {"torchvision", "phasepoint"}


def published():
    return [name for name, one in ALL.items() if one.library == "torchvision"]


@pytest.mark.parametrize("name", published())
def test_counts_are_those_that_the_library_publishes(name):
    """Parameters exactly, multiply-accumulates within 1 %; on the device that has no memory."""
    pytest.importorskip("torch")
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    from phasepoint.zoo.architectures.weights import count_macs, count_params

    one = ALL[name]
    said = one.published()
    network = one.build().to("meta")
    assert count_params(network) == said.params
    if said.macs is not None:
        inputs = tuple(x.to("meta") for x in one.inputs(1))
        assert count_macs(network, inputs) == pytest.approx(said.macs, rel=0.01)


@pytest.mark.parametrize("name", [name for name, one in ALL.items() if one.library == "phasepoint"])
def test_what_is_written_here_runs_and_is_settled(name):
    torch = pytest.importorskip("torch")
    from torch.utils._pytree import tree_leaves

    from phasepoint.zoo.architectures.weights import call, count_macs, count_params, settle, what_distorts

    one = ALL[name]
    network, inputs = one.build(), one.inputs(2 if one.batches else 1)
    settle(network, inputs)
    with torch.inference_mode():
        outputs, again = call(network, inputs), call(one.build(), inputs)
    assert what_distorts(network, outputs) == ""
    assert count_params(network) > 0
    assert count_macs(network, one.inputs(1)) > 0
    assert [x.shape for x in tree_leaves(outputs)] == [x.shape for x in tree_leaves(again)]
    assert all(x.shape[0] == (2 if one.batches else x.shape[0]) for x in tree_leaves(outputs))


def test_weights_that_distort_are_found():
    torch = pytest.importorskip("torch")
    from phasepoint.zoo.architectures.weights import settle, what_distorts

    layer = torch.nn.Linear(64, 64)
    x = torch.randn(2, 64)
    assert what_distorts(layer, layer(x)) == ""
    with torch.no_grad():
        layer.weight.fill_(0.5)
    assert what_distorts(layer, layer(x)) == "weights of a layer are all alike"
    settle(layer, (x,))
    assert what_distorts(layer, layer(x)) == ""
    with torch.no_grad():
        layer.weight.mul_(1e-40)
    assert "of the weights are denormal" in what_distorts(layer, x)
    assert what_distorts(torch.nn.Linear(64, 64), x * torch.inf) == "outputs are not finite"


def test_normalisations_get_the_statistics_of_what_they_normalise():
    """A network of many layers whose values grow without: with, its outputs have the size of its inputs."""
    torch = pytest.importorskip("torch")
    from phasepoint.zoo.architectures.weights import settle

    parts = []
    for _ in range(20):
        convolution = torch.nn.Conv2d(8, 8, 3, padding=1)
        convolution.weight.data *= 5
        parts += [convolution, torch.nn.BatchNorm2d(8), torch.nn.ReLU()]
    network, x = torch.nn.Sequential(*parts).eval(), torch.randn(4, 8, 16, 16)
    with torch.no_grad():
        assert network(x).std() > 1e3
        settle(network, (x,))
        assert 0.1 < network(x).std() < 3
    assert not network.training
    assert not any(part.training for part in network.modules())
