"""Batches of like lengths, chosen alike on every host: no step waits for one long sentence on one chip.

In a step that all chips end together, the longest sequence of any chip sets the time. If every host draws its batch
from the same range of lengths in the same step, all are padded alike.

Source: Kumar et al., "Scale MLPerf-0.6 models on Google TPU-v3 Pods", 2019, section 4.4 (GNMT).
"""

from collections.abc import Iterator, Sequence

import numpy as np


def bucketed_batches(
    lengths: Sequence[int],
    batch: int,
    *,
    boundaries: Sequence[int],
    hosts: int = 1,
    host: int = 0,
    seed: int = 0,
) -> Iterator[tuple[int, np.ndarray]]:
    """One epoch of batches for a host: the same bucket on all hosts in each step, other examples on each.

    Every host computes the same plan from the same seed, so that nothing is sent. What does not fill a batch of all
    hosts moves up into the next longer bucket; at most one batch of the longest is left out.

    Args:
        lengths: of every example of the data set, in the same order on all hosts.
        batch: examples of one host in a step.
        boundaries: greatest length of each bucket, growing; longer examples are left out.
        hosts: how many read.
        host: which one this is, from 0.
        seed: of the epoch.

    Yields:
        the length to pad to, and the numbers of the examples, [batch].

    Raises:
        ValueError: boundaries that do not grow, or a host that does not exist.

    Example:
        >>> [(pad, len(rows)) for pad, rows in bucketed_batches([3, 9, 2, 8], 1, boundaries=[4, 10], hosts=2)]
        [(4, 1), (10, 1)]
    """
    if list(boundaries) != sorted(set(boundaries)) or not boundaries:
        raise ValueError(f"boundaries of lengths must grow; these are {list(boundaries)}")
    if not 0 <= host < hosts:
        raise ValueError(f"host {host} of {hosts} hosts does not exist; they are numbered from 0")
    random, whole = np.random.default_rng(seed), batch * hosts
    bucket_of = np.searchsorted(boundaries, lengths)
    plan, left = [], np.array([], np.int64)
    for bucket, longest in enumerate(boundaries):
        rows = np.concatenate([left, random.permutation(np.flatnonzero(bucket_of == bucket))])
        full = len(rows) // whole * whole
        plan += [(longest, rows[first : first + whole]) for first in range(0, full, whole)]
        left = rows[full:]
    for number in random.permutation(len(plan)):
        longest, rows = plan[number]
        yield longest, rows[host * batch : (host + 1) * batch]
