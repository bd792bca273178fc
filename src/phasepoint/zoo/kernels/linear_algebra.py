"""Linear algebra from products and element-wise work, and small statistics on it."""

from typing import Any

from phasepoint.zoo.layers import cross_entropy
from phasepoint.zoo.specs import Net, Network, f32, i32, sizes


def _covariance(*, rows: int, width: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        import jax.numpy as jnp

        centred = x - x.mean(0)
        matrix = centred.T @ centred / rows
        spread = jnp.sqrt(jnp.diagonal(matrix) + 1e-3)
        return matrix / spread[:, None] / spread

    return Net(forward, {}, (f32(rows, width),))


def _power_iteration(*, width: int, steps: int) -> Net:
    def forward(_: Any, matrix: Any, x: Any) -> Any:
        import jax.numpy as jnp
        from jax import lax

        def step(x: Any, _step: Any) -> Any:
            y = matrix @ x
            return y / jnp.sqrt((y**2).sum()), (x * y).sum()

        return lax.scan(step, x, None, length=steps)

    return Net(forward, {}, (f32(width, width), f32(width)))


def _kernel_regression(*, rows: int, width: int, queries: int) -> Net:
    def forward(_: Any, x: Any, y: Any, asked: Any) -> Any:
        import jax.numpy as jnp

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
        import jax.numpy as jnp

        matrix = matrix / width + jnp.eye(width)
        guess = matrix.T / (jnp.abs(matrix).sum(0).max() * jnp.abs(matrix).sum(1).max())
        for _step in range(steps):
            guess = 2 * guess - guess @ (matrix @ guess)
        return guess

    return Net(forward, {}, (f32(width, width),))


def _conjugate_gradient(*, width: int, steps: int) -> Net:
    def forward(_: Any, matrix: Any, right: Any) -> Any:
        import jax.numpy as jnp
        from jax import lax

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
        import jax.numpy as jnp

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
)
