"""Networks of dense layers."""

from typing import Any

from phasepoint.zoo.layers import activate, batch_norm, cross_entropy, dense, dense_of, norm, norm_of, stack, stack_of
from phasepoint.zoo.specs import Net, Network, f32, i32, sizes


def _plain(*, batch: int, width: int, depth: int, act: str) -> Net:
    return Net(
        lambda p, x: stack(p["layers"], x, act=act), {"layers": stack_of([width] * (depth + 1))}, (f32(batch, width),)
    )


def _classifier(*, batch: int, inputs: int, width: int, classes: int) -> Net:
    layers = stack_of([inputs, width, width // 2, classes])
    return Net(
        lambda p, x, y: cross_entropy(stack(p["layers"], x), y), {"layers": layers}, (f32(batch, inputs), i32(batch))
    )


def _residual(*, batch: int, width: int, hidden: int, depth: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        for block in p.values():
            x = x + dense(block["down"], activate("gelu", dense(block["up"], norm(block["norm"], x))))
        return x

    blocks = {
        f"b{place}": {"norm": norm_of(width), "up": dense_of(width, hidden), "down": dense_of(hidden, width)}
        for place in range(depth)
    }
    return Net(forward, blocks, (f32(batch, width),))


def _gated(*, batch: int, width: int, hidden: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        return dense(p["down"], activate("silu", dense(p["gate"], x)) * dense(p["up"], x))

    layers = {"gate": dense_of(width, hidden), "up": dense_of(width, hidden), "down": dense_of(hidden, width)}
    return Net(forward, layers, (f32(batch, width),))


def _batch_normed(*, batch: int, width: int, depth: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        for layer in p.values():
            x = activate("relu", batch_norm(layer["norm"], dense(layer["dense"], x)))
        return x

    layers = {f"l{place}": {"dense": dense_of(width, width), "norm": norm_of(width)} for place in range(depth)}
    return Net(forward, layers, (f32(batch, width),))


def _autoencoder(*, batch: int, inputs: int, code: int) -> Net:
    middle = (inputs + code) // 2
    layers = stack_of([inputs, middle, code, middle, inputs])

    def forward(p: Any, x: Any) -> Any:
        return stack(p["layers"], x, act="elu") - x

    return Net(forward, {"layers": layers}, (f32(batch, inputs),))


def _siamese(*, batch: int, inputs: int, width: int) -> Net:
    def forward(p: Any, left: Any, right: Any) -> Any:
        first, second = stack(p["layers"], left, act="tanh"), stack(p["layers"], right, act="tanh")
        return ((first - second) ** 2).sum(-1)

    return Net(forward, {"layers": stack_of([inputs, width, width])}, (f32(batch, inputs), f32(batch, inputs)))


_PLAIN = sizes(
    "batch width depth", (8, 96, 3), (64, 200, 4), (128, 384, 3), (256, 300, 2), (80, 640, 2), (192, 1000, 2)
)
_WIDE = sizes("batch width depth", (12, 128, 4), (160, 250, 3), (256, 512, 2), (96, 768, 2))

NETWORKS = (
    Network("mlp", "relu", _plain, _PLAIN, options={"act": "relu"}, half=(1, 3)),
    Network("mlp", "tanh", _plain, _WIDE, options={"act": "tanh"}),
    Network("mlp", "gelu", _plain, _WIDE, options={"act": "gelu"}, half=(2,)),
    Network("mlp", "softplus", _plain, _WIDE[:3], options={"act": "softplus"}),
    Network(
        "mlp",
        "classifier",
        _classifier,
        sizes(
            "batch inputs width classes",
            (32, 784, 128, 10),
            (256, 300, 200, 100),
            (400, 512, 640, 50),
            (64, 1000, 96, 500),
        ),
        integer_bound="classes",
    ),
    Network(
        "mlp",
        "residual",
        _residual,
        sizes("batch width hidden depth", (16, 128, 256, 3), (256, 200, 400, 2), (128, 320, 960, 2), (512, 96, 384, 3)),
        half=(1,),
    ),
    Network(
        "mlp",
        "gated",
        _gated,
        sizes("batch width hidden", (16, 256, 512), (192, 300, 800), (512, 192, 384), (800, 160, 640)),
    ),
    Network("mlp", "batch-norm", _batch_normed, _WIDE),
    Network(
        "mlp",
        "autoencoder",
        _autoencoder,
        sizes("batch inputs code", (32, 784, 32), (256, 400, 50), (400, 256, 16), (32, 1024, 128)),
    ),
    Network(
        "mlp",
        "siamese",
        _siamese,
        sizes("batch inputs width", (32, 200, 100), (256, 384, 256), (96, 600, 300), (512, 128, 64)),
    ),
)
