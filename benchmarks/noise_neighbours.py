"""Programs that share the machine with a job: each works until it is ended.

    python noise_neighbours.py memory --on 2 --off 3 --seed 7

compute: multiplies matrices on one thread. memory: copies arrays that no cache holds. page: maps, touches and drops
memory, which keeps the kernel busy. With `--on` and `--off` it comes and goes, for times drawn about these seconds.
"""

import argparse
import mmap
import os
import random
import time
from collections.abc import Callable

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

ARRAY_BYTES = 96 << 20
"""More than the last-level cache that two cores of a server share."""


def compute() -> Callable[[], object]:
    import numpy as np

    a = np.random.default_rng(0).standard_normal((256, 256))
    return lambda: a @ a


def memory() -> Callable[[], object]:
    import numpy as np

    source, target = np.ones(ARRAY_BYTES, np.uint8), np.empty(ARRAY_BYTES, np.uint8)
    return lambda: np.copyto(target, source)


def page() -> Callable[[], object]:
    size = 32 << 20

    def touch() -> None:
        with mmap.mmap(-1, size) as pages:
            pages[:: mmap.PAGESIZE] = b"x" * (size // mmap.PAGESIZE)

    return touch


NEIGHBOURS = {"compute": compute, "memory": memory, "page": page}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=NEIGHBOURS)
    parser.add_argument("--on", type=float, default=float("inf"), help="seconds at work, about")
    parser.add_argument("--off", type=float, default=0.0, help="seconds asleep, about")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    work, rng = NEIGHBOURS[chosen.kind](), random.Random(chosen.seed)
    while True:
        end = time.monotonic() + chosen.on * rng.uniform(0.3, 1.7)
        while time.monotonic() < end:
            work()
        time.sleep(chosen.off * rng.uniform(0.3, 1.7))


if __name__ == "__main__":
    main()
