"""Mixtures of experts: all of them weighted, one of them chosen, or tokens blended into slots."""

from typing import Any

from phasepoint.zoo.layers import activate
from phasepoint.zoo.specs import Net, Network, f32, sizes


def _experts_of(experts: int, width: int, hidden: int) -> dict[str, Any]:
    return {"gate": f32(width, experts), "up": f32(experts, width, hidden), "down": f32(experts, hidden, width)}


def _weighted(*, tokens: int, width: int, hidden: int, experts: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        import jax
        import jax.numpy as jnp

        shares = jax.nn.softmax(x @ p["gate"], -1)
        inner = activate("gelu", jnp.einsum("td,edh->teh", x, p["up"]))
        return jnp.einsum("teh,ehd,te->td", inner, p["down"], shares)

    return Net(forward, _experts_of(experts, width, hidden), (f32(tokens, width),))


def _chosen(*, tokens: int, width: int, hidden: int, experts: int) -> Net:
    room = 2 * tokens // experts

    def forward(p: Any, x: Any) -> Any:
        import jax
        import jax.numpy as jnp

        shares = jax.nn.softmax(x @ p["gate"], -1)
        mine = jax.nn.one_hot(jnp.argmax(shares, -1), experts)
        place = (jnp.cumsum(mine, 0) * mine - 1).max(-1).astype(jnp.int32)
        sent = mine[:, :, None] * jax.nn.one_hot(place, room)[:, None, :]
        inner = activate("relu", jnp.einsum("tec,td,edh->ech", sent, x, p["up"]))
        return jnp.einsum("tec,ech,ehd->td", sent * shares[:, :, None], inner, p["down"])

    return Net(forward, _experts_of(experts, width, hidden), (f32(tokens, width),))


def _slotted(*, tokens: int, width: int, hidden: int, experts: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        import jax
        import jax.numpy as jnp

        scores = x @ p["gate"]
        slots = jax.nn.softmax(scores, 0).T @ x
        inner = activate("silu", jnp.einsum("ed,edh->eh", slots, p["up"]))
        return jax.nn.softmax(scores, 1) @ jnp.einsum("eh,ehd->ed", inner, p["down"])

    return Net(forward, _experts_of(experts, width, hidden), (f32(tokens, width),))


_SIZES = sizes(
    "tokens width hidden experts", (128, 64, 128, 4), (400, 96, 96, 8), (128, 128, 300, 6), (600, 48, 100, 5)
)

NETWORKS = (
    Network("experts", "weighted", _weighted, _SIZES),
    Network("experts", "chosen", _chosen, _SIZES),
    Network("experts", "slotted", _slotted, _SIZES),
)
