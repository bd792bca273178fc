"""Order and position: sorts, the largest few, running sums, counts, sampling.

Random numbers: dropout, noise, sampling of classes. The key comes from an integer argument.
"""

from typing import Any

from phasepoint.zoo.layers import activate, dense, dense_of
from phasepoint.zoo.specs import Net, Network, f32, i32, jax, jnp, lax, sizes


def _key(seed: Any) -> Any:
    return jax.random.fold_in(jax.random.key(0), seed)


def _dropout(*, batch: int, width: int) -> Net:
    def forward(p: Any, x: Any, seed: Any) -> Any:
        kept = jax.random.bernoulli(_key(seed), 0.8, x.shape)
        return activate("relu", dense(p, jnp.where(kept, x / 0.8, 0)))

    return Net(forward, dense_of(width, width), (f32(batch, width), i32()))


def _noise(*, batch: int, width: int) -> Net:
    def forward(_: Any, x: Any, seed: Any) -> Any:
        return x + 0.1 * jax.random.normal(_key(seed), x.shape)

    return Net(forward, {}, (f32(batch, width), i32()))


def _gumbel(*, batch: int, width: int) -> Net:
    def forward(_: Any, x: Any, seed: Any) -> Any:
        noise = -jnp.log(-jnp.log(jax.random.uniform(_key(seed), x.shape, minval=0.01, maxval=0.99)))
        return jax.nn.softmax((x + noise) / 0.5, -1)

    return Net(forward, {}, (f32(batch, width), i32()))


def _sampled(*, batch: int, width: int) -> Net:
    def forward(_: Any, x: Any, seed: Any) -> Any:
        return jax.random.categorical(_key(seed), x, -1), x.max(-1)

    return Net(forward, {}, (f32(batch, width), i32()))


def _integral(*, points: int, width: int) -> Net:
    def forward(_: Any, scale: Any, seed: Any) -> Any:
        place = jax.random.uniform(_key(seed), (points, width))
        return jnp.exp(-((place * scale) ** 2).sum(-1)).mean()

    return Net(forward, {}, (f32(width), i32()))


_CHANCE_SIZES = sizes("batch width", (64, 256), (500, 640), (1000, 200), (160, 1000), (2500, 96))

_CHANCE_NETWORKS = (
    Network("chance", "dropout", _dropout, _CHANCE_SIZES, integer_bound=1000),
    Network("chance", "noise", _noise, _CHANCE_SIZES, modes=("forward",), integer_bound=1000),
    Network("chance", "gumbel", _gumbel, _CHANCE_SIZES, integer_bound=1000),
    Network("chance", "sampled", _sampled, _CHANCE_SIZES, modes=("forward",), integer_bound=1000),
    Network(
        "chance",
        "integral",
        _integral,
        sizes("points width", (5000, 8), (100000, 3), (10000, 30), (50000, 12)),
        modes=("forward",),
        integer_bound=1000,
    ),
)


def _sorted(*, batch: int, length: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        return jnp.sort(x, -1)

    return Net(forward, {}, (f32(batch, length),))


def _sorted_pairs(*, batch: int, length: int) -> Net:
    def forward(_: Any, x: Any, y: Any) -> Any:
        order = jnp.argsort(x, -1)
        return jnp.cumsum(jnp.take_along_axis(y, order, -1), -1)

    return Net(forward, {}, (f32(batch, length), f32(batch, length)))


def _largest(*, batch: int, length: int, count: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        values, places = lax.top_k(x, count)
        return jax.nn.softmax(values, -1), places

    return Net(forward, {}, (f32(batch, length),))


def _running(*, batch: int, length: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        total = jnp.cumsum(x, 1)
        return total / jnp.arange(1, length + 1), jnp.cumsum(x * total, 1)

    return Net(forward, {}, (f32(batch, length),))


def _counted(*, rows: int, groups: int, width: int) -> Net:
    def forward(_: Any, x: Any, group: Any) -> Any:
        total = jax.ops.segment_sum(x, group, groups)
        count = jax.ops.segment_sum(jnp.ones(rows), group, groups)
        mean = total / (count[:, None] + 1)
        return x - mean[group]

    return Net(forward, {}, (f32(rows, width), i32(rows)))


def _searched(*, queries: int, length: int) -> Net:
    def forward(_: Any, x: Any, asked: Any) -> Any:
        edges = jnp.cumsum(x)
        place = jnp.searchsorted(edges, asked * edges[-1])
        return x[jnp.clip(place, 0, length - 1)] * asked

    return Net(forward, {}, (f32(length), f32(queries)))


def _nucleus(*, batch: int, length: int) -> Net:
    def forward(_: Any, scores: Any, drawn: Any) -> Any:
        chances = -jnp.sort(-jax.nn.softmax(5 * scores, -1), -1)
        kept = jnp.where(jnp.cumsum(chances, -1) < 0.9, chances, 0)
        return (jnp.cumsum(kept, -1) / kept.sum(-1, keepdims=True) < drawn[:, None]).sum(-1)

    return Net(forward, {}, (f32(batch, length), f32(batch)))


_ORDERING_SIZES = sizes("batch length", (16, 1000), (64, 200), (4, 5000), (200, 48), (32, 384))

_ORDERING_NETWORKS = (
    Network("ordering", "sorted", _sorted, _ORDERING_SIZES),
    Network("ordering", "sorted-pairs", _sorted_pairs, _ORDERING_SIZES, modes=("forward",)),
    Network(
        "ordering",
        "largest",
        _largest,
        sizes("batch length count", (16, 2000, 8), (64, 500, 4), (8, 10000, 16), (128, 200, 2)),
    ),
    Network("ordering", "running", _running, _ORDERING_SIZES),
    Network(
        "ordering",
        "counted",
        _counted,
        sizes("rows groups width", (2000, 50, 16), (5000, 300, 8), (1000, 20, 64), (3000, 1000, 32)),
        integer_bound="groups",
    ),
    Network(
        "ordering",
        "searched",
        _searched,
        sizes("queries length", (2000, 500), (10000, 100), (500, 5000), (5000, 1000)),
        modes=("forward",),
    ),
    Network("ordering", "nucleus", _nucleus, _ORDERING_SIZES[:4], modes=("forward",)),
)


NETWORKS = (*_ORDERING_NETWORKS, *_CHANCE_NETWORKS)
