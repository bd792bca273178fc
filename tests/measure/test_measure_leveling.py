import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.measure.levels import collapse, level_samples
from phasepoint.measure.result import (
    InstrumentReading,
    LayerKey,
    LayerOpKey,
    LayerOpTime,
    LayerTime,
    Sample,
    sample_from_plain,
    sample_to_plain,
)

CONV, HEAD = LayerKey("Net/conv", "forward"), LayerKey("Net/head", "forward")


def level(samples):
    return level_samples(samples, framework="torch", framework_version="2.13", devices=("cpu:0",))


def sample(level, wall_ps, layers=None, *, ops=None, outside_cost_ps=0, counters=None):
    evidence = InstrumentReading(layers or {}, outside_cost_ps, ops or {}, counters or {})
    return Sample(level, wall_ps, wall_ps // 2, 0, evidence)


def test_each_latency_is_from_its_own_level():
    at_l = {CONV: LayerTime(800, 100, 1, "Conv2d"), HEAD: LayerTime(250, 50, 2)}
    at_k = {CONV: LayerTime(1400, 0, 1), HEAD: LayerTime(300, 0, 2)}
    ops = {
        LayerOpKey(CONV, "aten::conv2d", "op", "cpu:0"): LayerOpTime(600, 1),
        LayerOpKey(HEAD, "aten::addmm", "op", "cpu:0"): LayerOpTime(250, 2),
        LayerOpKey(None, "aten::ones", "op", "cpu:0"): LayerOpTime(30, 1),
    }
    found = level([sample("M", 1000), sample("L", 1200, at_l, outside_cost_ps=50), sample("K", 2000, at_k, ops=ops)])
    assert [(one.level, one.wall_ps, one.overhead_ps) for one in found.levels] == [
        ("M", 1000, None),
        ("L", 1200, 200),
        ("K", 2000, 800),
    ]
    # At L: 700 and 200 without the hooks, 150 − 50 outside; that is 1000, as at M.
    conv, head = found.layers
    assert (conv.layer, conv.latency_ps, conv.measured_ps, conv.profiled_ps, conv.kind) == (
        "Net/conv",
        700,
        800,
        1400,
        "Conv2d",
    )
    assert conv.inflation_ratio == 1.0
    assert (head.latency_ps, head.calls, head.ops_ps) == (200, 2, 200)
    assert (found.unattributed_ps, found.unattributed_ops_ps, found.closure_ratio) == (100, 30, 1.0)
    assert [(one.op, one.latency_ps, one.measured_ps) for one in found.ops] == [
        ("aten::conv2d", 600, 600),
        ("aten::addmm", 200, 250),  # no more than its layer has
        ("aten::ones", 30, 30),
    ]


def test_layers_are_scaled_to_the_model_where_they_do_not_add_up():
    found = level([sample("M", 1000), sample("L", 2000, {CONV: LayerTime(1500, 0, 1)})])
    assert (found.layers[0].latency_ps, found.unattributed_ps, found.closure_ratio) == (750, 250, 2.0)


def test_the_runs_say_how_far_the_calibrated_cost_is_off():
    at_l = {CONV: LayerTime(700, 50, 1), HEAD: LayerTime(400, 100, 2)}  # 150 calibrated, 300 seen: twice as much
    found = level([sample("M", 1000), sample("L", 1300, at_l)])
    assert [one.latency_ps for one in found.layers] == [600, 200]
    assert (found.unattributed_ps, found.closure_ratio) == (200, 1.15)


def test_a_run_at_layers_that_is_faster_by_chance_does_not_make_hooks_free():
    found = level([sample("M", 1000), sample("L", 900, {CONV: LayerTime(900, 200, 1)})])
    assert (found.layers[0].latency_ps, found.closure_ratio) == (1000, 0.7)


def test_without_layers_all_time_is_in_no_layer():
    found = level([sample("M", 1000)])
    assert (found.layers, found.unattributed_ps, found.closure_ratio, found.unattributed_ops_ps) == (
        (),
        1000,
        None,
        None,
    )
    with pytest.raises(KeyError, match="L was not run"):
        found.level("L")


def test_there_must_be_a_run_without_a_profiler():
    with pytest.raises(ValueError, match="at least one run at M"):
        level([sample("L", 10)])


def test_counters_are_trimmed_means():
    found = level([sample("M", 5), *(sample("C", 5, counters={"cycles": n}) for n in (7, 9, 1000))])
    assert [(one.name, one.value) for one in found.counters] == [("cycles", 9)]


def test_a_layer_that_a_repeat_lacks_took_no_time_in_it():
    repeats = [sample("L", 100, {CONV: LayerTime(60, 0, 1)}), *(sample("L", 100, {}) for _ in range(2))]
    found = level([sample("M", 100), *repeats])
    assert (found.layers[0].latency_ps, found.layers[0].calls) == (0, 0)
    assert found.unattributed_ps == 100


KEYS = st.sampled_from([CONV, HEAD, LayerKey("Net", "backward"), LayerKey("Net", None)])
TIMES = st.builds(LayerTime, st.integers(0, 10**13), st.integers(0, 10**10), st.integers(0, 50))
OPS = st.dictionaries(
    st.builds(LayerOpKey, st.none() | KEYS, st.sampled_from(["a", "b"]), st.just("op"), st.just("cpu:0")),
    st.builds(LayerOpTime, st.integers(0, 10**13), st.integers(1, 9)),
    max_size=6,
)


@st.composite
def runs(draw):
    made = [sample("M", draw(st.integers(1, 10**14))) for _ in range(draw(st.integers(1, 6)))]
    for name in ("L", "K"):
        for _ in range(draw(st.integers(1, 6))):
            layers = draw(st.dictionaries(KEYS, TIMES, max_size=4))
            wall_ps = sum(one.self_ps for one in layers.values()) + draw(st.integers(0, 10**12))
            ops = draw(OPS) if name == "K" else {}
            made.append(sample(name, wall_ps, layers, ops=ops, outside_cost_ps=draw(st.integers(0, 10**9))))
    return made


@given(runs())
def test_layers_close_on_the_model_and_ops_on_their_layers(samples):
    found = level(samples)
    assert sum(one.latency_ps for one in found.layers) + found.unattributed_ps == found.model_ps
    ops_ps = defaultdict(int)
    for op in found.ops:
        ops_ps[op.layer, op.direction] += op.latency_ps
    for layer in found.layers:
        assert ops_ps.pop((layer.layer, layer.direction), 0) == layer.ops_ps <= layer.latency_ps
    assert sum(ops_ps.values()) == found.unattributed_ops_ps <= found.unattributed_ps
    assert all(one.latency_ps >= 0 for one in (*found.layers, *found.ops))


@given(runs())
def test_samples_survive_json(samples):
    for one in samples:
        assert sample_from_plain(json.loads(json.dumps(sample_to_plain(one)))) == one


def test_the_runs_of_a_process_become_one():
    made = [
        sample(
            "K",
            wall,
            {CONV: LayerTime(wall - 5, 1, 2, "Conv2d")},
            ops={LayerOpKey(CONV, "a", "op", "cpu:0"): LayerOpTime(wall, 3)},
        )
        for wall in (10, 11, 900)
    ]
    one = collapse(made)
    assert (one.level, one.wall_ps, one.cpu_ps) == ("K", 11, 5)
    assert one.evidence.layers == {CONV: LayerTime(6, 1, 2, "Conv2d")}
    assert one.evidence.ops == {LayerOpKey(CONV, "a", "op", "cpu:0"): LayerOpTime(11, 3)}
