"""A PyTorch training job that a replay can take up at any of its checkpoints: dropout, a schedule, evaluations.

    python examples/torch_resume.py --out runs/a
    phasepoint replay run runs/a/run --phase NAME --out runs/b -- python examples/torch_resume.py --out runs/a

A checkpoint holds model, optimizer, schedule and the state of the random numbers. The loader is not in it: with
`resume=True` the loop goes through the epochs before without training, so the shuffling comes to where it was.
"""

import argparse
import itertools
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import phasepoint as pp

BATCH_SIZE = 48
TRAIN_IMAGES = 1536
EPOCH_STEPS = TRAIN_IMAGES // BATCH_SIZE


def load_data() -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Batches for training, shuffled by random numbers of their own, and for evaluation."""
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
    labels = torch.tensor(digits.target)
    train = TensorDataset(images[:TRAIN_IMAGES], labels[:TRAIN_IMAGES])
    held_out = TensorDataset(images[TRAIN_IMAGES:], labels[TRAIN_IMAGES:])
    shuffling = torch.Generator().manual_seed(0)
    return DataLoader(train, BATCH_SIZE, shuffle=True, generator=shuffling), DataLoader(held_out, BATCH_SIZE)


class Training:
    """All that training changes, beside the global random numbers that dropout draws from."""

    def __init__(self, steps: int) -> None:
        torch.manual_seed(0)
        convolutions = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()]
        self.model = nn.Sequential(*convolutions, nn.Flatten(), nn.Dropout(0.3), nn.Linear(288, 10))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        self.step = 0

    def train_step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One step of training; returns the loss."""
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.step += 1
        return loss.detach()

    @torch.no_grad()
    def eval_step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Share of a batch's images that are told right."""
        return (self.model(images).argmax(1) == labels).float().mean()

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "schedule")}
        torch.save({**parts, "step": self.step, "random": torch.get_rng_state()}, path)

    def restore(self, path: str) -> None:
        """Read a checkpoint."""
        checkpoint = torch.load(path)
        for name in ("model", "optimizer", "schedule"):
            getattr(self, name).load_state_dict(checkpoint[name])
        self.step = checkpoint["step"]
        torch.set_rng_state(checkpoint["random"])


def main(arguments: list[str] | None = None) -> Training:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the run and the checkpoints")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--checkpoint-every", type=int, default=50)
    args = parser.parse_args(arguments)
    loader, evaluation = load_data()
    training = Training(args.steps)
    folder = args.out / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    with pp.record(args.out / "run") as run:
        if run.resume is not None:
            training.restore(run.resume.checkpoint)
        for first_step in range(0, args.steps, EPOCH_STEPS):
            training.model.train()
            batches = itertools.islice(loader, args.steps - first_step)
            for images, labels in run.steps(batches, resume=True):
                loss = training.train_step(images, labels)
                run.log(loss=loss)
                if training.step % args.checkpoint_every == 0:
                    training.save(folder / f"{training.step}.pt")
            training.model.eval()
            with run.phase("eval"):
                for images, labels in run.steps(evaluation, resume=True):
                    run.log(accuracy=training.eval_step(images, labels))
    return training


if __name__ == "__main__":
    main()
