"""The programs of the corpus: well-formed, named, repeatable; values in a range that no kernel minds."""

import dataclasses
import re
import subprocess
import sys
from functools import lru_cache
from itertools import groupby

import numpy as np
import pytest

from phasepoint.zoo import MANUAL_TEST_FAMILIES, corpus_programs, make_inputs
from phasepoint.zoo.catalogue import large_programs, zoo_networks, zoo_programs
from phasepoint.zoo.generated.generator import PIECE_KINDS, RANDOM_GRAPH, drawn_graph, drawn_pieces, generated_programs
from phasepoint.zoo.modes import UPDATES, train_program
from phasepoint.zoo.specs import Net, sizes

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.jax

ZOO = zoo_programs()


def _spec(name):
    return next(spec for spec in corpus_programs(generated=5) if spec.name == name)


def test_enough_programs_by_hand_and_with_sizes():
    by_hand = {(network.family, network.name, mode) for network in zoo_networks() for mode in network.modes}
    assert len(by_hand) >= 120
    assert len(ZOO) >= 300
    assert all(len(network.sizes) >= 3 for network in zoo_networks())


def test_names_are_unique_and_name_a_folder():
    names = [spec.name for spec in corpus_programs(generated=100)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9._-]{3,120}", name) for name in names)


def test_large_programs_are_the_networks_in_larger_sizes():
    specs = large_programs()
    assert len({spec.name for spec in specs}) == len(specs) >= 300
    assert all(spec.name.startswith("large.") and re.fullmatch(r"[a-zA-Z0-9._-]{3,120}", spec.name) for spec in specs)
    assert [spec.name for spec in large_programs()] == [spec.name for spec in specs]
    assert {spec.name for spec in large_programs(seed=1)} != {spec.name for spec in specs}
    _, last = (spec for spec in specs if spec.name.startswith("large.mlp.relu-") and spec.mode == "forward")
    _, shapes = last.build()
    network = next(one for one in zoo_networks() if (one.family, one.name) == ("mlp", "relu"))
    assert shapes[-1].shape[0] >= 2 * network.sizes[-1]["batch"]


def test_manual_families_are_there_with_variants_enough():
    count = {family: len(list(specs)) for family, specs in groupby(sorted(spec.family for spec in ZOO))}
    assert all(count[family] >= 5 for family in MANUAL_TEST_FAMILIES)
    assert len(count) >= 2 * len(MANUAL_TEST_FAMILIES)


