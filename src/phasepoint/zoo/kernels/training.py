"""Updates of parameters alone: element-wise work over large arrays, and norms over whole trees.

Losses alone: of classes, of pairs, of distances, of rankings, of paths through a lattice.
"""

from collections.abc import Callable
from typing import Any

from phasepoint.zoo.layers import cross_entropy, stack_of
from phasepoint.zoo.specs import Net, Network, f32, i32, jax, jnp, lax, sizes


def _classes(*, batch: int, classes: int) -> Net:
    return Net(lambda _, scores, labels: cross_entropy(scores, labels), {}, (f32(batch, classes), i32(batch)))


def _smoothed(*, batch: int, classes: int) -> Net:
    def forward(_: Any, scores: Any, labels: Any) -> Any:
        target = jax.nn.one_hot(labels, classes) * 0.9 + 0.1 / classes
        return -(target * jax.nn.log_softmax(scores)).sum(-1).mean()

    return Net(forward, {}, (f32(batch, classes), i32(batch)))


def _focal(*, batch: int, classes: int) -> Net:
    def forward(_: Any, scores: Any, labels: Any) -> Any:
        chance = jax.nn.sigmoid(scores)
        right = jnp.where(jax.nn.one_hot(labels, classes) > 0, chance, 1 - chance)
        return (-((1 - right) ** 2) * jnp.log(right + 1e-6)).mean()

    return Net(forward, {}, (f32(batch, classes), i32(batch)))


def _distilled(*, batch: int, classes: int) -> Net:
    def forward(_: Any, student: Any, teacher: Any) -> Any:
        wanted = jax.nn.softmax(teacher / 2)
        return (wanted * (jax.nn.log_softmax(teacher / 2) - jax.nn.log_softmax(student / 2))).sum(-1).mean()

    return Net(forward, {}, (f32(batch, classes), f32(batch, classes)))


def _contrastive(*, batch: int, width: int) -> Net:
    def forward(_: Any, left: Any, right: Any) -> Any:
        left, right = (x / jnp.sqrt((x**2).sum(-1, keepdims=True)) for x in (left, right))
        scores = left @ right.T / 0.1
        ahead, back = jax.nn.log_softmax(scores, 0), jax.nn.log_softmax(scores, 1)
        return -(jnp.diagonal(ahead) + jnp.diagonal(back)).mean()

    return Net(forward, {}, (f32(batch, width), f32(batch, width)))


def _triplet(*, batch: int, width: int) -> Net:
    def forward(_: Any, anchor: Any, near: Any, far: Any) -> Any:
        closer = jnp.abs(anchor - near).sum(-1) - jnp.abs(anchor - far).sum(-1)
        return jnp.maximum(closer + 0.2, 0).mean()

    return Net(forward, {}, (f32(batch, width),) * 3)


def _robust(*, batch: int, width: int) -> Net:
    def forward(_: Any, guess: Any, truth: Any) -> Any:
        error = jnp.abs(guess - truth)
        return jnp.where(error < 0.3, 0.5 * error**2, 0.3 * (error - 0.15)).mean() + jnp.log(jnp.cosh(error)).mean()

    return Net(forward, {}, (f32(batch, width), f32(batch, width)))


def _ranked(*, batch: int, width: int) -> Net:
    def forward(_: Any, scores: Any, truth: Any) -> Any:
        better = (truth[:, :, None] > truth[:, None, :]).astype(scores.dtype)
        return (better * jnp.log1p(jnp.exp(scores[:, None, :] - scores[:, :, None]))).sum((1, 2)).mean()

    return Net(forward, {}, (f32(batch, width), f32(batch, width)))


def _lattice(*, batch: int, length: int, labels: int) -> Net:
    def forward(_: Any, log_chances: Any) -> Any:
        def step(path: Any, now: Any) -> Any:
            moved = jnp.pad(path[:, :-1], ((0, 0), (1, 0)), constant_values=-1e4)
            return jnp.logaddexp(path, moved) + now, None

        first = jnp.full((batch, labels), -1e4).at[:, 0].set(0)
        return -lax.scan(step, first, jnp.log(log_chances))[0][:, -1].mean()

    return Net(forward, {}, (f32(length, batch, labels),))


def _chain(*, batch: int, length: int, labels: int) -> Net:
    def forward(p: Any, scores: Any) -> Any:
        def step(path: Any, now: Any) -> Any:
            return jax.nn.logsumexp(path[:, :, None] + p["moves"], 1) + now, jnp.argmax(path, -1)

        path, best = lax.scan(step, jnp.zeros((batch, labels)), scores)
        return jax.nn.logsumexp(path, -1).mean(), best

    return Net(forward, {"moves": f32(labels, labels)}, (f32(length, batch, labels),))


