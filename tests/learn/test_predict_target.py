"""Devices by the names that users give them."""

import pytest

from phasepoint.core.errors import ModelError
from phasepoint.devices import device_specs
from phasepoint.learn.predict.types import resolve_target


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("tpu-v4", "TPU v4", "tpu"),
        ("TPU v5 lite", "TPU v5e", "tpu"),
        ("gpu:0 NVIDIA H100 80GB HBM3", "H100 SXM5", "gpu"),
        ("rtx 4090", "GeForce RTX 4090", "gpu"),
        ("mi100", "Instinct MI100", "gpu"),
        ("CPU", "cpu", "cpu"),
    ],
)
def test_names_are_taken_leniently(text, name, kind):
    target = resolve_target(text)
    assert (target.name, target.kind) == (name, kind)
    assert (target.spec is None) == (kind == "cpu")


@pytest.mark.parametrize("spec", device_specs(), ids=lambda spec: spec.name)
def test_every_device_is_found_by_its_own_name(spec):
    assert resolve_target(spec.name).spec is spec


@pytest.mark.parametrize(
    ("text", "products"),
    [("H100", "H100 NVL, H100 PCIe, H100 SXM5"), ("sm_100", "B100, B200 SXM, GB200"), ("mi300", "Instinct MI300A, ")],
)
def test_several_products_are_listed_and_none_is_taken(text, products):
    with pytest.raises(ModelError, match="is several products, whose times differ: ") as caught:
        resolve_target(text)
    assert products in str(caught.value)


def test_an_unknown_device_lists_what_is_near():
    with pytest.raises(ModelError, match=r"no device called 'tpu-v8' is known; near it are: .*TPU v4.*") as caught:
        resolve_target("tpu-v8")
    assert "phasepoint devices" in str(caught.value)
    with pytest.raises(ModelError, match="no device called ''"):
        resolve_target("")
