"""A training loop that waits for its loader: pictures in compressed files, unpacked and turned over one by one.

    python examples/torch_slow_loader.py runs/pictures                                # tuned while it runs
    PHASEPOINT_TUNE=off python examples/torch_slow_loader.py runs/pictures            # as written

The whole way from the finding to its end: docs/closing-the-loop.md. Needs PyTorch: pip install 'phasepoint[torch]'.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import phasepoint as pp


class Pictures(Dataset):
    """Files of one picture each, 96 × 96, written when they are first needed."""

    def __init__(self, folder: Path, count: int) -> None:
        self.files = [folder / f"{number:05d}.npz" for number in range(count)]
        folder.mkdir(parents=True, exist_ok=True)
        chance = np.random.default_rng(0)
        for number, file in enumerate(self.files):
            picture = chance.integers(0, 60, (3, 96, 96), np.uint8)
            if not file.exists():
                np.savez_compressed(file, picture=picture + np.uint8(number % 10), label=number % 10)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with np.load(self.files[index]) as stored:
            picture, label = stored["picture"].astype(np.float32) / 255, int(stored["label"])
        if index % 2:
            picture = picture[:, :, ::-1]
        spread = picture.std(axis=(1, 2), keepdims=True)
        return torch.from_numpy((picture - picture.mean(axis=(1, 2), keepdims=True)) / spread), label


def main() -> None:
    """Train, and record it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="where the recording goes")
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--budget", type=float, default=0.05, help="part of the job's time that recording may cost")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Pictures(Path(tempfile.gettempdir()) / "phasepoint-pictures", args.pictures)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(1024, 10),
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    with pp.record(args.run, budget=args.budget) as run:
        loader = pp.tune.loader(lambda **knobs: DataLoader(data, batch_size=16, shuffle=True, **knobs), run=run)
        for _ in range(args.epochs):
            for pictures, labels in run.steps(loader):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(net(pictures), labels)
                loss.backward()
                optimizer.step()
                run.log(loss=loss.item())


if __name__ == "__main__":
    main()