_CLASSES = sizes("batch classes", (256, 1000), (8192, 100), (256, 10000), (2000, 400), (16384, 48))
_PAIRS = sizes("batch width", (256, 384), (2560, 200), (4000, 96), (512, 1000), (1600, 300))
_SQUARES = sizes("batch width", (256, 384), (640, 200), (1000, 96), (128, 1000), (400, 300))  # all pairs of a batch
_LATTICES = sizes("batch length labels", (16, 48, 48), (48, 40, 32), (10, 60, 100), (100, 24, 40))

_OBJECTIVES_NETWORKS = (
    Network("objective", "classes", _classes, _CLASSES, integer_bound="classes", half=(1,)),
    Network("objective", "smoothed", _smoothed, _CLASSES, integer_bound="classes"),
    Network("objective", "focal", _focal, _CLASSES, integer_bound="classes"),
    Network("objective", "distilled", _distilled, _CLASSES),
    Network("objective", "contrastive", _contrastive, _SQUARES),
    Network("objective", "triplet", _triplet, _PAIRS),
    Network("objective", "robust", _robust, _PAIRS),
    Network("objective", "ranked", _ranked, sizes("batch width", (32, 64), (64, 100), (256, 48), (16, 300))),
    Network("lattice", "alignment", _lattice, _LATTICES),
    Network("lattice", "chain", _chain, _LATTICES),
)


Update = Callable[[Any, Any, Any, Any], Any]  # (value, slope, first moment, second moment) → the new three


def _momentum(value: Any, slope: Any, first: Any, second: Any) -> Any:
    first = 0.9 * first + slope
    return value - 0.01 * (slope + 0.9 * first) - 1e-4 * value, first, second


def _adam(value: Any, slope: Any, first: Any, second: Any) -> Any:
    first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
    return value - 1e-3 * (first / 0.1 / (jnp.sqrt(second / 0.001) + 1e-8) + 0.01 * value), first, second


def _lamb(value: Any, slope: Any, first: Any, second: Any) -> Any:
    first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
    change = first / (jnp.sqrt(second) + 1e-6) + 0.01 * value
    trust = jnp.sqrt((value**2).sum()) / (jnp.sqrt((change**2).sum()) + 1e-6)
    return value - 1e-3 * trust * change, first, second


def _adagrad(value: Any, slope: Any, first: Any, second: Any) -> Any:
    second = second + slope**2
    return value - 0.01 * slope * lax.rsqrt(second + 1e-7), first, second


def _sign(value: Any, slope: Any, first: Any, second: Any) -> Any:
    change = jnp.sign(0.9 * first + 0.1 * slope)
    return value - 1e-4 * (change + 0.1 * value), 0.99 * first + 0.01 * slope, second


def _factored(value: Any, slope: Any, first: Any, second: Any) -> Any:
    if value.ndim < 2:
        return _adagrad(value, slope, first, second)
    square = slope**2 + 1e-30
    row, column = square.mean(-1, keepdims=True), square.mean(-2, keepdims=True)
    change = slope * lax.rsqrt(row / row.mean(-2, keepdims=True)) * lax.rsqrt(column)
    change = change / jnp.maximum(1, jnp.sqrt((change**2).mean()))
    return value - 0.01 * change, 0.9 * first + 0.1 * change, second


_UPDATES: dict[str, Update] = {
    "momentum": _momentum,
    "adam": _adam,
    "lamb": _lamb,
    "adagrad": _adagrad,
    "sign": _sign,
    "factored": _factored,
}


def _step(*, inputs: int, width: int, depth: int, kind: str, clipped: bool = False) -> Net:
    def forward(parameters: Any, slopes: Any, first: Any, second: Any) -> Any:
        if clipped:
            length = jnp.sqrt(sum((slope**2).sum() for slope in jax.tree.leaves(slopes)))
            slopes = jax.tree.map(lambda slope: slope * jnp.minimum(1, 1 / (length + 1e-6)), slopes)
        return jax.tree.map(_UPDATES[kind], parameters, slopes, first, second)

    tree = stack_of([inputs, *[width] * depth])
    return Net(forward, tree, (tree, tree, tree))


_OPTIMISERS_SIZES = sizes(
    "inputs width depth", (784, 300, 2), (256, 256, 3), (1000, 640, 2), (100, 400, 4), (512, 1024, 2), (200, 96, 3)
)

_OPTIMISERS_NETWORKS = (
    *(
        Network("optimiser", kind, _step, _OPTIMISERS_SIZES[place % 2 :: 2], modes=("forward",), options={"kind": kind})
        for place, kind in enumerate(_UPDATES)
    ),
    Network(
        "optimiser",
        "adam-clipped",
        _step,
        _OPTIMISERS_SIZES[1:5],
        modes=("forward",),
        options={"kind": "adam", "clipped": True},
    ),
    Network(
        "optimiser",
        "sign-clipped",
        _step,
        _OPTIMISERS_SIZES[:4],
        modes=("forward",),
        options={"kind": "sign", "clipped": True},
    ),
)


NETWORKS = (*_OPTIMISERS_NETWORKS, *_OBJECTIVES_NETWORKS)
