"""Kinds of step by what ran: captured steps whose ops, as often run, took most of both steps' time.

Counts decide, not times: that the same ops ran slower is for the step clock to see.
"""

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.phases.vectors import OpVectors

APART = 0.10
"""Two steps are of different kinds when more than this part of either one's op time went into ops that the
other did not run, or ran a quarter more or less often."""

_SAME_COUNT = 0.25
_MAX_SIGNATURES = 1024


def kinds_by_ops(vectors: OpVectors) -> tuple[Int64s, int]:
    """Kind per captured step `[n_captured]`, and how many steps remain unknown (-1).

    Steps with equal counts are one signature. Signatures, commonest first, join the first kind they are not
    apart from. Unknown steps occur only where there are more than a thousand different signatures.
    """
    signature, n_signatures = _signatures(vectors)
    common = np.argsort(-np.bincount(signature, minlength=n_signatures), kind="stable")[:_MAX_SIGNATURES]
    place = np.full(n_signatures, -1, np.int64)
    place[common] = np.arange(len(common))
    counts, mass = _profiles(vectors, place[signature], len(common))
    kind = _join(counts, mass)
    of_step = np.where(place[signature] >= 0, kind[place[signature]], -1)
    return of_step, int((of_step < 0).sum())


def _signatures(vectors: OpVectors) -> tuple[Int64s, int]:
    """Equal op counts, equal signature: a sum of products with fixed random words, in any order of rows."""
    n_keys = int(vectors.key.max()) + 1
    words = np.random.default_rng(20211).integers(1, 2**63, n_keys, dtype=np.int64).astype(np.uint64)
    total = np.empty(vectors.n_captured, np.uint64)
    for steps, entries in vectors.blocks():
        count = np.where(vectors.vector_entry[entries], vectors.count[entries], 0).astype(np.uint64)
        begins = vectors.start[steps] - entries.start
        total[steps] = np.add.reduceat(words[vectors.key[entries]] * count, begins)
    found, signature = np.unique(total, return_inverse=True)
    return signature.astype(np.int64), len(found)


def _profiles(vectors: OpVectors, place: Int64s, n_places: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean count and share of self time of every op, by signature, `[n_places, n_ops]` each."""
    in_use = np.zeros(int(vectors.key.max()) + 1, bool)
    for _, entries in vectors.blocks():
        in_use[vectors.key[entries][vectors.vector_entry[entries]]] = True
    column = np.cumsum(in_use) - 1
    shape = (n_places, max(int(in_use.sum()), 1))
    counts, mass = np.zeros(shape), np.zeros(shape)
    for steps, entries in vectors.blocks():
        row = np.repeat(place[steps], np.diff(np.append(vectors.start[steps], entries.stop)))
        use = (row >= 0) & vectors.vector_entry[entries]
        cell = row[use] * shape[1] + column[vectors.key[entries][use]]
        counts += np.bincount(cell, vectors.count[entries][use], counts.size).reshape(shape)
        mass += np.bincount(cell, vectors.self_ps[entries][use], counts.size).reshape(shape)
    counts /= np.maximum(np.bincount(place[place >= 0], minlength=n_places), 1)[:, None]
    untimed = mass.sum(axis=1) == 0
    mass[untimed] = counts[untimed]
    return counts, mass / np.maximum(mass.sum(axis=1, keepdims=True), 1e-300)


def _join(counts: NDArray[np.float64], mass: NDArray[np.float64]) -> Int64s:
    """Kind per signature: the first leader that it is not apart from, else itself."""
    leaders: list[int] = []
    kind = np.empty(len(counts), np.int64)
    for i in range(len(counts)):
        distance = _apart(counts, mass, i, leaders)
        near = int(distance.argmin()) if leaders else -1
        if leaders and distance[near] <= APART:
            kind[i] = near
        else:
            kind[i] = len(leaders)
            leaders.append(i)
    return kind


def _apart(counts: NDArray[np.float64], mass: NDArray[np.float64], i: int, leaders: list[int]) -> NDArray[np.float64]:
    """Larger part of either step's op time in ops that do not match, per leader."""
    theirs = counts[leaders]
    unmatched = np.abs(theirs - counts[i]) > _SAME_COUNT * np.maximum(theirs, counts[i])
    return np.asarray(np.maximum((unmatched * mass[i]).sum(axis=1), (unmatched * mass[leaders]).sum(axis=1)))
