"""Transformers: encoders, causal decoders, a vision transformer, and attention in several forms."""

from typing import Any

from phasepoint.zoo.layers import (
    activate,
    attend,
    attention,
    attention_of,
    conv,
    conv_of,
    cross_entropy,
    dense,
    dense_of,
    heads_of,
    joined,
    norm,
    norm_of,
    rms_norm,
)
from phasepoint.zoo.specs import Net, Network, f32, i32, jnp, sizes


def _block_of(width: int, hidden: int) -> dict[str, Any]:
    return {
        "attention": attention_of(width),
        "n0": norm_of(width),
        "up": dense_of(width, hidden),
        "down": dense_of(hidden, width),
        "n1": norm_of(width),
    }


def _block(p: Any, x: Any, *, heads: int, causal: bool = False) -> Any:
    x = x + attention(p["attention"], norm(p["n0"], x), heads=heads, causal=causal)
    return x + dense(p["down"], activate("gelu", dense(p["up"], norm(p["n1"], x))))


def _encoder(*, batch: int, length: int, width: int, heads: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        return _block(p["b1"], _block(p["b0"], x, heads=heads), heads=heads)

    blocks = {f"b{place}": _block_of(width, 4 * width) for place in range(2)}
    return Net(forward, blocks, (f32(batch, length, width),))


def _post_normed(*, batch: int, length: int, width: int, heads: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        x = norm(p["n0"], x + attention(p["attention"], x, heads=heads))
        return norm(p["n1"], x + dense(p["down"], activate("relu", dense(p["up"], x))))

    return Net(forward, _block_of(width, 2 * width), (f32(batch, length, width),))


def _language_model(*, batch: int, length: int, width: int, heads: int, vocabulary: int) -> Net:
    def forward(p: Any, tokens: Any) -> Any:
        x = p["embedding"][tokens] + p["position"]
        x = _block(p["block"], x, heads=heads, causal=True)
        return cross_entropy((norm(p["norm"], x) @ p["embedding"].T)[:, :-1], tokens[:, 1:])

    parameters = {
        "embedding": f32(vocabulary, width),
        "position": f32(length, width),
        "block": _block_of(width, 4 * width),
        "norm": norm_of(width),
    }
    return Net(forward, parameters, (i32(batch, length),))


def _rotated(x: Any) -> Any:
    length, part = x.shape[-2:]
    angle = jnp.arange(length)[:, None] * 10000 ** (-jnp.arange(part // 2) / (part // 2))
    sine, cosine = jnp.sin(angle).astype(x.dtype), jnp.cos(angle).astype(x.dtype)
    left, right = jnp.split(x, 2, -1)
    return jnp.concatenate([left * cosine - right * sine, left * sine + right * cosine], -1)


def _rotary_decoder(*, batch: int, length: int, width: int, heads: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        y = rms_norm(p["n0"], x)
        query, key, value = (heads_of(y @ p[part], heads) for part in ("query", "key", "value"))
        x = x + joined(attend(_rotated(query), _rotated(key), value, causal=True)) @ p["out"]
        y = rms_norm(p["n1"], x)
        return x + (activate("silu", y @ p["gate"]) * (y @ p["up"])) @ p["down"]

    hidden = width * 8 // 3
    parameters = {part: f32(width, width) for part in ("query", "key", "value", "out")}
    parameters |= {"gate": f32(width, hidden), "up": f32(width, hidden), "down": f32(hidden, width)}
    return Net(forward, parameters | {"n0": norm_of(width), "n1": norm_of(width)}, (f32(batch, length, width),))


def _vision(*, batch: int, side: int, patch: int, width: int) -> Net:
    tokens = (side // patch) ** 2

    def forward(p: Any, x: Any) -> Any:
        x = conv(p["patch"], x, stride=patch, padding="VALID").reshape(batch, tokens, width) + p["position"]
        return dense(p["head"], _block(p["block"], x, heads=4).mean(1))

    parameters = {
        "patch": conv_of(3, width, kernel=patch),
        "position": f32(tokens, width),
        "block": _block_of(width, 3 * width),
        "head": dense_of(width, 100),
    }
    return Net(forward, parameters, (f32(batch, side, side, 3),))


def _multi_query(*, batch: int, length: int, width: int, heads: int) -> Net:
    part = width // heads

    def forward(p: Any, x: Any) -> Any:
        query = heads_of(x @ p["query"], heads)
        key, value = (heads_of(x @ p[name], 1) for name in ("key", "value"))
        return joined(attend(query, key.repeat(heads, 1), value.repeat(heads, 1), causal=True))

    parameters = {"query": f32(width, width), "key": f32(width, part), "value": f32(width, part)}
    return Net(forward, parameters, (f32(batch, length, width),))


def _linear(*, batch: int, length: int, width: int, heads: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        query, key = (activate("elu", heads_of(dense(p[name], x), heads)) + 1 for name in ("query", "key"))
        value = heads_of(dense(p["value"], x), heads)
        memory = jnp.einsum("bhkd,bhke->bhde", key, value)
        total = jnp.einsum("bhqd,bhd->bhq", query, key.sum(2))
        return dense(p["out"], joined(jnp.einsum("bhqd,bhde->bhqe", query, memory) / total[..., None]))

    return Net(forward, attention_of(width), (f32(batch, length, width),))


def _windowed(*, batch: int, length: int, width: int, window: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        parts = x.reshape(batch * (length // window), window, width)
        return x + attention(p["attention"], parts, heads=4).reshape(x.shape)

    return Net(forward, {"attention": attention_of(width)}, (f32(batch, length, width),))


def _biased(*, batch: int, length: int, width: int, heads: int) -> Net:
    def forward(p: Any, x: Any) -> Any:
        distance = jnp.abs(jnp.arange(length)[:, None] - jnp.arange(length))
        bias = -distance * p["slope"][:, None, None]
        query, key, value = (heads_of(dense(p[name], x), heads) for name in ("query", "key", "value"))
        return dense(p["out"], joined(attend(query, key, value, bias=bias)))

    return Net(forward, attention_of(width) | {"slope": f32(heads)}, (f32(batch, length, width),))


def _cross(*, batch: int, length: int, context: int, width: int) -> Net:
    def forward(p: Any, x: Any, memory: Any) -> Any:
        return x + attention(p["attention"], norm(p["norm"], x), heads=4, context=memory)

    parameters = {"attention": attention_of(width), "norm": norm_of(width)}
    return Net(forward, parameters, (f32(batch, length, width), f32(batch, context, width)))


_SIZES = sizes(
    "batch length width heads", (4, 32, 128, 4), (4, 100, 96, 6), (16, 48, 192, 6), (4, 160, 64, 2), (6, 64, 240, 8)
)

NETWORKS = (
    Network("encoder", "pre-norm", _encoder, _SIZES, half=(0,)),
    Network("encoder", "post-norm", _post_normed, _SIZES),
    Network(
        "encoder",
        "vision",
        _vision,
        sizes("batch side patch width", (4, 32, 4, 96), (4, 48, 6, 128), (16, 64, 16, 160), (6, 60, 10, 200)),
    ),
    Network(
        "decoder",
        "language-model",
        _language_model,
        sizes(
            "batch length width heads vocabulary",
            (4, 32, 128, 4, 1000),
            (4, 64, 96, 3, 3000),
            (16, 24, 160, 5, 500),
            (4, 128, 64, 4, 2000),
            (2, 200, 120, 6, 700),
        ),
        integer_bound="vocabulary",
        half=(2,),
    ),
    Network("decoder", "rotary", _rotary_decoder, _SIZES, half=(2,)),
    Network("attention", "multi-query", _multi_query, _SIZES),
    Network("attention", "linear", _linear, _SIZES),
    Network(
        "attention",
        "windowed",
        _windowed,
        sizes("batch length width window", (4, 128, 96, 16), (4, 240, 64, 40), (16, 96, 128, 24), (2, 512, 80, 32)),
    ),
    Network("attention", "biased", _biased, _SIZES),
    Network(
        "attention",
        "cross",
        _cross,
        sizes("batch length context width", (4, 20, 100, 128), (4, 96, 48, 200), (16, 10, 150, 96), (2, 256, 200, 64)),
    ),
)
