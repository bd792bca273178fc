"""The models of `benchmarks/leveled.py`: each is a chain of stages, so that a stopwatch fits between them."""

from collections.abc import Callable
from typing import Any


def torch_models() -> dict[str, Callable[[], tuple[list[Any], Any]]]:
    """Name → makes (stages, input); random weights, evaluation mode."""
    return {
        "resnet": _resnet,
        "transformer": _transformer,
        "lstm": _lstm,
        "mixer": _mixer,
        "mobilenet": _mobilenet,
    }


def _resnet() -> tuple[list[Any], Any]:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.short = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            out = torch.relu(self.bn1(self.conv1(x)))
            return torch.relu(self.bn2(self.conv2(out)) + self.short(x))

    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    bodies = [
        nn.Sequential(Block(inputs, outputs, stride), Block(outputs, outputs, 1))
        for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2))
    ]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return [stem, *bodies, head], torch.randn(4, 3, 32, 32)


def _transformer() -> tuple[list[Any], Any]:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(self.act(self.up(self.norm2(x))))

    blocks = [Block(128) for _ in range(4)]
    return [nn.Embedding(1000, 128), *blocks, nn.Linear(128, 1000)], torch.randint(0, 1000, (2, 48))


def _lstm() -> tuple[list[Any], Any]:
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.lstm, self.norm = nn.LSTM(inputs, outputs, batch_first=True), nn.LayerNorm(outputs)

        def forward(self, x: Any) -> Any:
            return self.norm(self.lstm(x)[0])

    return [nn.Embedding(1000, 64), Layer(64, 128), Layer(128, 128), nn.Linear(128, 1000)], torch.randint(
        0, 1000, (4, 32)
    )


def _mixer() -> tuple[list[Any], Any]:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, tokens: int, width: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
            self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norm2(x))

    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 96, 4, 4)

        def forward(self, x: Any) -> Any:
            return self.conv(x).flatten(2).transpose(1, 2)

    return [Patches(), *(Block(64, 96) for _ in range(4)), nn.Linear(96, 10)], torch.randn(4, 3, 32, 32)


def _mobilenet() -> tuple[list[Any], Any]:
    import torch
    from torch import nn

    def separable(inputs: int, outputs: int, stride: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            nn.ReLU6(),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU6(),
        )

    shapes = ((16, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2))
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
    bodies = [nn.Sequential(separable(*shapes[i]), separable(*shapes[i + 1])) for i in (0, 2, 4)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    return [stem, *bodies, head], torch.randn(2, 3, 64, 64)


def jax_models() -> dict[str, Callable[[], tuple[list[Any], Any]]]:
    """Name → makes (flax stages, input)."""
    return {"flax cnn": _flax_cnn, "flax transformer": _flax_transformer}


def _flax_cnn() -> tuple[list[Any], Any]:
    import jax
    from flax import linen as nn

    class Stage(nn.Module):
        width: int
        stride: int

        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Conv(self.width, (3, 3), strides=self.stride)(x))
            return nn.relu(nn.Conv(self.width, (3, 3))(x))

    class Head(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(10)(nn.relu(nn.Dense(256)(x.reshape((x.shape[0], -1)))))

    stages = [Stage(16, 1), Stage(32, 2), Stage(64, 2), Head()]
    return stages, jax.random.normal(jax.random.key(0), (8, 32, 32, 3))


def _flax_transformer() -> tuple[list[Any], Any]:
    import jax
    from flax import linen as nn

    class Embed(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Embed(1000, 128)(x)

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x))
            return x + nn.Dense(128)(nn.gelu(nn.Dense(512)(nn.LayerNorm()(x))))

    class Head(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(1000)(x)

    stages = [Embed(), *(Block() for _ in range(4)), Head()]
    return stages, jax.random.randint(jax.random.key(0), (4, 64), 0, 1000)
