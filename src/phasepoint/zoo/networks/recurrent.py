"""Recurrent networks: loops whose trip count is the length of the sequence."""

from collections.abc import Callable
from typing import Any

from phasepoint.zoo.layers import activate, cross_entropy, dense, dense_of
from phasepoint.zoo.specs import Net, Network, f32, i32, jnp, lax, sizes

Cell = Callable[[Any, Any, Any], Any]  # (parameters, state, input) → state


def _simple(p: Any, state: Any, x: Any) -> Any:
    return activate("tanh", dense(p["x"], x) + dense(p["h"], state))


def _gated(p: Any, state: Any, x: Any) -> Any:
    reset_x, update_x, new_x = jnp.split(dense(p["x"], x), 3, -1)
    reset_h, update_h, new_h = jnp.split(dense(p["h"], state), 3, -1)
    update = activate("sigmoid", update_x + update_h)
    new = activate("tanh", new_x + activate("sigmoid", reset_x + reset_h) * new_h)
    return (1 - update) * new + update * state


def _long_short(p: Any, state: Any, x: Any) -> Any:
    hidden, cell = jnp.split(state, 2, -1)
    into, forget, out, new = jnp.split(dense(p["x"], x) + dense(p["h"], hidden), 4, -1)
    cell = activate("sigmoid", forget) * cell + activate("sigmoid", into) * activate("tanh", new)
    return jnp.concatenate([activate("sigmoid", out) * activate("tanh", cell), cell], -1)


_CELLS: dict[str, tuple[Cell, int, int]] = {  # gates, parts of the state
    "simple": (_simple, 1, 1),
    "gated": (_gated, 3, 1),
    "long-short": (_long_short, 4, 2),
}


def _unrolled(cell: Cell, p: Any, xs: Any, *, parts: int, width: int) -> Any:
    def step(state: Any, x: Any) -> Any:
        state = cell(p, state, x)
        return state, state[..., :width]

    return lax.scan(step, jnp.zeros((xs.shape[1], parts * width), xs.dtype), xs)[1]


def _network(*, batch: int, length: int, width: int, kind: str) -> Net:
    cell, gates, parts = _CELLS[kind]
    parameters = {"x": dense_of(width, gates * width), "h": dense_of(width, gates * width)}
    return Net(lambda p, xs: _unrolled(cell, p, xs, parts=parts, width=width), parameters, (f32(length, batch, width),))


def _both_ways(*, batch: int, length: int, width: int) -> Net:
    def forward(p: Any, xs: Any) -> Any:
        ahead = _unrolled(_gated, p["ahead"], xs, parts=1, width=width)
        back = _unrolled(_gated, p["back"], xs[::-1], parts=1, width=width)[::-1]
        return jnp.concatenate([ahead, back], -1)

    side = {"x": dense_of(width, 3 * width), "h": dense_of(width, 3 * width)}
    return Net(forward, {"ahead": side, "back": side}, (f32(length, batch, width),))


def _tagger(*, batch: int, length: int, width: int, vocabulary: int) -> Net:
    def forward(p: Any, tokens: Any) -> Any:
        xs = _unrolled(_long_short, p, p["embedding"][tokens], parts=2, width=width)
        return cross_entropy(dense(p["head"], xs), tokens)

    parameters = {
        "embedding": f32(vocabulary, width),
        "x": dense_of(width, 4 * width),
        "h": dense_of(width, 4 * width),
        "head": dense_of(width, vocabulary),
    }
    return Net(forward, parameters, (i32(length, batch),))


def _state_space(*, batch: int, length: int, width: int) -> Net:
    def forward(p: Any, xs: Any) -> Any:
        decay = activate("sigmoid", dense(p["decay"], xs))

        def joined(left: Any, right: Any) -> Any:
            return left[0] * right[0], left[1] * right[0] + right[1]

        return dense(p["out"], lax.associative_scan(joined, (decay, dense(p["x"], xs)))[1])

    parameters = {name: dense_of(width, width) for name in ("x", "decay", "out")}
    return Net(forward, parameters, (f32(length, batch, width),))


_SIZES = sizes(
    "batch length width", (8, 20, 64), (32, 32, 100), (64, 12, 200), (8, 48, 128), (96, 10, 96), (4, 16, 300)
)

NETWORKS = (
    Network("recurrent", "simple", _network, _SIZES, options={"kind": "simple"}),
    Network("recurrent", "gated", _network, _SIZES, options={"kind": "gated"}),
    Network("recurrent", "long-short", _network, _SIZES, options={"kind": "long-short"}),
    Network("recurrent", "both-ways", _both_ways, _SIZES[:4]),
    Network(
        "recurrent",
        "tagger",
        _tagger,
        sizes(
            "batch length width vocabulary", (8, 20, 64, 500), (32, 12, 100, 1000), (8, 40, 96, 200), (64, 16, 48, 300)
        ),
        integer_bound="vocabulary",
    ),
    Network(
        "state-space",
        "diagonal",
        _state_space,
        sizes("batch length width", (4, 64, 64), (16, 100, 48), (4, 256, 96), (32, 32, 128)),
    ),
)
