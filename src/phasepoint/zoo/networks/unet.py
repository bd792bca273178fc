"""U-shaped convolutional networks: down, up, with skips concatenated; one denoises with a time embedding."""

from typing import Any

from phasepoint.zoo.layers import (
    activate,
    attention,
    attention_of,
    conv,
    conv_of,
    conv_transposed,
    dense,
    dense_of,
    enlarge,
    group_norm,
    norm_of,
    pool,
)
from phasepoint.zoo.specs import Net, Network, f32, sizes


def _segmentation(*, batch: int, side: int, width: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        import jax.numpy as jnp

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
    import jax.numpy as jnp

    angle = 1000 * moment[:, None] * 10000 ** (-jnp.arange(width // 2) / (width // 2))
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)


def _denoise(p: Any, x: Any, moment: Any, *, width: int) -> Any:
    import jax.numpy as jnp

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
        import jax.numpy as jnp

        kept = jnp.cos(moment)[:, None, None, None]
        noisy = kept * x + jnp.sqrt(1 - kept**2) * noise
        return _denoise(p, noisy, moment, width=width) - noise

    image = f32(batch, side, side, 3)
    return Net(forward, _denoiser_of(width), (image, image, f32(batch)))


def _diffusion_step(*, batch: int, side: int, width: int) -> Net:
    def forward(p: Any, x: Any, moment: Any, fresh: Any) -> Any:
        import jax.numpy as jnp

        noise = _denoise(p, x, moment, width=width)
        kept = jnp.cos(moment)[:, None, None, None]
        clean = jnp.clip((x - jnp.sqrt(1 - kept**2) * noise) / kept, -1, 1)
        return 0.9 * clean + 0.4 * noise + 0.1 * fresh

    image = f32(batch, side, side, 3)
    return Net(forward, _denoiser_of(width), (image, f32(batch), image))


_SIZES = sizes("batch side width", (2, 16, 16), (1, 32, 24), (4, 24, 16), (2, 20, 32), (6, 16, 20))

NETWORKS = (
    Network("unet", "segmentation", _segmentation, _SIZES),
    Network("unet", "diffusion-loss", _diffusion_loss, _SIZES),
    Network("unet", "diffusion-step", _diffusion_step, _SIZES, modes=("forward",)),
)
