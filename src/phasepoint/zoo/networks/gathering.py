"""Networks whose work is in gathered rows: over graphs and large tables.

Graphs: sums over neighbours; edges are random pairs of nodes. Recommenders: rows of large tables, few dense layers,
products of pairs.
"""

from typing import Any

from phasepoint.zoo.layers import activate, dense, dense_of, stack, stack_of
from phasepoint.zoo.specs import Net, Network, f32, i32, jax, jnp, sizes


def _summed(values: Any, places: Any, count: int) -> Any:
    return jax.ops.segment_sum(values, places, count)


def _convolution(*, nodes: int, edges: int, width: int) -> Net:
    def forward(p: Any, x: Any, pairs: Any) -> Any:
        degree = _summed(jnp.ones(edges), pairs[1], nodes) + 1
        for layer in ("l0", "l1"):
            message = (dense(p[layer], x) / jnp.sqrt(degree)[:, None])[pairs[0]]
            x = activate("relu", _summed(message, pairs[1], nodes) / jnp.sqrt(degree)[:, None])
        return x

    return Net(
        forward, {"l0": dense_of(width, width), "l1": dense_of(width, width)}, (f32(nodes, width), i32(2, edges))
    )


def _sampled(*, nodes: int, edges: int, width: int) -> Net:
    neighbours = edges // nodes

    def forward(p: Any, x: Any, chosen: Any) -> Any:
        around = jnp.concatenate([x[chosen].mean(1), x[chosen].max(1)], -1)
        x = activate("relu", dense(p["self"], x) + dense(p["around"], around))
        return x / jnp.sqrt((x**2).sum(-1, keepdims=True) + 1)

    parameters = {"self": dense_of(width, width), "around": dense_of(2 * width, width)}
    return Net(forward, parameters, (f32(nodes, width), i32(nodes, neighbours)))


def _attention(*, nodes: int, edges: int, width: int) -> Net:
    def forward(p: Any, x: Any, pairs: Any) -> Any:
        x = dense(p["x"], x)
        scores = activate("leaky_relu", (x @ p["from"])[pairs[0]] + (x @ p["to"])[pairs[1]])
        top = jax.ops.segment_max(scores, pairs[1], nodes)
        weights = jnp.exp(scores - top[pairs[1]])
        weights = weights / (_summed(weights, pairs[1], nodes)[pairs[1]] + 1e-3)
        return activate("elu", _summed(weights[:, None] * x[pairs[0]], pairs[1], nodes))

    parameters = {"x": dense_of(width, width), "from": f32(width), "to": f32(width)}
    return Net(forward, parameters, (f32(nodes, width), i32(2, edges)))


def _messages(*, nodes: int, edges: int, width: int) -> Net:
    def forward(p: Any, x: Any, links: Any, pairs: Any) -> Any:
        links = links + stack(p["edge"], jnp.concatenate([x[pairs[0]], x[pairs[1]], links], -1))
        return x + stack(p["node"], jnp.concatenate([x, _summed(links, pairs[1], nodes)], -1)), links

    parameters = {"edge": stack_of([3 * width, width, width]), "node": stack_of([2 * width, width, width])}
    return Net(forward, parameters, (f32(nodes, width), f32(edges, width), i32(2, edges)))


