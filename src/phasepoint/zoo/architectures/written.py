"""Networks that no library defines, written after their papers: translation, recommendation, generation, speech, …

It imports torch: the catalogue imports it when one of them is built.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn.functional import leaky_relu, relu, scaled_dot_product_attention


class Gnmt(nn.Module):
    """Wu et al. 2016, half as wide: an encoder whose first layer reads both ways, a decoder that attends to it."""

    def __init__(self, vocabulary: int = 32_000, width: int = 512, layers: int = 4) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.both_ways = nn.LSTM(width, width // 2, bidirectional=True, batch_first=True)
        self.encoder = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers - 1))
        self.first = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.ModuleList(nn.LSTM(2 * width, width, batch_first=True) for _ in range(layers - 1))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source: Any, target: Any) -> Any:
        x, _ = self.both_ways(self.source(source))
        for layer in self.encoder:
            x = x + layer(x)[0]
        y, _ = self.first(self.target(target))
        context = scaled_dot_product_attention(y, x, x)
        for layer in self.decoder:
            y = y + layer(torch.cat([y, context], -1))[0]
        return self.head(y)


class LstmLanguageModel(nn.Module):
    """Zaremba et al. 2014, the medium network."""

    def __init__(self, vocabulary: int = 10_000, width: int = 650) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(vocabulary, width), nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.lstm(self.embed(tokens))[0])


class DeepSpeech2(nn.Module):
    """Amodei et al. 2016, five recurrent layers that read both ways."""

    def __init__(self, width: int = 400, letters: int = 29) -> None:
        super().__init__()
        self.front = nn.Sequential(
            *(nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20)),
            *(nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20)),
        )
        self.recurrent = nn.GRU(32 * 41, width, 5, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, letters)

    def forward(self, spectrogram: Any) -> Any:
        x = self.front(spectrogram).flatten(1, 2).transpose(1, 2)
        return self.head(self.recurrent(x)[0])


class WaveNet(nn.Module):
    """van den Oord et al. 2016: causal convolutions, each twice as dilated as the one before."""

    def __init__(self, channels: int = 64, layers: int = 20, levels: int = 256) -> None:
        super().__init__()
        self.begin = nn.Conv1d(1, channels, 1)
        dilations = [2 ** (number % 10) for number in range(layers)]
        self.dilated = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 2, dilation=far) for far in dilations)
        self.skip = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in dilations)
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, levels, 1), nn.ReLU(), nn.Conv1d(levels, levels, 1))

    def forward(self, wave: Any) -> Any:
        x, total = self.begin(wave), 0.0
        for dilated, skip in zip(self.dilated, self.skip, strict=True):
            value, gate = dilated(nn.functional.pad(x, (dilated.dilation[0], 0))).chunk(2, 1)
            y = skip(value.tanh() * gate.sigmoid())
            x, total = x + y, total + y
        return self.head(total)


class QanetBlock(nn.Module):
    """Convolutions that are separable, attention, a layer of its own for each place."""

    def __init__(self, width: int, convolutions: int, heads: int = 8) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(convolutions + 2))
        self.convolutions = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 7, padding=3, groups=width), nn.Conv1d(width, width, 1), nn.ReLU())
            for _ in range(convolutions)
        )
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        for norm, convolution in zip(self.norms, self.convolutions, strict=False):
            x = x + convolution(norm(x).transpose(1, 2)).transpose(1, 2)
        y = self.norms[-2](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.dense(self.norms[-1](x))


class Qanet(nn.Module):
    """Yu et al. 2018: an answer's begin and end in a text, without recurrence."""

    def __init__(self, vocabulary: int = 30_000, width: int = 128) -> None:
        super().__init__()
        self.embed, self.narrow = nn.Embedding(vocabulary, 300), nn.Linear(300, width)
        self.encoder = QanetBlock(width, 4)
        self.mix = nn.Linear(4 * width, width)
        self.model = nn.ModuleList(QanetBlock(width, 2) for _ in range(7))
        self.begin, self.end = nn.Linear(2 * width, 1), nn.Linear(2 * width, 1)

    def forward(self, text: Any, question: Any) -> Any:
        x, q = (self.encoder(self.narrow(self.embed(tokens))) for tokens in (text, question))
        alike = x @ q.transpose(1, 2)
        asked = alike.softmax(2) @ q
        back = alike.softmax(2) @ (alike.softmax(1).transpose(1, 2) @ x)
        x, passes = self.mix(torch.cat([x, asked, x * asked, x * back], -1)), []
        for _ in range(3):
            for block in self.model:
                x = block(x)
            passes.append(x)
        return self.begin(torch.cat(passes[:2], -1)), self.end(torch.cat(passes[::2], -1))


