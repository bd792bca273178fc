"""Which programs train, which calibrate the interval, and which test.

A kernel may occur in several programs. What a model was trained on tests nothing: a kernel that any program of an
earlier part holds is left out of the later parts.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.errors import ModelError
from phasepoint.learn.corpus import Corpus

TEST_SHARE, CALIBRATE_SHARE = 0.2, 0.1


@dataclass(frozen=True)
class Split:
    """Rows of a corpus's programs in three parts, each sorted.

    Attributes:
        train: programs whose kernels the model learns.
        calibrate: programs whose kernels set the interval.
        test: programs whose kernels test it.
    """

    train: tuple[int, ...]
    calibrate: tuple[int, ...]
    test: tuple[int, ...]


def random_split(corpus: Corpus, *, seed: int = 0) -> Split:
    """70, 10 and 20 % of the programs, at random.

    Raises:
        ModelError: there are too few programs for three parts.
    """
    n = len(corpus.programs)
    order = np.random.default_rng(seed).permutation(n)
    n_test, n_calibrate = max(round(TEST_SHARE * n), 1), max(round(CALIBRATE_SHARE * n), 1)
    test, calibrate, train = np.split(order, [n_test, n_test + n_calibrate])
    return _split(corpus, train, calibrate, test)


def manual_split(corpus: Corpus, *, seed: int = 0) -> Split:
    """Whole families that are unlike the others test; of the other programs 10 % of all calibrate.

    Raises:
        ModelError: the corpus has no program of those families, or too few others.
    """
    from phasepoint.learn.programs import MANUAL_TEST_FAMILIES

    held = np.array([program.family in MANUAL_TEST_FAMILIES for program in corpus.programs], np.bool_)
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(~held))
    n_calibrate = max(round(CALIBRATE_SHARE * len(corpus.programs)), 1)
    return _split(corpus, rest[n_calibrate:], rest[:n_calibrate], np.flatnonzero(held))


def kernels_of_split(corpus: Corpus, split: Split) -> tuple[Int64s, Int64s, Int64s]:
    """Rows of the kernels of the three parts, sorted; a kernel belongs to the first part that holds its fingerprint."""
    part_of = np.full(len(corpus.programs), 3, np.int64)
    for part, programs in enumerate((split.train, split.calibrate, split.test)):
        part_of[list(programs)] = part
    first: dict[str, int] = {}
    for graph, of in zip(corpus.kernels.graphs, corpus.kernels.programs, strict=True):
        first[graph.fingerprint] = min(first.get(graph.fingerprint, 3), *part_of[list(of)].tolist())
    of_kernel = np.array([first[graph.fingerprint] for graph in corpus.kernels.graphs], np.int64)
    train, calibrate, test = (np.flatnonzero(of_kernel == part) for part in range(3))
    return train, calibrate, test


def _split(corpus: Corpus, train: Int64s, calibrate: Int64s, test: Int64s) -> Split:
    parts = {"train": train, "calibrate": calibrate, "test": test}
    empty = [name for name, rows in parts.items() if not len(rows)]
    if empty:
        raise ModelError(
            f"{corpus.path}: {len(corpus.programs)} programs leave none to {' and '.join(empty)}; collect more programs"
        )
    return Split(*(tuple(sorted(rows.tolist())) for rows in parts.values()))
