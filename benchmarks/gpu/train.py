"""A training script as a user has one: recorded, saving checkpoints, resuming where a replay asks it to.

    python benchmarks/gpu/train.py --out RUN --folder CHECKPOINTS --steps 400 --device cuda [--change bf16]

Without a change it trains a transformer in f32 at the smaller batch, eagerly. A changed job reads the unchanged one's
checkpoints.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.fastforward_change_jobs import in_turn, torch_training
from benchmarks.fastforward_change_jobs import train as train_job
from benchmarks.gpu.jobs import LARGE, SMALL, torch_batches, torch_loss, torch_transformer

CHANGES = ("none", "bf16", "batch", "compile")
CHECKPOINTS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--change", choices=CHANGES, default="none")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--budget", type=float, default=0.05)
    train(parser.parse_args())


def train(args: argparse.Namespace) -> None:
    import torch

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_cudnn_sdp(False)  # its backward pass gives other bits each time
    sizes = SMALL if args.small else replace(LARGE, layers=4, rows=8)
    if args.change == "batch":
        sizes = replace(sizes, rows=2 * sizes.rows)
    model = torch_transformer(sizes).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=args.device == "cuda")
    pool = [tuple(part.to(args.device) for part in batch) for batch in torch_batches("transformer", sizes)]
    forward = torch.compile(model) if args.change == "compile" else model

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.change == "bf16"):
            loss = torch_loss(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    args.folder.mkdir(parents=True, exist_ok=True)
    training = torch_training(model, optimizer, lambda batch: step(*batch), in_turn(pool))
    train_job(training, args.out, str(args.folder), args.steps, budget=args.budget, checkpoints=CHECKPOINTS)


if __name__ == "__main__":
    main()
