"""Layers that the networks share: shapes of their parameters, and what they compute. Images are NHWC, kernels HWIO."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from phasepoint.zoo.specs import f32, jax, jnp, lax


def dense_of(inputs: int, outputs: int) -> dict[str, Any]:
    """Parameters of a dense layer."""
    return {"w": f32(inputs, outputs), "b": f32(outputs)}


def dense(layer: Any, x: Any) -> Any:
    """x·w + b over the last axis."""
    return x @ layer["w"] + layer["b"]


def stack_of(widths: Sequence[int]) -> dict[str, Any]:
    """Parameters of dense layers one after the other."""
    return {f"d{place}": dense_of(*pair) for place, pair in enumerate(pairwise(widths))}


def stack(layers: Any, x: Any, *, act: str = "relu") -> Any:
    """Dense layers with an activation between them, none after the last."""
    for place in range(len(layers)):
        x = dense(layers[f"d{place}"], x)
        if place + 1 < len(layers):
            x = activate(act, x)
    return x


def activate(name: str, x: Any) -> Any:
    """An activation of jax.nn, by name."""
    return getattr(jax.nn, name)(x)


def conv_of(inputs: int, outputs: int, *, kernel: int | tuple[int, ...] = 3, rank: int = 2) -> dict[str, Any]:
    """Parameters of a convolution; `inputs` are those of one group."""
    window = (kernel,) * rank if isinstance(kernel, int) else kernel
    return {"w": f32(*window, inputs, outputs), "b": f32(outputs)}


def conv(layer: Any, x: Any, *, stride: int = 1, padding: Any = "SAME", dilation: int = 1, groups: int = 1) -> Any:
    """A convolution of one or two spatial axes."""
    rank = x.ndim - 2
    numbers = ("NWC", "WIO", "NWC") if rank == 1 else ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(
        x,
        layer["w"],
        (stride,) * rank,
        padding,
        rhs_dilation=(dilation,) * rank,
        dimension_numbers=numbers,
        feature_group_count=groups,
    )
    return y + layer["b"]


def conv_transposed(layer: Any, x: Any, *, stride: int = 2) -> Any:
    """A convolution that enlarges an image by its stride."""
    return lax.conv_transpose(x, layer["w"], (stride, stride), "SAME") + layer["b"]


def pool(x: Any, *, kind: str = "max", window: int = 2, stride: int = 2, padding: str = "VALID") -> Any:
    """Maximum or mean over windows of an image."""
    shape, steps = (1, window, window, 1), (1, stride, stride, 1)
    if kind == "max":
        return lax.reduce_window(x, -jnp.inf, lax.max, shape, steps, padding)
    return lax.reduce_window(x, 0.0, lax.add, shape, steps, padding) / window**2


def enlarge(x: Any, *, times: int = 2) -> Any:
    """An image with each pixel repeated."""
    return jnp.repeat(jnp.repeat(x, times, axis=1), times, axis=2)


def norm_of(width: int) -> dict[str, Any]:
    """Parameters of a normalisation: scale and shift."""
    return {"scale": f32(width), "shift": f32(width)}


def norm(layer: Any, x: Any, *, axes: int | tuple[int, ...] = -1) -> Any:
    """Mean 0, variance 1 over axes (-1: layer norm), then scale and shift of the last axis."""
    centred = x - jnp.mean(x, axes, keepdims=True)
    spread = jnp.mean(jnp.square(centred), axes, keepdims=True)
    return centred * lax.rsqrt(spread + 1e-5) * layer["scale"] + layer["shift"]


def batch_norm(layer: Any, x: Any) -> Any:
    """Normalisation over all axes but the last."""
    return norm(layer, x, axes=tuple(range(x.ndim - 1)))


def rms_norm(layer: Any, x: Any) -> Any:
    """Root mean square 1 over the last axis, then scale."""
    return x * lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5) * layer["scale"]


def group_norm(layer: Any, x: Any, *, groups: int) -> Any:
    """Normalisation over space and the channels of a group."""
    parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean = jnp.mean(parts, (1, 3), keepdims=True)
    spread = jnp.var(parts, (1, 3), keepdims=True)
    return ((parts - mean) * lax.rsqrt(spread + 1e-5)).reshape(x.shape) * layer["scale"] + layer["shift"]


def attention_of(width: int) -> dict[str, Any]:
    """Parameters of multi-head attention."""
    return {part: dense_of(width, width) for part in ("query", "key", "value", "out")}


def heads_of(x: Any, heads: int) -> Any:
    """[batch, length, width] → [batch, heads, length, width / heads]."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def joined(x: Any) -> Any:
    """[batch, heads, length, part] → [batch, length, width]."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attend(query: Any, key: Any, value: Any, *, causal: bool = False, bias: Any = None) -> Any:
    """Softmax attention over [batch, heads, length, part]."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) / query.shape[-1] ** 0.5
    if bias is not None:
        scores = scores + bias
    if causal:
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(mask, scores, -1e9)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), value)


def attention(layer: Any, x: Any, *, heads: int, context: Any = None, causal: bool = False) -> Any:
    """Multi-head attention; of `x` to itself where no context is given."""
    source = x if context is None else context
    query = heads_of(dense(layer["query"], x), heads)
    key, value = (heads_of(dense(layer[part], source), heads) for part in ("key", "value"))
    return dense(layer["out"], joined(attend(query, key, value, causal=causal)))


def cross_entropy(scores: Any, labels: Any) -> Any:
    """Mean cross-entropy of scores [..., classes] and integer labels [...]."""
    log_chances = jax.nn.log_softmax(scores, -1)
    return -jnp.mean(jnp.take_along_axis(log_chances, labels[..., None], -1))
