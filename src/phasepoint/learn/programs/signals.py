"""Signals over time without a fast Fourier transform: filters, transforms as products, wavelets, recursions."""

from typing import Any

from phasepoint.learn.programs.shapes import f32
from phasepoint.learn.programs.specs import Net, Network, sizes


def _filter(*, batch: int, length: int, taps: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        from jax import lax

        return lax.conv_general_dilated(x[..., None], p["taps"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))

    return Net(forward, {"taps": f32(taps, 1, 4)}, (f32(batch, length),))


def _frames(x: Any, window: int, hop: int) -> Any:
    import jax.numpy as jnp

    count = (x.shape[-1] - window) // hop + 1
    return x[..., jnp.arange(count)[:, None] * hop + jnp.arange(window)]


def _spectrogram(*, batch: int, length: int, window: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        import jax.numpy as jnp

        angle = 2 * jnp.pi * jnp.arange(window)[:, None] * jnp.arange(window // 2) / window
        parts = _frames(x, window, window // 2) * jnp.sin(jnp.pi * jnp.arange(window) / window)
        power = (parts @ jnp.cos(angle)) ** 2 + (parts @ jnp.sin(angle)) ** 2
        return jnp.log(power @ jnp.abs(p["mel"]) + 1e-3)

    return Net(forward, {"mel": f32(window // 2, 40)}, (f32(batch, length),))


def _wavelet(*, batch: int, length: int, levels: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        import jax.numpy as jnp

        details = []
        for _level in range(levels):
            even, odd = x[:, ::2], x[:, 1::2]
            details.append(jnp.where(jnp.abs(even - odd) > 0.1, even - odd, 0))
            x = (even + odd) / 2
        return x, details

    return Net(forward, {}, (f32(batch, length),))


def _autocorrelation(*, batch: int, length: int, lags: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        import jax.numpy as jnp

        x = x - x.mean(-1, keepdims=True)
        return jnp.stack([(x[:, lag:] * x[:, : length - lag]).mean(-1) for lag in range(lags)], -1)

    return Net(forward, {}, (f32(batch, length),))


def _recursion(*, batch: int, length: int, order: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        import jax.numpy as jnp
        from jax import lax

        def step(past: Any, now: Any) -> Any:
            value = now + 0.1 * past @ p["weights"]
            return jnp.concatenate([value[:, None], past[:, :-1]], 1), value

        return lax.scan(step, jnp.zeros((batch, order)), x)[1]

    return Net(forward, {"weights": f32(order)}, (f32(length, batch),))


def _modulation(*, batch: int, length: int) -> Net:
    def forward(_: Any, x: Any, pitch: Any) -> Any:
        import jax.numpy as jnp

        phase = jnp.cumsum(pitch, -1)
        voice = sum(jnp.sin(harmonic * phase) / harmonic for harmonic in (1, 2, 3))
        return jnp.tanh(voice * x) * jnp.exp(-jnp.linspace(0, 3, length))

    return Net(forward, {}, (f32(batch, length), f32(batch, length)))


NETWORKS = (
    Network(
        "signal",
        "filter",
        _filter,
        sizes("batch length taps", (8, 4000, 32), (48, 1000, 64), (6, 16000, 16), (96, 2000, 9)),
    ),
    Network(
        "signal",
        "spectrogram",
        _spectrogram,
        sizes("batch length window", (4, 8000, 256), (24, 4000, 200), (6, 16000, 400), (48, 3000, 100)),
    ),
    Network(
        "signal",
        "wavelet",
        _wavelet,
        sizes("batch length levels", (16, 4096, 4), (192, 1600, 5), (12, 48000, 3), (300, 960, 5)),
    ),
    Network(
        "signal",
        "autocorrelation",
        _autocorrelation,
        sizes("batch length lags", (16, 2000, 12), (192, 600, 8), (12, 12000, 16), (600, 300, 10)),
    ),
    Network(
        "signal",
        "recursion",
        _recursion,
        sizes("batch length order", (64, 60, 4), (600, 40, 8), (1500, 30, 6), (300, 100, 12)),
    ),
    Network("signal", "modulation", _modulation, sizes("batch length", (8, 4000), (96, 1000), (12, 16000), (192, 640))),
)
