"""Recommenders: rows of large tables gathered, few dense layers, products of pairs."""

from typing import Any

from phasepoint.zoo.layers import activate, stack, stack_of
from phasepoint.zoo.specs import Net, Network, f32, i32, sizes


def _chances(scores: Any) -> Any:
    return activate("softplus", -scores).mean()


def _crossing(*, batch: int, tables: int, rows: int, width: int) -> Net:
    def forward(p: Any, numbers: Any, places: Any) -> Any:
        import jax.numpy as jnp

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
        import jax
        import jax.numpy as jnp

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
        import jax.numpy as jnp

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
