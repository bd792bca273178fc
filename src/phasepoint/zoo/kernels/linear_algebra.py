"""Linear algebra from products and element-wise work: small statistics, clustering, arithmetic of few bits.

Clustering measures distances between many points: k-means, mixtures, nearest neighbours, mean shift. Of few bits are
products of int8, weights unpacked when they are used, rounding in training.
"""

from typing import Any

from phasepoint.zoo.layers import cross_entropy
from phasepoint.zoo.specs import Net, Network, f32, i8, i32, jax, jnp, lax, sizes


def _covariance(*, rows: int, width: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        centred = x - x.mean(0)
        matrix = centred.T @ centred / rows
        spread = jnp.sqrt(jnp.diagonal(matrix) + 1e-3)
        return matrix / spread[:, None] / spread

    return Net(forward, {}, (f32(rows, width),))


def _power_iteration(*, width: int, steps: int) -> Net:
    def forward(_: Any, matrix: Any, x: Any) -> Any:
        def step(x: Any, _step: Any) -> Any:
            y = matrix @ x
            return y / jnp.sqrt((y**2).sum()), (x * y).sum()

        return lax.scan(step, x, None, length=steps)

    return Net(forward, {}, (f32(width, width), f32(width)))


def _kernel_regression(*, rows: int, width: int, queries: int) -> Net:
    def forward(_: Any, x: Any, y: Any, asked: Any) -> Any:
        apart = (asked**2).sum(1)[:, None] - 2 * asked @ x.T + (x**2).sum(1)
        weights = jnp.exp(-apart / width)
        return weights @ y / weights.sum(1, keepdims=True)

    return Net(forward, {}, (f32(rows, width), f32(rows, 4), f32(queries, width)))


def _softmax_regression(*, rows: int, width: int, classes: int) -> Net:
    def forward(p: Any, x: Any, labels: Any) -> Any:
        return cross_entropy(x @ p["w"] + p["b"], labels) + 1e-3 * (p["w"] ** 2).sum()

    return Net(forward, {"w": f32(width, classes), "b": f32(classes)}, (f32(rows, width), i32(rows)))


def _inverse(*, width: int, steps: int) -> Net:
    def forward(_: Any, matrix: Any) -> Any:
        matrix = matrix / width + jnp.eye(width)
        guess = matrix.T / (jnp.abs(matrix).sum(0).max() * jnp.abs(matrix).sum(1).max())
        for _step in range(steps):
            guess = 2 * guess - guess @ (matrix @ guess)
        return guess

    return Net(forward, {}, (f32(width, width),))


def _conjugate_gradient(*, width: int, steps: int) -> Net:
    def forward(_: Any, matrix: Any, right: Any) -> Any:
        matrix = (matrix + matrix.T) / width + 4 * jnp.eye(width)

        def step(state: Any, _step: Any) -> Any:
            x, rest, way, size = state
            moved = matrix @ way
            far = size / ((way * moved).sum() + 1e-6)
            rest = rest - far * moved
            new = (rest**2).sum()
            return (x + far * way, rest, rest + new / (size + 1e-6) * way, new), None

        start = (jnp.zeros_like(right), right, right, (right**2).sum())
        return lax.scan(step, start, None, length=steps)[0][0]

    return Net(forward, {}, (f32(width, width), f32(width)))


def _subspace(*, rows: int, width: int, rank: int) -> Net:
    def forward(_: Any, x: Any, base: Any) -> Any:
        base = x.T @ (x @ base) / rows
        columns: list[Any] = []
        for place in range(rank):
            column = base[:, place]
            for other in columns:
                column = column - (column * other).sum() * other
            columns.append(column / (jnp.sqrt((column**2).sum()) + 1e-3))
        return jnp.stack(columns, 1)

    return Net(forward, {}, (f32(rows, width), f32(width, rank)))


def _factorisation(*, rows: int, width: int, rank: int) -> Net:
    def forward(_: Any, x: Any, left: Any, right: Any) -> Any:
        for _step in range(2):
            right = right * (left.T @ x) / (left.T @ left @ right + 1e-3)
            left = left * (x @ right.T) / (left @ (right @ right.T) + 1e-3)
        return left, right

    return Net(forward, {}, (f32(rows, width), f32(rows, rank), f32(rank, width)))


def _distances(x: Any, y: Any) -> Any:
    return (x**2).sum(-1)[:, None] - 2 * x @ y.T + (y**2).sum(-1)


def _k_means(*, points: int, width: int, clusters: int) -> Net:
    def forward(_: Any, x: Any, centres: Any) -> Any:
        for _step in range(2):
            member = jax.nn.one_hot(jnp.argmin(_distances(x, centres), 1), clusters)
            centres = member.T @ x / (member.sum(0)[:, None] + 1)
        return centres

    return Net(forward, {}, (f32(points, width), f32(clusters, width)))


def _mixture(*, points: int, width: int, clusters: int) -> Net:
    def forward(_: Any, x: Any, centres: Any, spread: Any) -> Any:
        centred = (x[:, None, :] - centres) / spread
        share = jax.nn.softmax(-0.5 * (centred**2).sum(-1) - jnp.log(spread).sum(-1), -1)
        total = share.sum(0)[:, None] + 1
        mean = share.T @ x / total
        return mean, share.T @ (x * x) / total - mean**2

    return Net(forward, {}, (f32(points, width), f32(clusters, width), f32(clusters, width)))


def _nearest(*, points: int, width: int, clusters: int) -> Net:
    def forward(_: Any, queries: Any, x: Any, labels: Any) -> Any:
        nearness, places = lax.top_k(-_distances(queries, x), 8)
        return nearness, labels[places].sum(-1)

    return Net(forward, {}, (f32(clusters, width), f32(points, width), i32(points)))


def _mean_shift(*, points: int, width: int, clusters: int) -> Net:
    def forward(_: Any, x: Any, centres: Any) -> Any:
        weights = jnp.exp(-_distances(centres, x) / width)
        return weights @ x / weights.sum(-1, keepdims=True)

    return Net(forward, {}, (f32(points, width), f32(clusters, width)))


def _assignment(*, points: int, width: int, clusters: int) -> Net:
    def forward(_: Any, x: Any, centres: Any) -> Any:
        scores = jnp.exp(-jnp.abs(x[:, None, :] - centres).mean(-1))
        for _step in range(3):
            scores = scores / scores.sum(0, keepdims=True)
            scores = scores / scores.sum(1, keepdims=True)
        return scores

    return Net(forward, {}, (f32(points, width), f32(clusters, width)))


_CLUSTERING_SIZES = sizes(
    "points width clusters", (2000, 32, 20), (3000, 64, 50), (15000, 16, 12), (1800, 100, 100), (9000, 48, 30)
)

# Of what holds points × clusters × width.
_CUBES = sizes("points width clusters", (2000, 32, 20), (1000, 48, 50), (5000, 16, 12), (600, 100, 40), (3000, 24, 30))


LEVELS = 100
"""Steps either side of zero, a choice: fewer than the 127 of int8, so that rounding never reaches its end."""


def _rounded(x: Any) -> Any:
    step = jnp.abs(x).max() / LEVELS + 1e-6
    return x + jax.lax.stop_gradient(jnp.round(x / step) * step - x)


def _quantised_product(*, rows: int, inner: int, columns: int) -> Net:
    def forward(_: Any, x: Any, w: Any, scale: Any) -> Any:
        total = lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
        return total.astype(jnp.float32) * scale

    return Net(forward, {}, (i8(rows, inner), i8(inner, columns), f32(columns)))


def _unpacked(*, rows: int, inner: int, columns: int) -> Net:
    def forward(_: Any, x: Any, w: Any, scale: Any) -> Any:
        return x @ ((w.astype(x.dtype) - 50) * scale)

    return Net(forward, {}, (f32(rows, inner), i8(inner, columns), f32(columns)))


def _requantised(*, rows: int, inner: int, columns: int) -> Net:
    def forward(_: Any, x: Any, w: Any) -> Any:
        small = jnp.clip(jnp.round(x * LEVELS), -LEVELS, LEVELS).astype(jnp.int8)
        total = small.astype(jnp.int32) + w[0].astype(jnp.int32)
        return jnp.clip(total // 2, -LEVELS, LEVELS).astype(jnp.int8), (total * total).sum(-1)

    return Net(forward, {}, (f32(rows, inner), i8(columns, inner)))


def _in_training(*, rows: int, inner: int, columns: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        return _rounded(x) @ _rounded(p["w"])

    return Net(forward, {"w": f32(inner, columns)}, (f32(rows, inner),))


_QUANTISED_SIZES = sizes("rows inner columns", (64, 256, 200), (600, 384, 100), (96, 1000, 300), (384, 100, 640))

NETWORKS = (
    Network(
        "linear-algebra", "covariance", _covariance, sizes("rows width", (2000, 96), (750, 300), (7500, 48), (450, 640))
    ),
    Network(
        "linear-algebra",
        "power-iteration",
        _power_iteration,
        sizes("width steps", (200, 30), (750, 12), (1500, 5), (144, 60)),
    ),
    Network(
        "linear-algebra",
        "kernel-regression",
        _kernel_regression,
        sizes("rows width queries", (1000, 16, 200), (3000, 40, 100), (750, 100, 500), (4500, 8, 60)),
    ),
    Network(
        "linear-algebra",
        "softmax-regression",
        _softmax_regression,
        sizes("rows width classes", (1000, 200, 10), (750, 784, 48), (3000, 100, 100), (450, 300, 300)),
        integer_bound="classes",
    ),
    Network("linear-algebra", "inverse", _inverse, sizes("width steps", (100, 6), (300, 4), (576, 2), (450, 3))),
    Network(
        "linear-algebra",
        "conjugate-gradient",
        _conjugate_gradient,
        sizes("width steps", (200, 20), (600, 10), (1200, 5), (150, 50)),
        modes=("forward",),
    ),
    Network(
        "linear-algebra",
        "subspace",
        _subspace,
        sizes("rows width rank", (1000, 200, 5), (600, 500, 4), (4500, 96, 6), (900, 300, 8)),
        modes=("forward",),
    ),
    Network(
        "linear-algebra",
        "factorisation",
        _factorisation,
        sizes("rows width rank", (500, 300, 20), (300, 1000, 16), (1500, 200, 48), (576, 384, 32)),
        modes=("forward",),
    ),
    Network("clustering", "k-means", _k_means, _CLUSTERING_SIZES, modes=("forward",)),
    Network("clustering", "mixture", _mixture, _CUBES),
    Network("clustering", "nearest", _nearest, _CLUSTERING_SIZES, modes=("forward",), integer_bound=10),
    Network("clustering", "mean-shift", _mean_shift, _CLUSTERING_SIZES),
    Network("clustering", "assignment", _assignment, _CUBES[:4]),
    Network("quantised", "product", _quantised_product, _QUANTISED_SIZES, modes=("forward",), integer_bound=LEVELS),
    Network("quantised", "unpacked", _unpacked, _QUANTISED_SIZES, modes=("forward",), integer_bound=LEVELS),
    Network("quantised", "requantised", _requantised, _QUANTISED_SIZES, modes=("forward",), integer_bound=LEVELS),
    Network("quantised", "in-training", _in_training, _QUANTISED_SIZES),
)
