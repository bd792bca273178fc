"""Which op of one run is which of another, and what single functions of the comparison give."""

from dataclasses import replace

import numpy as np
import pytest

from phasepoint.stack.diff.alignment import AlignedOp, align, base_name, direction_of, plain_shape
from phasepoint.stack.diff.measure import weighted_median
from phasepoint.stack.diff.noise import contiguous_groups, discoveries, jackknife, locate
from phasepoint.stack.diff.rows import layers_to_name

DOT = AlignedOp("cpu", "Net/A", "forward", "dot", "f32[8,640]")


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("fusion.12", "fusion"),
        ("dot.3.clone", "dot"),
        ("add.remat2", "add"),
        ("dot", "dot"),
        ("triton_poi_fused_add_3", "triton_poi_fused_add"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("aten::mm", "aten::mm"),
        ("kernel_0123456789abcdef01", "kernel"),
        (".7", ".7"),
    ],
)
def test_names_lose_the_numbers_of_the_build(name, base):
    assert base_name(name) == base


def test_shapes_lose_their_layout_and_scopes_tell_the_direction():
    assert plain_shape("(f32[8,128]{1,0:T(8,128)}, s32[])") == "(f32[8,128], s32[])"
    assert direction_of("jit(step)/transpose(jvp(M))/Conv_0/mul") == "backward"
    assert direction_of("jit(step)/jvp(M)/Conv_0/mul") == "forward"
    assert direction_of("jit(step)/mul") == ""


def test_an_op_that_became_wider_is_the_same_op_and_of_the_same_kind():
    wider = replace(DOT, shape="f32[8,672]")
    others = [replace(DOT, layer=f"Net/{name}") for name in "BCD"]
    found = align([[DOT, *others]], [[wider, *others]])
    assert found.keys[0] == replace(DOT, shape="f32[8,640] → f32[8,672]")
    assert found.places[0][0] == found.places[1][0] == 0
    assert set(found.kinds) == {replace(DOT, layer="")}


def test_a_new_op_in_a_layer_does_not_hide_the_old_ones():
    extra = replace(DOT, shape="f32[8,64]")
    found = align([[DOT]], [[DOT, extra]])
    assert found.keys == (extra, DOT) or found.keys == (DOT, extra)


def test_outside_layers_ops_of_one_name_are_one_where_their_shapes_differ():
    update = AlignedOp("cpu", "", "", "update", "f32[640]")
    wider = replace(update, shape="f32[672]")
    found = align([[update]], [[update, wider]])
    assert found.keys == (replace(update, shape="f32[640] → 2 shapes"),)
    assert found.places[1].tolist() == [0, 0]
    assert align([[update]], [[update]]).keys == (update,)


def test_every_layer_above_holds_the_op():
    found = align([[DOT, replace(DOT, layer="")]], [[DOT]])
    assert found.layers == ("Net", "Net/A")
    assert found.inside.tolist() == [[False, True], [False, True]]


def test_a_location_is_the_mean_of_the_faster_half_without_the_fastest_tenth():
    values = np.array([np.arange(1, 21), np.r_[np.zeros(10), np.arange(1, 11)]], np.int64)
    found = locate(values, np.arange(20) // 10)
    assert found.whole_ps.tolist() == [np.mean(np.arange(3, 11)), np.mean([2, 3, 4, 5]) / 2]
    assert found.without_ps[0].tolist() == [np.mean([12, 13, 14, 15]), np.mean([2, 3, 4, 5])]
    assert found.without_ps[1].tolist() == [np.mean([2, 3, 4, 5]), 0]


def test_groups_are_neighbours_of_nearly_equal_number():
    group = contiguous_groups(np.arange(47))
    assert (np.diff(group) >= 0).all()
    assert sorted(np.bincount(group)) == [2] * 13 + [3] * 7
    assert contiguous_groups(np.array([0, 0, 1, 1])).tolist() == [0, 0, 1, 1]


def test_the_jackknife_of_a_mean_is_its_variance():
    values = np.random.default_rng(0).normal(size=30)
    without = (values.sum() - values) / 29
    found = jackknife([without[:, None]])
    assert found.variance[0] == pytest.approx(values.var(ddof=1) / 30)
    assert np.isnan(jackknife([np.empty((0, 1))]).variance[0])


def test_discoveries_follow_benjamini_and_hochberg():
    p_value = np.array([0.001, 0.011, 0.02, 0.5, np.nan, 0.9])
    assert discoveries(p_value, 0.05).tolist() == [True, True, True, False, False, False]
    assert not discoveries(np.array([0.02, 0.5, 0.9]), 0.05).any()
    assert discoveries(np.array([]), 0.05).tolist() == []


def test_the_weighted_median_halves_the_weight():
    assert weighted_median(np.array([3.0, 1.0, 2.0]), np.ones(3)) == 2
    assert weighted_median(np.array([1.0, 2.0]), np.ones(2)) == 1.5
    assert weighted_median(np.array([1.0, 2.0, 9.0]), np.array([1.0, 1.0, 8.0])) == 9


def named(layers, changed, own, run=None):
    places = layers_to_name(layers, np.array(changed), np.array(own, float), np.array(run or [1] * len(layers), float))
    return [layers[i] for i in places]


def test_the_layer_that_explains_the_change_is_named():
    tree = ["Net", "Net/A", "Net/A/x", "Net/A/y", "Net/B"]
    times = [10, 5, 2, 2, 5]
    assert named(tree, [True, True, True, False, False], [5, 5, 5, 0, 0], times) == ["Net/A/x"]
    assert named(tree, [True, True, True, True, False], [5, 5, 3, 2, 0], times) == ["Net/A"]
    assert named(tree, [True, True, False, False, True], [9, 5, 1, 1, 4], times) == ["Net"]
    assert named(tree, [False, False, False, True, True], [9, 5, 1, 1, 4], times) == ["Net/A/y", "Net/B"]
    assert named(tree, [False] * 5, [0] * 5) == []
