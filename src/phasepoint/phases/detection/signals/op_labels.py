"""Kinds of step by what ran, and what they add to labels from the clock: kinds of step of equal duration.

Two captured steps are of one kind if ops that both ran as often took most of either one's time. Counts decide, not
times: that the same ops ran slower is for the step clock to see. Where captured steps are few and far between, only
long stretches of one kind count.
"""

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import MAD_TO_SIGMA
from phasepoint.phases.detection.vectors import OpVectors

_MISMATCH = 1.5
"""Price of a captured step that is not of its stretch's kind; only its ratio to the price of a change matters."""

LONG_PRICE = 20.0
"""Price of a change before the clock is looked at: three windows of five at the end of a run, six inside it."""

_APART = 0.95
"""Captured steps of two kinds that must lie on either side of a duration for the clock to tell them apart."""
_LEAST_GAIN = 0.5
"""By so much the share of the new kind must grow at a boundary, where the clock shows it: 1 is a change for good."""


def regimes_of_kinds(kinds: Int64s, price: float) -> Int64s:
    """Captured kinds `[n_seen]` without stretches too short to say what lies between the windows.

    Least number of mismatches plus a price per change (Viterbi).
    """
    found, codes = np.unique(kinds, return_inverse=True)
    total = np.zeros(len(found))
    back = np.empty((len(kinds), len(found)), np.int32)
    states = np.arange(len(found))
    for t, code in enumerate(codes):
        best = int(total.argmin())
        stay = total <= total[best] + price
        back[t] = np.where(stay, states, best)
        total = np.where(stay, total, total[best] + price) + _MISMATCH * (states != code)
    path = np.empty(len(kinds), np.int64)
    state = int(total.argmin())
    for t in range(len(kinds) - 1, -1, -1):
        path[t] = state
        state = int(back[t, state])
    return np.asarray(found[path], np.int64)


def split_by_regimes(kind: Int64s, values: Floats, compiles: Bools) -> Int64s:
    """A regime for every step, `[n]`: kind of the long stretch it lies in.

    A boundary between two windows is put where a step compiled, else where the clock changes most, else half-way. There
    is none where the clock tells the two kinds apart and shows that both occur as often before it as after it: then
    chance put the windows of one side into the blocks of one kind (an evaluation that comes back).

    Args:
        kind: kind by ops, -1 where the step was not captured.
        values: log durations.
        compiles: steps known to have compiled.
    """
    seen = np.flatnonzero(kind >= 0)
    regime = np.zeros(len(kind), np.int64)
    if len(seen) == 0 or (kind[seen] == kind[seen[0]]).all():
        return regime
    of_seen = regimes_of_kinds(kind[seen], LONG_PRICE)
    regime[:] = of_seen[0]
    changes = np.flatnonzero(np.diff(of_seen))
    ends = np.append(seen[changes[1:]] + 1, len(kind))
    begin = 0
    for i, end in zip(changes.tolist(), ends.tolist(), strict=False):
        cut, new = _boundary(values, compiles, int(seen[i]) + 1, int(seen[i + 1])), of_seen[i + 1]
        share = _share_by_clock(values, seen, kind[seen], (int(regime[cut]), int(new)))
        if share is None or share[cut:end].mean() - share[begin:cut].mean() >= _LEAST_GAIN:
            regime[cut:] = new
            begin = cut
    return regime


def _share_by_clock(values: Floats, seen: Int64s, kinds: Int64s, pair: tuple[int, int]) -> Bools | None:
    """Which steps `[n]` are of the second kind of a pair, by duration; None where durations do not tell them apart."""
    one, two = (values[seen[kinds == kind]] for kind in pair)
    if not len(one) or not len(two):
        return None
    low, high = float(np.median(one)), float(np.median(two))
    sign, middle = (1 if high > low else -1), (low + high) / 2
    if min(float((sign * one < sign * middle).mean()), float((sign * two > sign * middle).mean())) < _APART:
        return None
    return np.asarray(sign * values > sign * middle, np.bool_)


def _boundary(values: Floats, compiles: Bools, first: int, last: int) -> int:
    """First step of the new regime, in `first` … `last`."""
    compiled = np.flatnonzero(compiles[first : last + 1])
    if len(compiled):
        return first + int(compiled[0])
    margin = 20
    begin, end = max(first - margin, 0), min(last + margin, len(values))
    part = values[begin:end]
    if len(part) < 8:
        return (first + last + 1) // 2
    middle = float(np.median(part))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(np.diff(part)))) / 2**0.5 + 1e-9
    walk = np.cumsum(np.clip(part - middle, -4 * spread, 4 * spread))
    walk -= np.linspace(0, walk[-1], len(walk))
    at = int(np.abs(walk).argmax())
    if abs(walk[at]) < 2.0 * spread * len(part) ** 0.5:
        return (first + last + 1) // 2
    return min(max(begin + at + 1, first), last)