def layers(*widths: int, last: Sequence[Any] = ()) -> Any:
    """Dense layers with rectifiers between them."""
    made: list[Any] = []
    for place, width in enumerate(widths[1:]):
        made += [nn.Linear(widths[place], width), nn.ReLU()]
    return nn.Sequential(*(made[:-1] if last else made), *last)


class Dlrm(nn.Module):
    """Naumov et al. 2019: 26 tables, products of all pairs of their rows."""

    def __init__(self, tables: int = 26, rows: int = 20_000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.below = layers(13, 512, 256, width)
        pairs = tables * (tables + 1) // 2
        self.above = layers(pairs + width, 512, 256, 1, last=[nn.Sigmoid()])
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, dense: Any, places: Any) -> Any:
        x = self.below(dense)
        rows = [table(places[:, number : number + 1]) for number, table in enumerate(self.tables)]
        every = torch.stack([x, *rows], 1)
        products = (every @ every.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.above(torch.cat([x, products], 1))


class NeuralCollaborativeFiltering(nn.Module):
    """He et al. 2017, for a million ratings: users and things, by products and by dense layers."""

    def __init__(self, users: int = 6_040, things: int = 3_706, width: int = 64) -> None:
        super().__init__()
        self.users, self.things = nn.Embedding(users, 3 * width), nn.Embedding(things, 3 * width)
        self.width, self.dense, self.head = width, layers(4 * width, 2 * width, width, width // 2), nn.Linear(96, 1)

    def forward(self, users: Any, things: Any) -> Any:
        user, thing = self.users(users[:, 0]), self.things(things[:, 0])
        product = user[:, : self.width] * thing[:, : self.width]
        deep = self.dense(torch.cat([user[:, self.width :], thing[:, self.width :]], 1))
        return self.head(torch.cat([product, deep], 1))


class PointNet(nn.Module):
    """Qi et al. 2017, without its spatial transforms: a class from 1,024 points."""

    def __init__(self, classes: int = 40) -> None:
        super().__init__()
        widths = (3, 64, 64, 64, 128, 1024)
        parts: list[Any] = []
        for place, width in enumerate(widths[1:]):
            parts += [nn.Conv1d(widths[place], width, 1), nn.BatchNorm1d(width), nn.ReLU()]
        self.points, self.head = nn.Sequential(*parts), layers(1024, 512, 256, classes, last=[nn.Identity()])

    def forward(self, points: Any) -> Any:
        return self.head(self.points(points).amax(2))


def dcgan() -> Any:
    """Radford et al. 2016: its generator, 64 × 64 pixels."""
    widths, parts = (512, 256, 128, 64), [nn.ConvTranspose2d(100, 512, 4, bias=False)]
    for place, width in enumerate(widths):
        after = (*widths, 3)[place + 1]
        parts += [nn.BatchNorm2d(width), nn.ReLU(), nn.ConvTranspose2d(width, after, 4, 2, 1, bias=False)]
    return nn.Sequential(*parts, nn.Tanh())


class Residual(nn.Module):
    """Adds what it wraps."""

    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self.body = nn.Sequential(*parts)

    def forward(self, x: Any) -> Any:
        return x + self.body(x)


def edsr() -> Any:
    """Lim et al. 2017, its baseline: 16 residual blocks, pictures twice as wide and high."""

    def conv(width: int = 64) -> Any:
        return nn.Conv2d(64, width, 3, padding=1)

    blocks = [Residual(conv(), nn.ReLU(), conv()) for _ in range(16)]
    body = Residual(*blocks, conv())
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), body, conv(256), nn.PixelShuffle(2), nn.Conv2d(64, 3, 3, padding=1)
    )


def fsrcnn() -> Any:
    """Dong et al. 2016: pictures three times as wide and high, on phones."""
    middle: list[Any] = []
    for _ in range(4):
        middle += [nn.Conv2d(12, 12, 3, padding=1), nn.PReLU(12)]
    return nn.Sequential(
        *(nn.Conv2d(1, 56, 5, padding=2), nn.PReLU(56), nn.Conv2d(56, 12, 1), nn.PReLU(12), *middle),
        *(nn.Conv2d(12, 56, 1), nn.PReLU(56), nn.ConvTranspose2d(56, 1, 9, 3, 4, 2)),
    )