def _dense_adjacency(*, nodes: int, width: int) -> Net:
    def forward(p: Any, x: Any, adjacent: Any) -> Any:
        scale = 1 / jnp.sqrt(adjacent.sum(-1))
        matrix = adjacent * scale[:, None] * scale
        return matrix @ activate("relu", matrix @ dense(p["l0"], x)) @ p["l1"]["w"]

    parameters = {"l0": dense_of(width, width), "l1": dense_of(width, width // 2)}
    return Net(forward, parameters, (f32(nodes, width), f32(nodes, nodes)))


_GRAPH_SIZES = sizes("nodes edges width", (300, 1500, 64), (3000, 12000, 32), (600, 9000, 96), (1800, 18000, 48))


def _chances(scores: Any) -> Any:
    return activate("softplus", -scores).mean()


def _crossing(*, batch: int, tables: int, rows: int, width: int) -> Net:
    def forward(p: Any, numbers: Any, places: Any) -> Any:
        bottom = stack(p["bottom"], numbers)
        found = jnp.stack([bottom, *(p["tables"][table][places[:, table]] for table in range(tables))], 1)
        products = jnp.einsum("bid,bjd->bij", found, found).reshape(batch, -1)
        return _chances(stack(p["top"], jnp.concatenate([bottom, products], -1)))

    parameters = {
        "tables": f32(tables, rows, width),
        "bottom": stack_of([13, 64, width]),
        "top": stack_of([width + (tables + 1) ** 2, 128, 1]),
    }
    return Net(forward, parameters, (f32(batch, 13), i32(batch, tables)))


def _bags(*, batch: int, length: int, rows: int, width: int) -> Net:
    def forward(p: Any, places: Any, weights: Any) -> Any:
        bag = (p["table"][places] * weights[..., None]).sum(1)
        return stack(p["layers"], bag)

    parameters = {"table": f32(rows, width), "layers": stack_of([width, width, 10])}
    return Net(forward, parameters, (i32(batch, length), f32(batch, length)))


def _towers(*, batch: int, length: int, rows: int, width: int) -> Net:
    def forward(p: Any, user: Any, item: Any) -> Any:
        left = stack(p["user"], p["table"][user].mean(1))
        right = stack(p["item"], p["table"][item].mean(1))
        scores = left @ right.T
        return -jnp.diagonal(jax.nn.log_softmax(scores, -1)).mean()

    layers = stack_of([width, 2 * width, width])
    parameters = {"table": f32(rows, width), "user": layers, "item": layers}
    return Net(forward, parameters, (i32(batch, length), i32(batch, length)))


def _factors(*, batch: int, fields: int, rows: int, width: int) -> Net:
    def forward(p: Any, places: Any) -> Any:
        found = p["factors"][places]
        pairs = 0.5 * (found.sum(1) ** 2 - (found**2).sum(1)).sum(-1)
        return _chances(p["linear"][places].sum((1, 2)) + pairs)

    return Net(forward, {"factors": f32(rows, width), "linear": f32(rows, 1)}, (i32(batch, fields),))


def _skip_gram(*, batch: int, negatives: int, rows: int, width: int) -> Net:
    def forward(p: Any, centre: Any, near: Any, far: Any) -> Any:
        left = p["in"][centre]
        good = (left * p["out"][near]).sum(-1)
        bad = jnp.einsum("bd,bnd->bn", left, p["out"][far])
        return activate("softplus", -good).mean() + activate("softplus", bad).mean()

    parameters = {"in": f32(rows, width), "out": f32(rows, width)}
    return Net(forward, parameters, (i32(batch), i32(batch), i32(batch, negatives)))


_BAGS = sizes(
    "batch length rows width", (64, 20, 5000, 48), (1000, 10, 10000, 32), (160, 50, 2000, 100), (500, 30, 8000, 64)
)

NETWORKS = (
    Network("graph-network", "convolution", _convolution, _GRAPH_SIZES, integer_bound="nodes"),
    Network("graph-network", "sampled", _sampled, _GRAPH_SIZES, integer_bound="nodes"),
    Network("graph-network", "attention", _attention, _GRAPH_SIZES, integer_bound="nodes"),
    Network("graph-network", "messages", _messages, _GRAPH_SIZES, integer_bound="nodes"),
    Network(
        "graph-network",
        "dense-adjacency",
        _dense_adjacency,
        sizes("nodes width", (200, 64), (700, 48), (384, 128), (1200, 32)),
    ),
    Network(
        "recommender",
        "crossing",
        _crossing,
        sizes(
            "batch tables rows width", (64, 8, 2000, 32), (1000, 6, 5000, 16), (640, 12, 1000, 24), (1500, 4, 3000, 48)
        ),
        integer_bound="rows",
    ),
    Network("recommender", "bags", _bags, _BAGS, integer_bound="rows"),
    Network("recommender", "towers", _towers, _BAGS, integer_bound="rows"),
    Network(
        "recommender",
        "factors",
        _factors,
        sizes(
            "batch fields rows width",
            (500, 20, 5000, 16),
            (1000, 40, 10000, 32),
            (5000, 10, 2000, 24),
            (1500, 30, 8000, 48),
        ),
        integer_bound="rows",
    ),
    Network(
        "recommender",
        "skip-gram",
        _skip_gram,
        sizes(
            "batch negatives rows width",
            (200, 5, 5000, 64),
            (2500, 8, 3000, 100),
            (500, 20, 10000, 48),
            (5000, 4, 2000, 32),
        ),
        integer_bound="rows",
    ),
)
