"""Mixers: dense layers over tokens and over channels in turn; every other layer works on a transposed array."""

from typing import Any

from phasepoint.zoo.layers import activate, dense, dense_of, norm, norm_of, stack, stack_of
from phasepoint.zoo.specs import Net, Network, f32, sizes


def _mixer(*, batch: int, tokens: int, width: int, hidden: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        for block in p.values():
            y = norm(block["n0"], x).transpose(0, 2, 1)
            x = x + stack(block["tokens"], y, act="gelu").transpose(0, 2, 1)
            x = x + stack(block["channels"], norm(block["n1"], x), act="gelu")
        return x.mean(1)

    block = {
        "n0": norm_of(width),
        "tokens": stack_of([tokens, hidden, tokens]),
        "n1": norm_of(width),
        "channels": stack_of([width, hidden, width]),
    }
    return Net(forward, {"b0": block, "b1": block}, (f32(batch, tokens, width),))


def _gated(*, batch: int, tokens: int, width: int, hidden: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        import jax.numpy as jnp

        left, right = jnp.split(activate("gelu", dense(p["up"], norm(p["n0"], x))), 2, -1)
        gate = dense(p["spatial"], norm(p["n1"], right).transpose(0, 2, 1)).transpose(0, 2, 1)
        return x + dense(p["down"], left * (gate + 1))

    parameters = {
        "n0": norm_of(width),
        "up": dense_of(width, 2 * hidden),
        "n1": norm_of(hidden),
        "spatial": dense_of(tokens, tokens),
        "down": dense_of(hidden, width),
    }
    return Net(forward, parameters, (f32(batch, tokens, width),))


_SIZES = sizes("batch tokens width hidden", (4, 49, 96, 192), (6, 100, 128, 200), (24, 64, 80, 160), (18, 36, 200, 300))

NETWORKS = (
    Network("mixer", "plain", _mixer, _SIZES),
    Network("mixer", "gated", _gated, _SIZES),
)
