"""JAX's levels: from a made table of spans exactly, and on a small real program without judging times."""

import pytest

from phasepoint.core.tables import table_from_rows
from phasepoint.measure.jax import OP_COST_PS, evidence_of_spans
from phasepoint.measure.result import LayerKey, LayerOpKey, LayerOpTime, LayerTime


def span(number, name, start_ps, dur_ps, *, layer, level="op", step=0):
    return {
        "window": 0,
        "span": number,
        "level": level,
        "category": "compute",
        "name": name,
        "start_ps": start_ps,
        "dur_ps": dur_ps,
        "self_ps": dur_ps,
        "device": "cpu:0",
        "track": f"thread {number}",
        "step": step,
        "layer": layer,
    }


def test_overlapping_ops_share_the_time_without_counting_any_of_it_twice():
    rows = [
        span(0, "conv", 100, 400, layer="Net/Conv_0"),
        span(1, "dot", 200, 100, layer="Net/Dense_0"),  # on another thread: began last, so it is charged
        span(2, "copy", 600, 50, layer=None),
        span(3, "late", 700, 50, layer="Net/Conv_0", step=None),
        span(4, "phasepoint.step", 0, 900, layer=None, level="model"),
    ]
    evidence = evidence_of_spans(table_from_rows("spans", rows), with_ops=True)
    conv, dense = LayerKey("Net/Conv_0", None), LayerKey("Net/Dense_0", None)
    assert evidence.layers == {conv: LayerTime(300, OP_COST_PS, 1), dense: LayerTime(100, OP_COST_PS, 1)}
    assert evidence.ops == {
        LayerOpKey(conv, "conv", "op", "cpu:0"): LayerOpTime(300, 1),
        LayerOpKey(dense, "dot", "op", "cpu:0"): LayerOpTime(100, 1),
        LayerOpKey(None, "copy", "op", "cpu:0"): LayerOpTime(50, 1),
    }


@pytest.mark.jax
def test_a_flax_network():
    jax = pytest.importorskip("jax")
    linen = pytest.importorskip("flax.linen")
    from phasepoint.stack import measure

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.relu(linen.Conv(8, (3, 3))(x))
            return linen.Dense(4)(x.reshape((x.shape[0], -1)))

    net, x = Net(), jax.numpy.ones((2, 8, 8, 3))
    params = net.init(jax.random.key(0), x)
    infer = jax.jit(net.apply)
    found = measure(infer, [params, x], repeats=2, warmups=1)
    assert found.framework == "jax"
    assert [one.level for one in found.levels] == ["M", "L", "K"]
    assert {"Net/Conv_0", "Net/Dense_0"} <= {one.layer for one in found.layers}
    assert sum(one.latency_ps for one in found.layers) + found.unattributed_ps == found.model_ps
    assert all(0 <= one.ops_ps <= one.latency_ps for one in found.layers)
