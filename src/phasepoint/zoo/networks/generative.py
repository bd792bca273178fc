"""Networks that make data: variational autoencoders, adversaries, flows, diffusion.

U-shaped convolutional networks go down and up, with skips concatenated; one denoises with a time embedding.
"""

from typing import Any

from phasepoint.zoo.layers import (
    activate,
    attention,
    attention_of,
    batch_norm,
    conv,
    conv_of,
    conv_transposed,
    dense,
    dense_of,
    enlarge,
    group_norm,
    norm_of,
    pool,
    stack,
    stack_of,
)
from phasepoint.zoo.specs import Net, Network, f32, jnp, sizes


def _divergence(mean: Any, log_spread: Any) -> Any:
    return 0.5 * (jnp.exp(log_spread) + mean**2 - 1 - log_spread).mean()


def _variational(*, batch: int, inputs: int, width: int, code: int) -> Net:
    def forward(p: Any, x: Any, noise: Any) -> Any:
        mean, log_spread = jnp.split(stack(p["encoder"], x), 2, -1)
        back = stack(p["decoder"], mean + jnp.exp(0.5 * log_spread) * noise)
        error = jnp.maximum(back, 0) - back * x + jnp.log1p(jnp.exp(-jnp.abs(back)))
        return error.mean() + _divergence(mean, log_spread)

    parameters = {"encoder": stack_of([inputs, width, 2 * code]), "decoder": stack_of([code, width, inputs])}
    return Net(forward, parameters, (f32(batch, inputs), f32(batch, code)))


def _variational_conv(*, batch: int, side: int, width: int) -> Net:
    def forward(p: Any, x: Any, noise: Any) -> Any:
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


def _segmentation(*, batch: int, side: int, width: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        first = activate("relu", conv(p["d0"], x))
        second = activate("relu", conv(p["d1"], pool(first)))
        low = activate("relu", conv(p["d2"], pool(second)))
        up = activate("relu", conv(p["u1"], jnp.concatenate([enlarge(low), second], -1)))
        return conv(p["u0"], jnp.concatenate([enlarge(up), first], -1))

    parameters = {
        "d0": conv_of(3, width),
        "d1": conv_of(width, 2 * width),
        "d2": conv_of(2 * width, 4 * width),
        "u1": conv_of(6 * width, 2 * width),
        "u0": conv_of(3 * width, 4),
    }
    return Net(forward, parameters, (f32(batch, side, side, 3),))


def _time_embedding(moment: Any, width: int) -> Any:
    """Sines and cosines of a moment at frequencies from 1000 down to 0.1."""
    angle = 1000 * moment[:, None] * 10000 ** (-jnp.arange(width // 2) / (width // 2))
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)


def _denoise(p: Any, x: Any, moment: Any, *, width: int) -> Any:
    embedded = activate("silu", dense(p["time"], _time_embedding(moment, width)))
    first = conv(p["d0"], x)
    first = first + conv(p["r0"], activate("silu", group_norm(p["n0"], first, groups=4)))
    low = conv(p["d1"], first, stride=2) + dense(p["shift"], embedded)[:, None, None, :]
    low = low + conv(p["r1"], activate("silu", group_norm(p["n1"], low, groups=4)))
    tokens = low.reshape(low.shape[0], -1, low.shape[-1])
    low = low + attention(p["attention"], tokens, heads=2).reshape(low.shape)
    return conv(p["out"], jnp.concatenate([conv_transposed(p["up"], low), first], -1))


def _denoiser_of(width: int) -> dict[str, Any]:
    return {
        "time": dense_of(width, 2 * width),
        "shift": dense_of(2 * width, 2 * width),
        "d0": conv_of(3, width),
        "n0": norm_of(width),
        "r0": conv_of(width, width),
        "d1": conv_of(width, 2 * width),
        "n1": norm_of(2 * width),
        "r1": conv_of(2 * width, 2 * width),
        "attention": attention_of(2 * width),
        "up": conv_of(2 * width, width, kernel=4),
        "out": conv_of(2 * width, 3),
    }


def _diffusion_loss(*, batch: int, side: int, width: int) -> Net:
    def forward(p: Any, x: Any, noise: Any, moment: Any) -> Any:
        kept = jnp.cos(moment)[:, None, None, None]
        noisy = kept * x + jnp.sqrt(1 - kept**2) * noise
        return _denoise(p, noisy, moment, width=width) - noise

    image = f32(batch, side, side, 3)
    return Net(forward, _denoiser_of(width), (image, image, f32(batch)))


def _diffusion_step(*, batch: int, side: int, width: int) -> Net:
    def forward(p: Any, x: Any, moment: Any, fresh: Any) -> Any:
        noise = _denoise(p, x, moment, width=width)
        kept = jnp.cos(moment)[:, None, None, None]
        clean = jnp.clip((x - jnp.sqrt(1 - kept**2) * noise) / kept, -1, 1)
        return 0.9 * clean + 0.4 * noise + 0.1 * fresh

    image = f32(batch, side, side, 3)
    return Net(forward, _denoiser_of(width), (image, f32(batch), image))


_UNET_SIZES = sizes("batch side width", (2, 16, 16), (1, 32, 24), (4, 24, 16), (2, 20, 32), (6, 16, 20))

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
    Network("unet", "segmentation", _segmentation, _UNET_SIZES),
    Network("unet", "diffusion-loss", _diffusion_loss, _UNET_SIZES),
    Network("unet", "diffusion-step", _diffusion_step, _UNET_SIZES, modes=("forward",)),
)
