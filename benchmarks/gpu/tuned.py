"""Two training scripts as users have them, with the usual switches; `part4.py` tunes them.

    python benchmarks/gpu/tuned.py search RUN --device cuda --batch 16 --dtype bfloat16    # offline: settings of a step
    python benchmarks/gpu/tuned.py loader RUN --device cuda [--off]                        # while it runs: the loader

Each prints one JSON document: what a sample took, in the middle of its steps.
"""

import argparse
import io
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from benchmarks.gpu.jobs import LARGE, SMALL, torch_batches, torch_cnn, torch_loss, torch_transformer

import phasepoint as pp

PICTURES, SIDE, CROP = 4096, 400, 128
"""JPEGs in memory, decoded, cut and turned to tensors by the loader: some 3 ms each on a core."""


def search(args: argparse.Namespace) -> dict[str, Any]:
    """A transformer whose batch, precision and optimizer are switches."""
    torch.manual_seed(0)
    rows = args.batch
    sizes = replace(SMALL, rows=rows) if args.small else replace(LARGE, layers=4, rows=rows)
    model = torch_transformer(sizes).to(args.device)
    switches = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[args.optimizer]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **switches)
    pool = [tuple(part.to(args.device) for part in batch) for batch in torch_batches("transformer", sizes)]
    times_s = []
    with pp.record(args.run, budget=None if args.capture else 0.01, framework="torch") as run:
        for index in run.steps(range(args.steps)):
            began_s = time.perf_counter()
            x, y = pool[index % len(pool)]
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bfloat16"):
                loss = torch_loss(model(x), y)
            loss.backward()
            optimizer.step()
            run.log(loss=loss.item())
            times_s.append(time.perf_counter() - began_s)
    return {"sample_s": median(times_s[len(times_s) // 2 :]) / rows}


class Pictures(torch.utils.data.Dataset):
    """JPEGs of smooth random fields, decoded and cut on the host."""

    def __init__(self, count: int) -> None:
        from PIL import Image

        rng, self._count, self._bytes = np.random.default_rng(0), count, []
        for _ in range(64):
            coarse = rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(coarse).resize((SIDE, SIDE)).save(file, "JPEG", quality=92)
            self._bytes.append(file.getvalue())

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        picture = Image.open(io.BytesIO(self._bytes[index % len(self._bytes)])).convert("RGB").resize((CROP, CROP))
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
        return pixels, index % 10


def loader(args: argparse.Namespace) -> dict[str, Any]:
    """A convolutional network fed by a `DataLoader` as PyTorch makes it without further words: no workers."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = torch_cnn(SMALL if args.small else LARGE).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rows = 8 if args.small else 32
    data = Pictures(rows * args.steps)

    def make(**knobs: Any) -> Any:
        return torch.utils.data.DataLoader(data, batch_size=rows, **knobs)

    stamps, losses = [], []
    with pp.record(args.run, framework="torch") as run:
        batches = make() if args.off else pp.tune.loader(make, run=run)
        for x, y in run.steps(batches):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(args.device, torch.bfloat16):
                loss = torch_loss(model(x.to(args.device, non_blocking=True)), y.to(args.device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            stamps.append(time.perf_counter())
    last = stamps[len(stamps) * 3 // 4 :]
    told = {"sample_s": (last[-1] - last[0]) / (len(last) - 1) / rows, "whole_s": stamps[-1] - stamps[0]}
    return told | {"losses": losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=("search", "loader"))
    parser.add_argument("run")
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--optimizer", choices=("loop", "foreach", "fused"), default="loop")
    parser.add_argument("--capture", action="store_true", help="record as much as can be")
    parser.add_argument("--off", action="store_true", help="leave the loader as it is")
    args = parser.parse_args()
    print(json.dumps({"search": search, "loader": loader}[args.job](args)))


if __name__ == "__main__":
    main()
