import numpy as np
import pytest

from phasepoint.learn.models.network import (
    AGGREGATIONS,
    REDUCTIONS,
    InputGraph,
    NetworkShape,
    bucket_nodes,
    create_parameters,
    network_log_times,
    plain_batches,
    predict_network,
    stack_graphs,
)


def random_graph(draw, size, *, features=3, kernel=2):
    edges = {(int(draw.integers(0, place)), place) for place in range(1, size) for _ in range(2)}
    return InputGraph(
        draw.integers(0, 5, size).astype(np.int32),
        draw.standard_normal((size, features)).astype(np.float32),
        np.array(sorted(edges), np.int32).reshape(-1, 2),
        draw.standard_normal(kernel).astype(np.float32),
        draw.uniform(0, 3, size).astype(np.float32),
    )


def random_network(**options):
    settings = NetworkShape(5, 3, 2, hidden=8, embedding=4, **options)
    draw = np.random.default_rng(7)
    weights = create_parameters(settings, seed=1)
    return settings, {
        name: value + 0.1 * draw.standard_normal(value.shape).astype(np.float32) for name, value in weights.items()
    }


def batch_of(sizes, nodes):
    draw = np.random.default_rng(3)
    return stack_graphs([random_graph(draw, size) for size in sizes], nodes=nodes)


@pytest.mark.jax
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_numpy_and_jax_say_the_same(aggregation, reduction):
    import jax.numpy as jnp

    settings, weights = random_network(aggregation=aggregation, reduction=reduction)
    batch = batch_of([1, 4, 7], 8)
    ours = predict_network(np, weights, batch, settings)
    theirs = predict_network(jnp, {name: jnp.asarray(value) for name, value in weights.items()}, batch, settings)
    assert ours.shape == (3,)
    assert np.ptp(ours) > 1e-3
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_padding_changes_nothing(aggregation, reduction):
    settings, weights = random_network(aggregation=aggregation, reduction=reduction)
    tight, wide = (predict_network(np, weights, batch_of([5, 8], nodes), settings) for nodes in (8, 32))
    np.testing.assert_allclose(tight, wide, rtol=2e-5, atol=2e-6)


def test_sage_with_columns_is_what_a_walk_over_nodes_computes():
    settings, weights = random_network(layers=1)
    graph = random_graph(np.random.default_rng(0), 6)

    def dense(name, x):
        return x @ weights[f"{name}/w"] + weights[f"{name}/b"]

    def norm(x):
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5)

    state = []
    for opcode, row in zip(graph.opcodes, graph.nodes, strict=True):
        given = np.concatenate([weights["opcode"][opcode], row])
        state.append(dense("node1", np.maximum(dense("node0", given), 0)))
    passed = []
    for place, own in enumerate(state):
        total = dense("pass0/self", norm(own))
        for part, mine, other in (("in", 1, 0), ("out", 0, 1)):
            near = [norm(state[edge[other]]) for edge in graph.edges if edge[mine] == place]
            total = total + dense(f"pass0/{part}", np.mean(near, axis=0) if near else np.zeros(8))
        passed.append(own + np.maximum(total, 0))
    nodes = np.stack(passed)
    joined = np.concatenate([nodes.mean(0), nodes.max(0), nodes[-1], nodes.sum(0) / 8, graph.kernel])
    wide = np.maximum(dense("head0", joined), 0)
    expected = dense("out", np.maximum(dense("head1", wide), 0))[0]
    assert network_log_times(weights, settings, [graph])[0] == pytest.approx(expected, rel=1e-4)


def test_direction_of_edges_matters():
    settings, weights = random_network()
    graph = random_graph(np.random.default_rng(0), 5)
    turned = InputGraph(graph.opcodes, graph.nodes, graph.edges[:, ::-1], graph.kernel, graph.work)
    ours, theirs = network_log_times(weights, settings, [graph, turned])
    assert abs(ours - theirs) > 1e-4


def test_an_untrained_network_adds_nothing():
    settings = NetworkShape(5, 3, 2, hidden=8)
    said = network_log_times(create_parameters(settings, seed=0), settings, [random_graph(np.random.default_rng(0), 4)])
    assert said.tolist() == [0.0]


def test_every_graph_is_in_one_batch():
    draw = np.random.default_rng(0)
    graphs = [random_graph(draw, size) for size in (1, 40, 8, 9, 3, 17)]
    rows = [rows for rows, _ in plain_batches(graphs, batch_nodes=16)]
    assert sorted(np.concatenate(rows).tolist()) == [0, 1, 2, 3, 4, 5]
    assert [bucket_nodes(size) for size in (1, 8, 9, 40)] == [8, 8, 16, 64]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"aggregation": "mean"}, "sage, gat, none"), ({"reduction": "sum"}, "nodes"), ({"hidden": 6}, "4")],
)
def test_settings_that_there_are_not(options, said):
    with pytest.raises(ValueError, match=said):
        NetworkShape(5, 3, 2, **options)
