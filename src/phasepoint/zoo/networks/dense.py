"""Networks of dense layers: plain ones, mixers over tokens and channels, mixtures of experts, networks of coordinates.

A mixer's every other layer works on a transposed array. Experts are all weighted, or one is chosen, or tokens are
blended into slots. Coordinates go in as sines of many frequencies; light is summed along rays.
"""

from typing import Any

from phasepoint.zoo.layers import activate, batch_norm, cross_entropy, dense, dense_of, norm, norm_of, stack, stack_of
from phasepoint.zoo.specs import Net, Network, f32, i32, jax, jnp, sizes


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


def _gated_mlp(*, batch: int, width: int, hidden: int) -> Net:
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


def _gated_mixer(*, batch: int, tokens: int, width: int, hidden: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
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


_MIXER_SIZES = sizes(
    "batch tokens width hidden", (4, 49, 96, 192), (6, 100, 128, 200), (24, 64, 80, 160), (18, 36, 200, 300)
)


def _experts_of(experts: int, width: int, hidden: int) -> dict[str, Any]:
    return {"gate": f32(width, experts), "up": f32(experts, width, hidden), "down": f32(experts, hidden, width)}


def _weighted(*, tokens: int, width: int, hidden: int, experts: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        shares = jax.nn.softmax(x @ p["gate"], -1)
        inner = activate("gelu", jnp.einsum("td,edh->teh", x, p["up"]))
        return jnp.einsum("teh,ehd,te->td", inner, p["down"], shares)

    return Net(forward, _experts_of(experts, width, hidden), (f32(tokens, width),))


def _chosen(*, tokens: int, width: int, hidden: int, experts: int) -> Net:
    room = 2 * tokens // experts

    def forward(p: Any, x: Any) -> Any:
        shares = jax.nn.softmax(x @ p["gate"], -1)
        mine = jax.nn.one_hot(jnp.argmax(shares, -1), experts)
        place = (jnp.cumsum(mine, 0) * mine - 1).max(-1).astype(jnp.int32)
        sent = mine[:, :, None] * jax.nn.one_hot(place, room)[:, None, :]
        inner = activate("relu", jnp.einsum("tec,td,edh->ech", sent, x, p["up"]))
        return jnp.einsum("tec,ech,ehd->td", sent * shares[:, :, None], inner, p["down"])

    return Net(forward, _experts_of(experts, width, hidden), (f32(tokens, width),))


def _slotted(*, tokens: int, width: int, hidden: int, experts: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        scores = x @ p["gate"]
        slots = jax.nn.softmax(scores, 0).T @ x
        inner = activate("silu", jnp.einsum("ed,edh->eh", slots, p["up"]))
        return jax.nn.softmax(scores, 1) @ jnp.einsum("eh,ehd->ed", inner, p["down"])

    return Net(forward, _experts_of(experts, width, hidden), (f32(tokens, width),))


_EXPERT_SIZES = sizes(
    "tokens width hidden experts", (128, 64, 128, 4), (400, 96, 96, 8), (128, 128, 300, 6), (600, 48, 100, 5)
)


def _waves(x: Any, count: int) -> Any:
    """Coordinates, and sines and cosines of them times powers of two."""
    angle = (x[..., None] * 2.0 ** jnp.arange(count)).reshape(*x.shape[:-1], -1)
    return jnp.concatenate([x, jnp.sin(angle), jnp.cos(angle)], -1)


def _radiance(*, rays: int, samples: int, width: int) -> Net:
    def forward(p: Any, origin: Any, direction: Any) -> Any:
        depth = jnp.linspace(0.1, 2.0, samples)
        place = origin[:, None] + depth[:, None] * direction[:, None]
        out = stack(p["layers"], _waves(place, 6))
        colour, density = activate("sigmoid", out[..., :3]), activate("softplus", out[..., 3])
        opaque = 1 - jnp.exp(-density * 0.1)
        weights = opaque * jnp.cumprod(1 - opaque + 1e-3, 1)
        return (weights[..., None] * colour).sum(1)

    parameters = {"layers": stack_of([39, width, width, 4])}
    return Net(forward, parameters, (f32(rays, 3), f32(rays, 3)))


def _sines(*, points: int, width: int, depth: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        for layer in p.values():
            x = jnp.sin(30 * dense(layer, x))
        return x

    widths = [3, *[width] * depth]
    layers = {f"l{place}": dense_of(widths[place], widths[place + 1]) for place in range(depth)}
    return Net(forward, layers, (f32(points, 3),))


def _equation_residual(*, points: int, width: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        def value(place: Any) -> Any:
            return stack(p["layers"], place, act="tanh")[0]

        def curved(place: Any) -> Any:
            return jax.jvp(jax.grad(value), (place,), (place,))[1].sum()

        return jax.vmap(curved)(x) - jax.vmap(value)(x)

    return Net(forward, {"layers": stack_of([2, width, width, 1])}, (f32(points, 2),))


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
        _gated_mlp,
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
    Network("mixer", "plain", _mixer, _MIXER_SIZES),
    Network("mixer", "gated", _gated_mixer, _MIXER_SIZES),
    Network("experts", "weighted", _weighted, _EXPERT_SIZES),
    Network("experts", "chosen", _chosen, _EXPERT_SIZES),
    Network("experts", "slotted", _slotted, _EXPERT_SIZES),
    Network(
        "field",
        "radiance",
        _radiance,
        sizes("rays samples width", (64, 32, 64), (100, 24, 96), (200, 16, 48), (48, 64, 80)),
    ),
    Network(
        "field",
        "sines",
        _sines,
        sizes("points width depth", (1000, 64, 3), (3000, 48, 2), (600, 128, 3), (2000, 100, 2)),
    ),
    Network(
        "field",
        "equation-residual",
        _equation_residual,
        sizes("points width", (500, 32), (1000, 48), (2000, 20), (300, 100)),
    ),
)
