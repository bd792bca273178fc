"""Networks that make data: variational autoencoders, adversaries, flows."""

from typing import Any

from phasepoint.zoo.layers import (
    activate,
    batch_norm,
    conv,
    conv_of,
    conv_transposed,
    dense,
    dense_of,
    norm_of,
    stack,
    stack_of,
)
from phasepoint.zoo.specs import Net, Network, f32, sizes


def _divergence(mean: Any, log_spread: Any) -> Any:
    import jax.numpy as jnp

    return 0.5 * (jnp.exp(log_spread) + mean**2 - 1 - log_spread).mean()


def _variational(*, batch: int, inputs: int, width: int, code: int) -> Net:
    def forward(p: Any, x: Any, noise: Any) -> Any:
        import jax.numpy as jnp

        mean, log_spread = jnp.split(stack(p["encoder"], x), 2, -1)
        back = stack(p["decoder"], mean + jnp.exp(0.5 * log_spread) * noise)
        error = jnp.maximum(back, 0) - back * x + jnp.log1p(jnp.exp(-jnp.abs(back)))
        return error.mean() + _divergence(mean, log_spread)

    parameters = {"encoder": stack_of([inputs, width, 2 * code]), "decoder": stack_of([code, width, inputs])}
    return Net(forward, parameters, (f32(batch, inputs), f32(batch, code)))


def _variational_conv(*, batch: int, side: int, width: int) -> Net:
    def forward(p: Any, x: Any, noise: Any) -> Any:
        import jax.numpy as jnp

        y = activate("elu", conv(p["c1"], activate("elu", conv(p["c0"], x, stride=2)), stride=2))
        mean, log_spread = jnp.split(y, 2, -1)
        y = activate("elu", conv_transposed(p["t0"], mean + jnp.exp(0.5 * log_spread) * noise))
        return ((conv_transposed(p["t1"], y) - x) ** 2).mean() + _divergence(mean, log_spread)

    parameters = {
        "c0": conv_of(3, width),
        "c1": conv_of(width, 2 * width),
        "t0": conv_of(width, width),
        "t1": conv_of(width, 3),
    }
    return Net(forward, parameters, (f32(batch, side, side, 3), f32(batch, side // 4, side // 4, width)))


def _generator(*, batch: int, side: int, width: int) -> Net:
    low = side // 4

    def forward(p: Any, code: Any) -> Any:
        x = activate("relu", dense(p["d"], code)).reshape(batch, low, low, 2 * width)
        x = activate("relu", batch_norm(p["n0"], conv_transposed(p["t0"], x)))
        return activate("tanh", conv_transposed(p["t1"], x))

    parameters = {
        "d": dense_of(64, low * low * 2 * width),
        "t0": conv_of(2 * width, width, kernel=4),
        "n0": norm_of(width),
        "t1": conv_of(width, 3, kernel=4),
    }
    return Net(forward, parameters, (f32(batch, 64),))


def _discriminator(*, batch: int, side: int, width: int) -> Net:
    def forward(p: Any, real: Any, made: Any) -> Any:
        import jax.numpy as jnp

        x = activate("leaky_relu", conv(p["c0"], jnp.concatenate([real, made]), stride=2))
        x = activate("leaky_relu", batch_norm(p["n1"], conv(p["c1"], x, stride=2)))
        scores = dense(p["head"], x.mean((1, 2)))
        return activate("softplus", -scores[:batch]).mean() + activate("softplus", scores[batch:]).mean()

    parameters = {
        "c0": conv_of(3, width, kernel=4),
        "c1": conv_of(width, 2 * width, kernel=4),
        "n1": norm_of(2 * width),
        "head": dense_of(2 * width, 1),
    }
    image = f32(batch, side, side, 3)
    return Net(forward, parameters, (image, image))


def _flow(*, batch: int, width: int, hidden: int, depth: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        import jax.numpy as jnp

        total = jnp.zeros(batch, x.dtype)
        for layer in p.values():
            left, right = jnp.split(x, 2, -1)
            scale, shift = jnp.split(stack(layer, left), 2, -1)
            scale = jnp.tanh(scale)
            total += scale.sum(-1)
            x = jnp.concatenate([right * jnp.exp(scale) + shift, left], -1)
        return 0.5 * (x**2).sum(-1) - total

    half = width // 2
    return Net(forward, {f"l{place}": stack_of([half, hidden, width]) for place in range(depth)}, (f32(batch, width),))


_IMAGES = sizes("batch side width", (4, 16, 16), (2, 32, 24), (8, 20, 12), (4, 28, 20))

_MADE = sizes("batch side width", (4, 16, 16), (8, 32, 24), (24, 20, 12), (12, 28, 20), (5, 40, 32))

NETWORKS = (
    Network(
        "variational",
        "dense",
        _variational,
        sizes(
            "batch inputs width code", (64, 784, 200, 20), (32, 400, 300, 50), (100, 1000, 128, 16), (16, 600, 512, 100)
        ),
    ),
    Network("variational", "convolutional", _variational_conv, _IMAGES),
    Network("adversary", "generator", _generator, _MADE),
    Network("adversary", "discriminator", _discriminator, _MADE),
    Network(
        "flow",
        "coupling",
        _flow,
        sizes("batch width hidden depth", (64, 64, 128, 4), (600, 32, 96, 3), (100, 200, 300, 3), (1500, 20, 64, 4)),
    ),
)