class Unet(nn.Module):
    """Ronneberger et al. 2015, half as wide, with normalisation."""

    def __init__(self, width: int = 32, levels: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(_twice(before, after) for before, after in pairwise([3, *widths]))
        pairs = list(pairwise(widths[::-1]))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(before, after, 2, 2) for before, after in pairs)
        self.up = nn.ModuleList(_twice(before, after) for before, after in pairs)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Any) -> Any:
        kept = []
        for place, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if place else x)
            kept.append(x)
        for grow, block, skip in zip(self.grow, self.up, kept[-2::-1], strict=True):
            x = block(torch.cat([grow(x), skip], 1))
        return self.head(x)


def _twice(before: int, after: int) -> Any:
    return nn.Sequential(
        *(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()),
        *(nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()),
    )


class DiffusionBlock(nn.Module):
    """A residual block that is told the time."""

    def __init__(self, before: int, after: int, told: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
        self.told = nn.Linear(told, after)
        self.second = nn.Sequential(nn.GroupNorm(8, after), nn.SiLU(), nn.Conv2d(after, after, 3, padding=1))
        self.past = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Any, told: Any) -> Any:
        return self.past(x) + self.second(self.first(x) + self.told(told)[:, :, None, None])


class DiffusionUnet(nn.Module):
    """Ho et al. 2020, for 32 × 32 pixels: two blocks at each of three sizes, attention at the smallest."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        wide, told = 2 * width, 4 * width
        self.time = nn.Sequential(nn.Linear(width, told), nn.SiLU(), nn.Linear(told, told))
        self.width, self.begin = width, nn.Conv2d(3, width, 3, padding=1)
        sizes = [(width, width), (width, wide), (wide, wide)]
        self.down = nn.ModuleList(DiffusionBlock(*pair, told) for pair in sizes)
        self.attention = nn.MultiheadAttention(wide, 4, batch_first=True)
        self.middle = DiffusionBlock(wide, wide, told)
        self.up = nn.ModuleList(
            DiffusionBlock(before + skipped, after, told)
            for before, skipped, after in ((wide, wide, wide), (wide, wide, width), (width, width, width))
        )
        self.head = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x: Any, time: Any) -> Any:
        rates = torch.exp(torch.linspace(0, -9, self.width // 2, device=x.device))
        angles = time * rates
        told = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype))
        x, kept = self.begin(x), []
        for place, block in enumerate(self.down):
            x = block(nn.functional.avg_pool2d(x, 2) if place else x, told)
            kept.append(x)
        tokens = x.flatten(2).transpose(1, 2)
        x = x + self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
        x = self.middle(x, told)
        for place, block in enumerate(self.up):
            x = block(torch.cat([x, kept.pop()], 1), told)
            x = nn.functional.interpolate(x, scale_factor=2.0) if place < 2 else x
        return self.head(x)


class GraphConvolution(nn.Module):
    """Kipf and Welling 2017, on a graph of 2,708 nodes as its citations: sums over neighbours, two layers."""

    def __init__(self, nodes: int = 2_708, edges: int = 10_556, features: int = 1_433, classes: int = 7) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, 16), nn.Linear(16, classes)
        self.register_buffer("edges", torch.randint(nodes, (2, edges)), persistent=False)

    def forward(self, x: Any) -> Any:
        return self._gather(self.second(leaky_relu(self._gather(self.first(relu(x[0]))))))

    def _gather(self, x: Any) -> Any:
        return torch.zeros_like(x).index_add_(0, self.edges[1], x[self.edges[0]])


WRITTEN: Mapping[str, Callable[[], Any]] = {
    "gnmt": Gnmt,
    "lstm-language-model": LstmLanguageModel,
    "deepspeech2": DeepSpeech2,
    "wavenet": WaveNet,
    "qanet": Qanet,
    "dlrm": Dlrm,
    "ncf": NeuralCollaborativeFiltering,
    "pointnet": PointNet,
    "dcgan": dcgan,
    "edsr": edsr,
    "fsrcnn": fsrcnn,
    "unet": Unet,
    "ddpm-unet": DiffusionUnet,
    "gcn": GraphConvolution,
}
"""By name; each makes the module."""