def test_the_catalogue_needs_no_jax():
    code = (
        "import sys; from phasepoint.zoo import corpus_programs; "
        "assert len(corpus_programs()) > 1000; assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@lru_cache
def _traced(place):
    """Primitives of a network's first size, in training where it is trained: that holds the forward pass."""
    network = zoo_networks()[place]
    begin = f"{network.family}.{network.name}-{'-'.join(f'{k}{v}' for k, v in network.sizes[0].items())}"
    function, arguments = _of_zoo()[f"{begin}.{network.modes[-1]}"].build()
    return _primitives(jax.make_jaxpr(function)(*arguments).jaxpr)


@lru_cache
def _of_zoo():
    return {spec.name: spec for spec in ZOO}


def _primitives(jaxpr):
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for value in jax.tree.leaves(
            equation.params, is_leaf=lambda one: hasattr(one, "eqns") or hasattr(one, "jaxpr")
        ):
            inner = getattr(value, "jaxpr", value)
            found |= _primitives(inner) if hasattr(inner, "eqns") else set()
    return found


@pytest.mark.parametrize("place", range(len(zoo_networks())), ids=lambda place: zoo_networks()[place].name)
def test_the_first_size_of_each_network_traces(place):
    assert _traced(place)


def test_families_held_out_compute_with_what_the_others_compute_with_too():
    of = {True: set(), False: set()}
    for place, network in enumerate(zoo_networks()):
        of[network.family in MANUAL_TEST_FAMILIES] |= _traced(place)
    drawn = {"argmin", "scatter-max"}  # kinds of the generator: places, scatter
    assert of[True] - of[False] <= drawn
    assert {"dot_general", "conv_general_dilated", "reduce_sum", "transpose", "gather", "scatter-add"} <= of[True]


@pytest.mark.parametrize("place", range(50))
def test_generated_programs_are_well_formed(place):
    function, arguments = generated_programs(50, seed=9)[place].build()
    outputs = jax.tree.leaves(jax.eval_shape(function, *arguments))
    assert len(outputs) >= 1
    assert all(0 < leaf.size * leaf.dtype.itemsize < 200e6 for leaf in (*jax.tree.leaves(arguments), *outputs))


@pytest.mark.parametrize("kind", PIECE_KINDS)
def test_each_kind_of_kernel_is_well_formed_at_many_sizes(kind):
    for seed in range(4):
        piece = PIECE_KINDS[kind].draw(np.random.default_rng(seed))
        names = {"f32": "float32", "i32": "int32"}
        arguments = [jax.ShapeDtypeStruct(shape, names[dtype]) for dtype, shape in piece.shapes]
        assert jax.eval_shape(piece.apply, *arguments).size > 0


@pytest.mark.parametrize("place", [1, 5, 9, 13, 17, 21])
def test_shapes_that_a_graph_was_drawn_with_are_those_that_jax_finds(place):
    spec = generated_programs(place + 1)[place]
    assert (spec.family, spec.mode) == (RANDOM_GRAPH, "forward")
    graph = drawn_graph(seed=0, place=place)
    taken = {source for sources in graph.sources for source in sources}
    ends = [operation.shape for at, operation in enumerate(graph.operations, start=1) if at not in taken]
    function, arguments = spec.build()
    assert [leaf.shape for leaf in jax.eval_shape(function, *arguments)] == ends


def test_generated_programs_follow_from_the_seed_alone():
    def shapes(seed, place):
        return [piece.shapes for piece in drawn_pieces(seed=seed, place=place)]

    assert shapes(3, 7) == shapes(3, 7)
    assert shapes(3, 7) != shapes(4, 7)
    assert shapes(3, 7) != shapes(3, 8)
    for place in (2, 3):
        built = [generated_programs(4, seed=5)[place].build() for _ in "ab"]
        text = [str(jax.make_jaxpr(function)(*arguments)) for function, arguments in built]
        assert text[0] == text[1]


def test_every_beginning_of_the_corpus_is_an_even_sample():
    specs = corpus_programs(generated=80)
    third = specs[: len(specs) // 3]
    assert {spec.family for spec in third} == {spec.family for spec in specs}
    drawn = sum(spec.name.split(".")[1].startswith("s0-") for spec in third)
    assert drawn == pytest.approx(80 / 3, rel=0.3)


def test_a_larger_count_goes_on_after_the_same_beginning():
    names = [[spec.name for spec in generated_programs(count, seed=2)] for count in (3, 9)]
    assert names[1][:3] == names[0]


def test_inputs_are_moderate_bounded_and_repeatable():
    shapes = (
        {"w": jax.ShapeDtypeStruct((300, 50), "float32"), "b": jax.ShapeDtypeStruct((50,), "float32")},
        jax.ShapeDtypeStruct((64, 300), "float32"),
        jax.ShapeDtypeStruct((2000,), "int32"),
        jax.ShapeDtypeStruct((5,), "bfloat16"),
    )
    parameters, x, labels, half = make_inputs(shapes, seed=1, integer_bound=7)
    assert np.abs(parameters["w"]).max() <= np.sqrt(3 / 300)
    assert parameters["w"].var() == pytest.approx(1 / 300, rel=0.05)
    assert x.dtype == np.float32
    assert x.min() >= 0.1
    assert x.max() < 1
    assert parameters["b"].min() >= 0.1
    assert set(labels.tolist()) == set(range(7))
    assert half.dtype == "bfloat16"
    again = make_inputs(shapes, seed=1, integer_bound=7)
    other = make_inputs(shapes, seed=2, integer_bound=7)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(again), jax.tree.leaves((parameters, x, labels, half)), strict=True)
    )
    assert not np.array_equal(other[1], x)


@pytest.mark.parametrize("update", UPDATES)
def test_updates_do_what_their_formulas_say(update):
    net = Net(
        lambda p, x: (p["w"] * x).sum(),
        {"w": jax.ShapeDtypeStruct((3,), "float32")},
        (jax.ShapeDtypeStruct((3,), "float32"),),
    )
    function, arguments = train_program(net, update=update)
    values = make_inputs(arguments, seed=0)
    w, x = values[0]["w"], values[-1]
    result = function(*values)
    assert float(result[0]) == pytest.approx(float((w * x).sum()), rel=1e-6)
    if update == "none":
        expected = x
    elif update == "sgd":
        expected = w - 1e-3 * x
    elif update == "momentum":
        expected = w - 1e-3 * (0.9 * values[1]["w"] + x)
    else:
        mean, square = 0.9 * values[1][0]["w"] + 0.1 * x, 0.999 * values[1][1]["w"] + 0.001 * x * x
        expected = w - 1e-3 * mean / (np.sqrt(square) + 1e-8)
    assert np.allclose(result[1]["w"], expected, rtol=1e-5)


def test_an_update_that_is_none_is_refused():
    net = Net(lambda p, x: x, {"w": 1}, ())
    with pytest.raises(ValueError, match="there is no update 'lion'; there are none, sgd"):
        train_program(net, update="lion")


@pytest.mark.parametrize(
    "name",
    ["mlp.relu-batch8-width96-depth3.train", "recurrent.simple-batch8-length20-width64.forward"],
)
def test_programs_run_and_give_finite_values(name):
    spec = _spec(name)
    function, arguments = spec.build()
    outputs = jax.jit(function)(*make_inputs(arguments, seed=0, integer_bound=spec.integer_bound))
    assert all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(outputs))


def test_sizes_are_tables():
    assert sizes("a b", (1, 2), (3, 4)) == ({"a": 1, "b": 2}, {"a": 3, "b": 4})
    with pytest.raises(ValueError, match="argument"):
        sizes("a b", (1,))
    assert dataclasses.is_dataclass(ZOO[0])
