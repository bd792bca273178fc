"""Networks that mostly move numbers: what the zoo has none of, for `bench_proofs.py`.

Each is the part of a published network that moves, without the convolutions and products that it stands between.
"""

from typing import Any

import torch


class TemporalShift(torch.nn.Module):
    """A quarter of each picture's channels goes to the pictures before and after it (Lin, Gan, Han, ICCV 2019)."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.scales = torch.nn.ParameterList(torch.ones(1) for _ in range(blocks))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        fold = pictures.shape[2] // 8
        for scale in self.scales:
            empty = torch.zeros_like(pictures[:, :1, :fold])
            later = torch.cat([pictures[:, 1:, :fold], empty], 1)
            earlier = torch.cat([empty, pictures[:, :-1, fold : 2 * fold]], 1)
            pictures = torch.cat([later, earlier, pictures[:, :, 2 * fold :]], 2)
            pictures = torch.cat([pictures[:, :, :1] * scale, pictures[:, :, 1:]], 2)
        return pictures


class ShiftedWindows(torch.nn.Module):
    """Pictures cut into windows, and put together again, every other time shifted (Liu et al., ICCV 2021)."""

    def __init__(self, blocks: int, window: int) -> None:
        super().__init__()
        self.scales = torch.nn.ParameterList(torch.ones(1) for _ in range(blocks))
        self.window = window

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        batch, height, width, channels = picture.shape
        side = self.window
        for number, scale in enumerate(self.scales):
            shift = number % 2 * (side // 2)
            picture = torch.roll(picture, (-shift, -shift), (1, 2)) if shift else picture
            cut = picture.view(batch, height // side, side, width // side, side, channels)
            windows = cut.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, channels)
            windows[:, 0] *= scale
            back = windows.view(batch, height // side, width // side, side, side, channels)
            picture = back.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)
            picture = torch.roll(picture, (shift, shift), (1, 2)) if shift else picture
        return picture


def temporal_shift() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """The module, and one clip: 8 pictures of 64 channels."""
    return TemporalShift(blocks=4).eval(), (torch.randn(1, 8, 64, 56, 56),)


def shifted_windows() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """The module, and one picture: 112 by 112 of 96 channels."""
    return ShiftedWindows(blocks=4, window=7).eval(), (torch.randn(1, 112, 112, 96),)
