"""Networks over graphs: gathers along edges, sums over neighbours; edges are random pairs of nodes."""

from typing import Any

from phasepoint.zoo.layers import activate, dense, dense_of, stack, stack_of
from phasepoint.zoo.specs import Net, Network, f32, i32, sizes


def _summed(values: Any, places: Any, count: int) -> Any:
    import jax

    return jax.ops.segment_sum(values, places, count)


def _convolution(*, nodes: int, edges: int, width: int) -> Net:
    def forward(p: Any, x: Any, pairs: Any) -> Any:
        import jax.numpy as jnp

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
        import jax.numpy as jnp

        around = jnp.concatenate([x[chosen].mean(1), x[chosen].max(1)], -1)
        x = activate("relu", dense(p["self"], x) + dense(p["around"], around))
        return x / jnp.sqrt((x**2).sum(-1, keepdims=True) + 1)

    parameters = {"self": dense_of(width, width), "around": dense_of(2 * width, width)}
    return Net(forward, parameters, (f32(nodes, width), i32(nodes, neighbours)))


def _attention(*, nodes: int, edges: int, width: int) -> Net:
    def forward(p: Any, x: Any, pairs: Any) -> Any:
        import jax
        import jax.numpy as jnp

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
        import jax.numpy as jnp

        links = links + stack(p["edge"], jnp.concatenate([x[pairs[0]], x[pairs[1]], links], -1))
        return x + stack(p["node"], jnp.concatenate([x, _summed(links, pairs[1], nodes)], -1)), links

    parameters = {"edge": stack_of([3 * width, width, width]), "node": stack_of([2 * width, width, width])}
    return Net(forward, parameters, (f32(nodes, width), f32(edges, width), i32(2, edges)))


def _dense_adjacency(*, nodes: int, width: int) -> Net:
    def forward(p: Any, x: Any, adjacent: Any) -> Any:
        import jax.numpy as jnp

        scale = 1 / jnp.sqrt(adjacent.sum(-1))
        matrix = adjacent * scale[:, None] * scale
        return matrix @ activate("relu", matrix @ dense(p["l0"], x)) @ p["l1"]["w"]

    parameters = {"l0": dense_of(width, width), "l1": dense_of(width, width // 2)}
    return Net(forward, parameters, (f32(nodes, width), f32(nodes, nodes)))


_SIZES = sizes("nodes edges width", (300, 1500, 64), (3000, 12000, 32), (600, 9000, 96), (1800, 18000, 48))

NETWORKS = (
    Network("graph-network", "convolution", _convolution, _SIZES, integer_bound="nodes"),
    Network("graph-network", "sampled", _sampled, _SIZES, integer_bound="nodes"),
    Network("graph-network", "attention", _attention, _SIZES, integer_bound="nodes"),
    Network("graph-network", "messages", _messages, _SIZES, integer_bound="nodes"),
    Network(
        "graph-network",
        "dense-adjacency",
        _dense_adjacency,
        sizes("nodes width", (200, 64), (700, 48), (384, 128), (1200, 32)),
    ),
)
