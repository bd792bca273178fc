"""Image processing: filters, resizing, edges, histograms, warping, morphology.

Signals over time without a fast Fourier transform: filters, transforms as products, wavelets, recursions.
"""

from typing import Any

from phasepoint.zoo.specs import Net, Network, f32, jax, jnp, lax, sizes


def _filter(*, batch: int, length: int, taps: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        return lax.conv_general_dilated(x[..., None], p["taps"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))

    return Net(forward, {"taps": f32(taps, 1, 4)}, (f32(batch, length),))


def _frames(x: Any, window: int, hop: int) -> Any:
    """Overlapping stretches of a signal: [..., length] → [..., frames, window]."""
    count = (x.shape[-1] - window) // hop + 1
    return x[..., jnp.arange(count)[:, None] * hop + jnp.arange(window)]


def _spectrogram(*, batch: int, length: int, window: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        angle = 2 * jnp.pi * jnp.arange(window)[:, None] * jnp.arange(window // 2) / window
        parts = _frames(x, window, window // 2) * jnp.sin(jnp.pi * jnp.arange(window) / window)
        power = (parts @ jnp.cos(angle)) ** 2 + (parts @ jnp.sin(angle)) ** 2
        return jnp.log(power @ jnp.abs(p["mel"]) + 1e-3)

    return Net(forward, {"mel": f32(window // 2, 40)}, (f32(batch, length),))


def _wavelet(*, batch: int, length: int, levels: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        details = []
        for _level in range(levels):
            even, odd = x[:, ::2], x[:, 1::2]
            details.append(jnp.where(jnp.abs(even - odd) > 0.1, even - odd, 0))
            x = (even + odd) / 2
        return x, details

    return Net(forward, {}, (f32(batch, length),))


def _autocorrelation(*, batch: int, length: int, lags: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return jnp.stack([(x[:, lag:] * x[:, : length - lag]).mean(-1) for lag in range(lags)], -1)

    return Net(forward, {}, (f32(batch, length),))


def _recursion(*, batch: int, length: int, order: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        def step(past: Any, now: Any) -> Any:
            value = now + 0.1 * past @ p["weights"]
            return jnp.concatenate([value[:, None], past[:, :-1]], 1), value

        return lax.scan(step, jnp.zeros((batch, order)), x)[1]

    return Net(forward, {"weights": f32(order)}, (f32(length, batch),))


def _modulation(*, batch: int, length: int) -> Net:
    def forward(_: Any, x: Any, pitch: Any) -> Any:
        phase = jnp.cumsum(pitch, -1)
        voice = sum(jnp.sin(harmonic * phase) / harmonic for harmonic in (1, 2, 3))
        return jnp.tanh(voice * x) * jnp.exp(-jnp.linspace(0, 3, length))

    return Net(forward, {}, (f32(batch, length), f32(batch, length)))


_SIGNALS_NETWORKS = (
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


def _along(x: Any, weights: Any, axis: int) -> Any:
    reach = len(weights) // 2
    pads = [(reach, reach) if place == axis else (0, 0) for place in range(x.ndim)]
    wide = jnp.pad(x, pads, mode="edge")
    return sum(
        weight * lax.slice_in_dim(wide, place, place + x.shape[axis], axis=axis) for place, weight in enumerate(weights)
    )


def _blur(*, batch: int, side: int, reach: int) -> Net:
    weights = [2.0 ** -abs(place) / 3 for place in range(-reach, reach + 1)]
    return Net(lambda _, x: _along(_along(x, weights, 1), weights, 2), {}, (f32(batch, side, side, 3),))


def _edges(*, batch: int, side: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        grey = x @ jnp.array([0.3, 0.6, 0.1], x.dtype)
        across = _along(_along(grey, [-1.0, 0.0, 1.0], 2), [1.0, 2.0, 1.0], 1)
        down = _along(_along(grey, [1.0, 2.0, 1.0], 2), [-1.0, 0.0, 1.0], 1)
        return jnp.sqrt(across**2 + down**2 + 1e-3), jnp.arctan2(down, across + 1e-3)

    return Net(forward, {}, (f32(batch, side, side, 3),))


def _resize(*, batch: int, side: int, target: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        return jax.image.resize(x, (batch, target, target, 3), "bilinear")

    return Net(forward, {}, (f32(batch, side, side, 3),))


def _augment(*, batch: int, side: int) -> Net:
    def forward(_: Any, x: Any, light: Any) -> Any:
        mean, spread = jnp.array([0.5, 0.4, 0.4]), jnp.array([0.2, 0.2, 0.3])
        x = jnp.clip((x - 0.5) * light[:, None, None, None] + 0.5, 0, 1)
        flipped = jnp.where(light[:, None, None, None] > 0.5, x[:, :, ::-1], x)
        return ((flipped[:, 2:-2, 2:-2] - mean) / spread).transpose(0, 3, 1, 2)

    return Net(forward, {}, (f32(batch, side, side, 3), f32(batch)))


def _warp(*, batch: int, side: int) -> Net:
    def forward(_: Any, x: Any, shift: Any) -> Any:
        grid = jnp.arange(side, dtype=jnp.float32)

        def one(image: Any, by: Any) -> Any:
            rows = jnp.clip(grid[:, None] + 3 * by[0] + 0.1 * grid, 0, side - 2)
            columns = jnp.clip(grid + 3 * by[1] + 0.1 * grid[:, None], 0, side - 2)
            row, column = jnp.floor(rows).astype(jnp.int32), jnp.floor(columns).astype(jnp.int32)
            low, left = (rows - row)[..., None], (columns - column)[..., None]
            top = image[row, column] * (1 - left) + image[row, column + 1] * left
            bottom = image[row + 1, column] * (1 - left) + image[row + 1, column + 1] * left
            return top * (1 - low) + bottom * low

        return jax.vmap(one)(x, shift)

    return Net(forward, {}, (f32(batch, side, side, 3), f32(batch, 2)))


def _morphology(*, batch: int, side: int, reach: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        window = (1, 2 * reach + 1, 2 * reach + 1)
        wide = lax.reduce_window(x, -jnp.inf, lax.max, window, (1, 1, 1), "SAME")
        return wide - lax.reduce_window(x, jnp.inf, lax.min, window, (1, 1, 1), "SAME")

    return Net(forward, {}, (f32(batch, side, side),))


def _histogram(*, batch: int, side: int, bins: int) -> Net:
    def forward(_: Any, x: Any) -> Any:
        place = jnp.clip((x * bins).astype(jnp.int32), 0, bins - 1).reshape(batch, -1)
        counts = jax.nn.one_hot(place, bins).sum(1)
        level = jnp.cumsum(counts, 1) / side**2
        return jnp.take_along_axis(level, place, 1).reshape(x.shape)

    return Net(forward, {}, (f32(batch, side, side),))


_IMAGES_SIZES = sizes("batch side", (4, 64), (6, 128), (24, 48), (3, 200), (48, 32))

_IMAGES_NETWORKS = (
    Network("image", "blur", _blur, sizes("batch side reach", (4, 64, 2), (6, 128, 3), (24, 100, 1), (3, 256, 4))),
    Network("image", "edges", _edges, _IMAGES_SIZES),
    Network(
        "image", "resize", _resize, sizes("batch side target", (4, 64, 96), (6, 200, 128), (24, 48, 100), (3, 128, 300))
    ),
    Network("image", "augment", _augment, sizes("batch side", (16, 64), (24, 100), (96, 48), (12, 224))),
    Network("image", "warp", _warp, _IMAGES_SIZES, modes=("forward",)),
    Network(
        "image",
        "morphology",
        _morphology,
        sizes("batch side reach", (2, 64, 1), (12, 96, 1), (3, 128, 2), (24, 40, 3)),
        modes=("forward",),
    ),
    Network(
        "image",
        "histogram",
        _histogram,
        sizes("batch side bins", (4, 48, 32), (6, 96, 64), (24, 64, 16), (3, 128, 40)),
        modes=("forward",),
    ),
)


NETWORKS = (*_IMAGES_NETWORKS, *_SIGNALS_NETWORKS)
