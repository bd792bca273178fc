"""Jobs for the tests: loaders whose samples take time, faults that strike in workers, and what the loop saw."""

import hashlib
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

import phasepoint as pp

SAMPLE_S = 0.0005
BODY_S = 0.002


class SlowSamples(Dataset):
    """Samples that wait as for a disk; a fault may strike in workers alone.

    Args:
        size: samples.
        fault: none, raise, exit, hang, leak, random, or sometimes (rarely random).
        at: from which sample on the fault strikes.
        marks: folder in which a fault that has struck leaves a file.
    """

    def __init__(self, size, fault="none", at=0, marks=None, sample_s=SAMPLE_S):
        self.size, self.fault, self.at, self.marks, self.sample_s = size, fault, at, marks, sample_s
        self.kept = []

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        time.sleep(self.sample_s)
        if index >= self.at and get_worker_info() is not None:
            self.strike()
        value = torch.full((4,), float(index))
        if self.fault == "random":
            value += torch.rand(4) + random.random() + np.random.rand()
        return value, index

    def strike(self):
        if self.fault in {"raise", "exit", "hang", "leak"} and self.marks:
            Path(self.marks, str(os.getpid())).touch()
        if self.fault == "raise":
            raise OSError("the disk is gone")
        if self.fault == "exit":
            os._exit(3)
        if self.fault == "hang":
            time.sleep(3600)
        if self.fault == "leak":
            self.kept.append(bytearray(os.urandom(1) * (20 << 20)))


def seed():
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def train(loader, *, epochs=1, body_s=BODY_S, run=None, most=None):
    """A loop that draws random numbers of its own; gives a digest of all that it saw, and the indices."""
    digest, indices = hashlib.md5(), []
    for _ in range(epochs):
        for number, (value, index) in enumerate(loader if run is None else run.steps(loader)):
            digest.update(value.numpy().tobytes())
            digest.update(torch.rand(2).numpy().tobytes() + np.random.rand(1).tobytes())
            indices += index.tolist()
            time.sleep(body_s)
            if most is not None and number == most:
                break
    return digest.hexdigest(), indices


def both(make_loader, *, epochs=1, body_s=BODY_S, **options):
    """The job without tuning, and with it: what each saw, and the tuned loader."""
    seed()
    plain = train(make_loader(), epochs=epochs, body_s=body_s)
    seed()
    tuned_loader = pp.tune.loader(make_loader, **options)
    tuned = train(tuned_loader, epochs=epochs, body_s=body_s)
    return plain, tuned, tuned_loader


def torch_factory(data, **fixed):
    """`make_loader` as users write it."""
    return lambda **knobs: DataLoader(data, **({"batch_size": 8, "shuffle": True} | fixed), **knobs)
