"""Jobs that `tune_search.py` searches: a transformer and a convolutional network in PyTorch, with the usual switches.

    python benchmarks/tune_search_jobs.py RUN --model cnn --batch 16 --dtype bfloat16

Prints the median time of a sample, ns.
"""

import argparse
import time
from statistics import median

import torch

import phasepoint as pp


def transformer(layout, attention):
    """Four layers of 128 wide, sequences of 128."""
    torch.manual_seed(0)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(128) for _ in range(2))
            self.qkv, self.out = torch.nn.Linear(128, 384), torch.nn.Linear(128, 128)
            self.mlp = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.GELU(), torch.nn.Linear(512, 128))

        def forward(self, x):
            heads = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, 4, 32).permute(2, 0, 3, 1, 4)
            if attention == "fused":
                mixed = torch.nn.functional.scaled_dot_product_attention(*heads)
            else:
                scores = heads[0] @ heads[1].transpose(-1, -2) / 32**0.5
                mixed = scores.softmax(-1) @ heads[2]
            x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
            return x + self.mlp(self.norms[1](x))

    net = torch.nn.Sequential(torch.nn.Embedding(1000, 128), *(Block() for _ in range(4)), torch.nn.Linear(128, 1000))
    return net, lambda batch: (torch.randint(1000, (batch, 128)), torch.randint(1000, (batch * 128,)))


def cnn(layout, attention):
    """Six convolutions over pictures of 64 × 64."""
    torch.manual_seed(0)
    layers, channels = [], 3
    for width, stride in ((32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1)):
        layers += [
            torch.nn.Conv2d(channels, width, 3, stride, 1),
            torch.nn.BatchNorm2d(width),
            torch.nn.ReLU(),
        ]
        channels = width
    net = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 1000))
    form = torch.channels_last if layout == "last" else torch.contiguous_format
    net = net.to(memory_format=form)
    return net, lambda batch: (
        torch.rand(batch, 3, 64, 64).to(memory_format=form),
        torch.randint(1000, (batch,)),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--model", choices=["transformer", "cnn"], required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--optimizer", choices=["loop", "foreach", "fused"], default="loop")
    parser.add_argument("--layout", choices=["first", "last"], default="first")
    parser.add_argument("--attention", choices=["plain", "fused"], default="plain")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--capture", action="store_true", help="as much as can be: of the run that is searched on")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    net, make = {"transformer": transformer, "cnn": cnn}[args.model](args.layout, args.attention)
    switches = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[args.optimizer]
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, **switches)
    times = []
    with pp.record(args.run, budget=None if args.capture else 0.01) as run:
        for _ in run.steps(range(args.steps)):
            began = time.perf_counter_ns()
            inputs, labels = make(args.batch)
            with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bfloat16"):
                logits = net(inputs)
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2).float(), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss.item())
            times.append(time.perf_counter_ns() - began)
    print(median(times[5:]) / args.batch)


if __name__ == "__main__":
    main()
