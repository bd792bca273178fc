"""Normalisations alone, each with what stands next to it in a network."""

from collections.abc import Callable
from typing import Any

from phasepoint.zoo.layers import activate, batch_norm, group_norm, norm, norm_of, rms_norm
from phasepoint.zoo.specs import Net, Network, f32, jnp, lax, sizes


def _layer(p: Any, x: Any) -> Any:
    return x + norm(p, activate("gelu", x))


def _batch(p: Any, x: Any) -> Any:
    return activate("relu", batch_norm(p, x))


def _group(p: Any, x: Any) -> Any:
    return activate("silu", group_norm(p, x, groups=4))


def _instance(p: Any, x: Any) -> Any:
    return activate("leaky_relu", norm(p, x, axes=tuple(range(1, x.ndim - 1))))


def _root_mean_square(p: Any, x: Any) -> Any:
    return rms_norm(p, x) + x


def _unit_length(p: Any, x: Any) -> Any:
    return x / (jnp.abs(x).sum(-1, keepdims=True) + 1) * p["scale"] + p["shift"]


def _neighbours(p: Any, x: Any) -> Any:
    window = (1,) * (x.ndim - 1) + (5,)
    spread = lax.reduce_window(jnp.square(x), 0.0, lax.add, window, (1,) * x.ndim, "SAME")
    return x * (1 + 1e-2 * spread) ** -0.75 * p["scale"]


def _running(p: Any, x: Any) -> Any:
    return activate("relu", (x - p["shift"]) / (p["scale"] + 1e-3) ** 0.5)


_KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "layer": _layer,
    "batch": _batch,
    "group": _group,
    "instance": _instance,
    "root-mean-square": _root_mean_square,
    "unit-length": _unit_length,
    "neighbours": _neighbours,
    "running": _running,
}


def _alone(*, batch: int, side: int, width: int, kind: str) -> Net:
    return Net(_KINDS[kind], norm_of(width), (f32(batch, side, side, width),))


_SIZES = sizes("batch side width", (4, 16, 96), (32, 12, 200), (8, 40, 64), (64, 14, 48), (24, 8, 640), (12, 56, 24))

NETWORKS = tuple(
    Network(
        "normalisation", kind, _alone, _SIZES[place % 2 :][:4], options={"kind": kind}, half=(1,) if place < 2 else ()
    )
    for place, kind in enumerate(_KINDS)
)
