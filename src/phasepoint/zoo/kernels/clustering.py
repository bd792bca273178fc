"""Distances between many points: k-means, mixtures, nearest neighbours, mean shift."""

from typing import Any

from phasepoint.zoo.specs import Net, Network, f32, i32, sizes


def _distances(x: Any, y: Any) -> Any:
    return (x**2).sum(-1)[:, None] - 2 * x @ y.T + (y**2).sum(-1)


def _k_means(*, points: int, width: int, clusters: int) -> Net:
    def forward(_: Any, x: Any, centres: Any) -> Any:
        import jax
        import jax.numpy as jnp

        for _step in range(2):
            member = jax.nn.one_hot(jnp.argmin(_distances(x, centres), 1), clusters)
            centres = member.T @ x / (member.sum(0)[:, None] + 1)
        return centres

    return Net(forward, {}, (f32(points, width), f32(clusters, width)))


def _mixture(*, points: int, width: int, clusters: int) -> Net:
    def forward(_: Any, x: Any, centres: Any, spread: Any) -> Any:
        import jax
        import jax.numpy as jnp

        centred = (x[:, None, :] - centres) / spread
        share = jax.nn.softmax(-0.5 * (centred**2).sum(-1) - jnp.log(spread).sum(-1), -1)
        total = share.sum(0)[:, None] + 1
        mean = share.T @ x / total
        return mean, share.T @ (x * x) / total - mean**2

    return Net(forward, {}, (f32(points, width), f32(clusters, width), f32(clusters, width)))


def _nearest(*, points: int, width: int, clusters: int) -> Net:
    def forward(_: Any, queries: Any, x: Any, labels: Any) -> Any:
        from jax import lax

        nearness, places = lax.top_k(-_distances(queries, x), 8)
        return nearness, labels[places].sum(-1)

    return Net(forward, {}, (f32(clusters, width), f32(points, width), i32(points)))


def _mean_shift(*, points: int, width: int, clusters: int) -> Net:
    def forward(_: Any, x: Any, centres: Any) -> Any:
        import jax.numpy as jnp

        weights = jnp.exp(-_distances(centres, x) / width)
        return weights @ x / weights.sum(-1, keepdims=True)

    return Net(forward, {}, (f32(points, width), f32(clusters, width)))


def _assignment(*, points: int, width: int, clusters: int) -> Net:
    def forward(_: Any, x: Any, centres: Any) -> Any:
        import jax.numpy as jnp

        scores = jnp.exp(-jnp.abs(x[:, None, :] - centres).mean(-1))
        for _step in range(3):
            scores = scores / scores.sum(0, keepdims=True)
            scores = scores / scores.sum(1, keepdims=True)
        return scores

    return Net(forward, {}, (f32(points, width), f32(clusters, width)))


_SIZES = sizes(
    "points width clusters", (2000, 32, 20), (3000, 64, 50), (15000, 16, 12), (1800, 100, 100), (9000, 48, 30)
)

# Of what holds points × clusters × width.
_CUBES = sizes("points width clusters", (2000, 32, 20), (1000, 48, 50), (5000, 16, 12), (600, 100, 40), (3000, 24, 30))

NETWORKS = (
    Network("clustering", "k-means", _k_means, _SIZES, modes=("forward",)),
    Network("clustering", "mixture", _mixture, _CUBES),
    Network("clustering", "nearest", _nearest, _SIZES, modes=("forward",), integer_bound=10),
    Network("clustering", "mean-shift", _mean_shift, _SIZES),
    Network("clustering", "assignment", _assignment, _CUBES[:4]),
)