_LONGEST_CYCLE = 64
"""Steps of the longest cycle of kinds that is looked for; each period is a pass over the captured steps."""

_PURE = 0.97
"""Part of the captured steps that a cycle must explain, and that one kind alone must not."""

_PRICE = 8.0
"""Price of a change within one label of the clock: 6 captured steps of another kind at its end, 11 inside it."""

_LEAST = 3
"""Captured steps of a kind that may be a label of their own."""


def refine_by_ops(label: Int64s, kind: Int64s, values: Floats) -> Int64s:
    """Labels `[n]`, split where captured steps of one label are of several kinds.

    In order: a cycle of kinds; long stretches of a kind; else only the captured steps themselves move, to the label
    that is mostly of their kind and nearest in duration, or to one of their own where there are three of them.

    Args:
        label: labels from the clock, from 0.
        kind: kind by ops, -1 where the step was not captured.
        values: log durations.
    """
    if (kind >= 0).all() or not (kind >= 0).any():
        return label
    main = _main_kinds(label, kind)
    result = label.copy()
    next_label = int(label.max()) + 1
    for number in renumber(label)[0]:
        members = np.flatnonzero(label == number)
        seen = np.flatnonzero(kind[members] >= 0)
        kinds = kind[members][seen]
        if len(seen) == 0 or (kinds == kinds[0]).all():
            continue
        spread = _spread(members, seen, kinds)
        for other in np.unique(spread[spread != main[int(number)]]):
            mine = members[spread == other]
            target = _label_of_kind(int(other), main, label, values, mine)
            if target is None and len(mine) < _LEAST:
                continue
            result[mine] = next_label if target is None else target
            next_label += target is None
    return result


def _main_kinds(label: Int64s, kind: Int64s) -> dict[int, int]:
    """The commonest kind among the captured steps of each label; -1 where none was captured."""
    main = {}
    for number in renumber(label)[0]:
        kinds = kind[(label == number) & (kind >= 0)]
        main[int(number)] = int(np.bincount(kinds).argmax()) if len(kinds) else -1
    return main


def _spread(members: Int64s, seen: Int64s, kinds: Int64s) -> Int64s:
    """A kind for every member of a label, `[n_members]`, from those of its captured members."""
    cycle = _cycle(members[seen], kinds)
    if cycle is not None:
        return cycle[members % len(cycle)]
    regime = regimes_of_kinds(kinds, _PRICE)
    bounds = np.searchsorted(np.arange(len(members)), (seen[1:] + seen[:-1]) / 2, side="right")
    owner = np.searchsorted(bounds, np.arange(len(members)), side="right")
    spread = regime[owner]
    spread[seen] = kinds
    return spread


def _cycle(at: Int64s, kinds: Int64s) -> Int64s | None:
    """Kind by position in the shortest cycle that explains the captured steps; null where none does."""
    common = np.bincount(kinds).max() / len(kinds)
    rare = np.bincount(kinds)
    if common > _PURE or np.sort(rare)[-2] < _LEAST:
        return None
    n_kinds = int(kinds.max()) + 1
    for period in range(2, min(_LONGEST_CYCLE, len(kinds) // 3) + 1):
        table = np.bincount(at % period * n_kinds + kinds, minlength=period * n_kinds).reshape(period, n_kinds)
        pure = table.max(axis=1).sum() / len(kinds)
        if pure >= _PURE and (table.sum(axis=1) >= 2).all():
            return np.asarray(table.argmax(axis=1), np.int64)
    return None


def _label_of_kind(kind: int, main: dict[int, int], label: Int64s, values: Floats, mine: Int64s) -> int | None:
    """The label mostly of this kind whose duration is nearest, where one lies within a factor of two."""
    level = float(np.median(values[mine]))
    near = [
        (abs(float(np.median(values[label == number])) - level), number) for number, of in main.items() if of == kind
    ]
    if not near or min(near)[0] > np.log(2):
        return None
    return min(near)[1]


APART = 0.10
"""Two steps are of different kinds when more than this part of either one's op time went into ops that the
other did not run, or ran a quarter more or less often."""

_SAME_COUNT = 0.25
"""As often, up to a quarter: loops of an op run a few times more or less with the data."""

_MAX_SIGNATURES = 1024
"""Different op counts that are compared, the commonest: each with up to as many kinds, which takes their product."""


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


def _profiles(vectors: OpVectors, place: Int64s, n_places: int) -> tuple[Floats, Floats]:
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


def _join(counts: Floats, mass: Floats) -> Int64s:
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


def _apart(counts: Floats, mass: Floats, i: int, leaders: list[int]) -> Floats:
    """Larger part of either step's op time in ops that do not match, per leader."""
    theirs = counts[leaders]
    unmatched = np.abs(theirs - counts[i]) > _SAME_COUNT * np.maximum(theirs, counts[i])
    return np.asarray(np.maximum((unmatched * mass[i]).sum(axis=1), (unmatched * mass[leaders]).sum(axis=1)))
