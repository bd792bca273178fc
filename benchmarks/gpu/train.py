"""A training script as a user has one: recorded, saving checkpoints, resuming where a replay asks it to.

    python benchmarks/gpu/train.py --out RUN --folder CHECKPOINTS --steps 400 --device cuda [--change bf16]

Without a change it trains a transformer in f32 at the smaller batch, eagerly. A changed job reads the unchanged one's
checkpoints.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu.jobs import LARGE, POOL, SMALL, torch_batches, torch_loss, torch_transformer

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

    from phasepoint.recorder import record

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
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
    every = max(args.steps // CHECKPOINTS, 1)
    with record(args.out, budget=args.budget, framework="torch") as run:
        first = 0
        if run.resume is not None:
            first = run.resume.first_step
            if run.resume.checkpoint is not None:
                kept = torch.load(run.resume.checkpoint, map_location=args.device)
                model.load_state_dict(kept["model"])
                optimizer.load_state_dict(kept["optimizer"])
        for number, batch in enumerate(run.steps(_batches(pool, first, args.steps)), start=first):
            run.log(loss=step(*batch))
            if (number + 1) % every == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, args.folder / f"step-{number}.pt")


def _batches(pool: list[Any], first: int, steps: int) -> Iterator[Any]:
    return (pool[index % POOL] for index in range(first, steps))


if __name__ == "__main__":
    main()
