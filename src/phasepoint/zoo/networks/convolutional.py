"""Convolutional networks of several designs: plain, residual, dense, inception, separable, grouped, over time."""

from typing import Any

from phasepoint.zoo.layers import (
    activate,
    batch_norm,
    conv,
    conv_of,
    cross_entropy,
    dense,
    dense_of,
    group_norm,
    norm_of,
    pool,
)
from phasepoint.zoo.specs import Net, Network, f32, i32, jnp, sizes


def _plain(*, batch: int, side: int, width: int, classes: int) -> Net:
    def forward(p: Any, x: Any, y: Any) -> Any:
        for name in ("c0", "c1", "c2"):
            x = pool(activate("relu", conv(p[name], x)))
        return cross_entropy(dense(p["head"], x.mean((1, 2))), y)

    widths = (3, width, width * 2, width * 2)
    layers: dict[str, Any] = {f"c{place}": conv_of(widths[place], widths[place + 1]) for place in range(3)}
    layers["head"] = dense_of(width * 2, classes)
    return Net(forward, layers, (f32(batch, side, side, 3), i32(batch)))


def _strided(*, batch: int, side: int, width: int, kernel: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        x = activate("leaky_relu", conv(p["c0"], x, stride=2))
        x = activate("leaky_relu", conv(p["c1"], x, stride=2))
        return conv(p["c2"], x)

    layers = {
        "c0": conv_of(3, width, kernel=kernel),
        "c1": conv_of(width, width * 2, kernel=kernel),
        "c2": conv_of(width * 2, width, kernel=1),
    }
    return Net(forward, layers, (f32(batch, side, side, 3),))


def _residual(*, batch: int, side: int, width: int, depth: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        x = conv(p["stem"], x)
        for place in range(depth):
            block = p[f"b{place}"]
            y = activate("relu", batch_norm(block["n0"], conv(block["c0"], x)))
            x = activate("relu", x + batch_norm(block["n1"], conv(block["c1"], y)))
        return x.mean((1, 2))

    layers: dict[str, Any] = {
        f"b{place}": {
            "c0": conv_of(width, width),
            "n0": norm_of(width),
            "c1": conv_of(width, width),
            "n1": norm_of(width),
        }
        for place in range(depth)
    }
    layers["stem"] = conv_of(3, width)
    return Net(forward, layers, (f32(batch, side, side, 3),))


def _bottleneck(*, batch: int, side: int, width: int, squeeze: int) -> Net:
    narrow = width // squeeze

    def forward(p: Any, x: Any) -> Any:
        y = activate("relu", group_norm(p["n0"], conv(p["c0"], x), groups=4))
        y = activate("relu", group_norm(p["n1"], conv(p["c1"], y), groups=4))
        return activate("relu", x + conv(p["c2"], y))

    layers = {
        "c0": conv_of(width, narrow, kernel=1),
        "n0": norm_of(narrow),
        "c1": conv_of(narrow, narrow),
        "n1": norm_of(narrow),
        "c2": conv_of(narrow, width, kernel=1),
    }
    return Net(forward, layers, (f32(batch, side, side, width),))


def _densely_connected(*, batch: int, side: int, growth: int, depth: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        for layer in p.values():
            x = jnp.concatenate([x, conv(layer["conv"], activate("relu", batch_norm(layer["norm"], x)))], -1)
        return pool(x, kind="mean")

    layers = {
        f"l{place}": {"norm": norm_of(growth * (place + 1)), "conv": conv_of(growth * (place + 1), growth)}
        for place in range(depth)
    }
    return Net(forward, layers, (f32(batch, side, side, growth),))


def _inception(*, batch: int, side: int, inputs: int, width: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        pooled = pool(x, window=3, stride=1, padding="SAME")
        branches = [conv(p["c1"], x), conv(p["c3"], x), conv(p["c5"], x), conv(p["cp"], pooled)]
        return activate("relu", jnp.concatenate(branches, -1))

    layers = {f"c{kernel}": conv_of(inputs, width, kernel=kernel) for kernel in (1, 3, 5)}
    layers["cp"] = conv_of(inputs, width // 2, kernel=1)
    return Net(forward, layers, (f32(batch, side, side, inputs),))


def _separable(*, batch: int, side: int, width: int, depth: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        for layer in p.values():
            x = activate("relu6", batch_norm(layer["n0"], conv(layer["depth"], x, groups=width)))
            x = activate("relu6", batch_norm(layer["n1"], conv(layer["point"], x)))
        return x.mean((1, 2))

    layers = {
        f"l{place}": {
            "depth": conv_of(1, width),
            "n0": norm_of(width),
            "point": conv_of(width, width, kernel=1),
            "n1": norm_of(width),
        }
        for place in range(depth)
    }
    return Net(forward, layers, (f32(batch, side, side, width),))


def _inverted(*, batch: int, side: int, width: int, expand: int) -> Net:
    wide = width * expand

    def forward(p: Any, x: Any) -> Any:
        y = activate("silu", conv(p["up"], x))
        y = activate("silu", conv(p["depth"], y, groups=wide))
        weight = activate("sigmoid", dense(p["excite"], activate("relu", dense(p["squeeze"], y.mean((1, 2))))))
        return x + conv(p["down"], y * weight[:, None, None, :])

    layers = {
        "up": conv_of(width, wide, kernel=1),
        "depth": conv_of(1, wide),
        "squeeze": dense_of(wide, width // 4),
        "excite": dense_of(width // 4, wide),
        "down": conv_of(wide, width, kernel=1),
    }
    return Net(forward, layers, (f32(batch, side, side, width),))


def _grouped(*, batch: int, side: int, width: int, groups: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        y = activate("relu", conv(p["c0"], x))
        y = activate("relu", conv(p["c1"], y, groups=groups))
        return activate("relu", x + conv(p["c2"], y))

    layers = {
        "c0": conv_of(width, width, kernel=1),
        "c1": conv_of(width // groups, width),
        "c2": conv_of(width, width, kernel=1),
    }
    return Net(forward, layers, (f32(batch, side, side, width),))


def _over_time(*, batch: int, length: int, width: int, depth: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        for place, layer in enumerate(p.values()):
            step = 2**place
            signal = conv(layer["filter"], x, dilation=step, padding=[(2 * step, 0)])
            gate = conv(layer["gate"], x, dilation=step, padding=[(2 * step, 0)])
            x = x + conv(layer["out"], activate("sigmoid", gate) * activate("tanh", signal))
        return x

    layers = {
        f"l{place}": {
            "filter": conv_of(width, width, rank=1),
            "gate": conv_of(width, width, rank=1),
            "out": conv_of(width, width, kernel=1, rank=1),
        }
        for place in range(depth)
    }
    return Net(forward, layers, (f32(batch, length, width),))


def _text(*, batch: int, length: int, vocabulary: int, width: int) -> Net:
    def forward(p: Any, tokens: Any) -> Any:
        x = p["embedding"][tokens]
        return dense(
            p["head"], jnp.concatenate([activate("relu", conv(p[name], x)).max(1) for name in ("c3", "c4", "c5")], -1)
        )

    layers: dict[str, Any] = {f"c{kernel}": conv_of(width, width, kernel=kernel, rank=1) for kernel in (3, 4, 5)}
    layers |= {"embedding": f32(vocabulary, width), "head": dense_of(3 * width, 20)}
    return Net(forward, layers, (i32(batch, length),))


NETWORKS = (
    Network(
        "convnet",
        "plain",
        _plain,
        sizes(
            "batch side width classes",
            (4, 32, 16, 10),
            (8, 28, 24, 10),
            (16, 24, 32, 100),
            (6, 48, 20, 50),
            (4, 64, 12, 10),
        ),
        integer_bound="classes",
    ),
    Network(
        "convnet",
        "strided",
        _strided,
        sizes(
            "batch side width kernel", (4, 32, 24, 3), (8, 40, 16, 5), (4, 64, 32, 3), (12, 28, 20, 7), (2, 96, 16, 5)
        ),
    ),
    Network(
        "resnet",
        "basic",
        _residual,
        sizes(
            "batch side width depth", (4, 16, 32, 2), (8, 20, 24, 1), (2, 32, 32, 2), (6, 14, 48, 1), (10, 12, 40, 2)
        ),
        half=(0,),
    ),
    Network(
        "resnet",
        "bottleneck",
        _bottleneck,
        sizes(
            "batch side width squeeze",
            (4, 16, 128, 4),
            (8, 14, 96, 2),
            (2, 28, 160, 4),
            (6, 20, 192, 4),
            (12, 8, 256, 4),
        ),
    ),
    Network(
        "resnet",
        "densely-connected",
        _densely_connected,
        sizes("batch side growth depth", (4, 16, 12, 4), (8, 20, 16, 3), (2, 32, 24, 3), (6, 24, 10, 4)),
    ),
    Network(
        "inception",
        "block",
        _inception,
        sizes("batch side inputs width", (4, 14, 48, 24), (2, 28, 32, 16), (8, 12, 64, 40), (6, 20, 24, 20)),
    ),
    Network(
        "mobile",
        "separable",
        _separable,
        sizes("batch side width depth", (4, 16, 32, 2), (2, 28, 48, 2), (8, 14, 64, 1), (6, 20, 24, 2)),
    ),
    Network(
        "mobile",
        "inverted",
        _inverted,
        sizes("batch side width expand", (4, 14, 24, 4), (2, 28, 16, 6), (8, 10, 40, 4), (6, 16, 32, 3)),
    ),
    Network(
        "mobile",
        "grouped",
        _grouped,
        sizes("batch side width groups", (2, 12, 64, 4), (1, 14, 48, 8), (3, 7, 80, 10), (3, 10, 40, 5)),
    ),
    Network(
        "temporal",
        "dilated",
        _over_time,
        sizes("batch length width depth", (4, 128, 32, 3), (8, 200, 24, 2), (2, 500, 48, 2), (16, 96, 40, 2)),
    ),
    Network(
        "temporal",
        "text",
        _text,
        sizes(
            "batch length vocabulary width",
            (8, 64, 2000, 48),
            (16, 40, 5000, 64),
            (32, 100, 1000, 32),
            (4, 200, 3000, 96),
        ),
        integer_bound="vocabulary",
    ),
)
