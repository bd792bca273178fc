"""The strata of a run (one phase on one host) with their clusters, and which sample speaks for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.phases.captured import N_WORK, Captured, StepKeys
from phasepoint.phases.clock import sum_ps
from phasepoint.phases.sampling import (
    LEAST_CLUSTERS,
    Clusters,
    Rest,
    Shares,
    Stratum,
    distance,
    estimate_rest,
    find_shares,
    join_clusters,
)

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StrataEstimate:
    """Every stratum with what its uncaptured steps are estimated to have gone into.

    Attributes:
        strata: by host and phase.
        rests: one per stratum; None where nothing at all was captured.
        sample: `[n_strata]`, strata of one number rest on one sample.
        notes: what was borrowed or rests on windows opened by choice, in words.
    """

    strata: tuple[Stratum, ...]
    rests: tuple[Rest | None, ...]
    sample: Int64s
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StepTimes:
    """The step clock's columns that estimates need, `[n_steps]` each."""

    dur_ps: Int64s
    input_ps: Int64s
    compile_ps: Int64s


def assign_strata(keys: StepKeys, labels: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Stratum of every step `[n_steps]`, and host and phase of every stratum `[n_strata]`."""
    hosts, host = np.unique(keys.host, return_inverse=True)
    phases, phase = np.unique(labels, return_inverse=True)
    pairs, stratum = np.unique(host * max(len(phases), 1) + phase, return_inverse=True)
    n = max(len(phases), 1)
    return stratum, hosts[pairs // n], phases[pairs % n]


def describe_strata(
    times: StepTimes, captured: NDArray[np.bool_], stratum: Int64s, hosts: Int64s, phases: Int64s
) -> tuple[Stratum, ...]:
    """What the clock knows of every stratum, in exact integers."""
    found = []
    for index, (host, phase) in enumerate(zip(hosts.tolist(), phases.tolist(), strict=True)):
        mine = stratum == index
        rest = mine & ~captured
        found.append(
            Stratum(
                host=host,
                phase=phase,
                seen_ps=sum_ps(times.dur_ps[mine & captured]),
                rest_ps=sum_ps(times.dur_ps[rest]),
                rest_input_ps=sum_ps(times.input_ps[rest]),
                rest_compile_ps=sum_ps(times.compile_ps[rest]),
                steps=int(mine.sum()),
                input_ps=sum_ps(times.input_ps[mine]),
            )
        )
    return tuple(found)


def cut_clusters(
    keys: StepKeys, times: StepTimes, captured: Captured, stratum: Int64s, n_strata: int
) -> tuple[Int64s, Int64s, list[Clusters]]:
    """The captured steps as clusters: one per window and stratum.

    Returns:
        The cluster of each captured step `[n_captured]`, the stratum of each cluster `[n_clusters]`, and the clusters
        of each stratum, without extras.
    """
    row = captured.row
    names = [stratum[row], keys.host[row], keys.attempt[row], captured.window]
    found, cluster = np.unique(np.column_stack(names), axis=0, return_inverse=True)
    cluster = cluster.ravel()
    owner = found[:, 0]
    n = len(found)
    weight = np.full(n, np.nan)
    weight[cluster] = captured.weight
    parts, waits = np.zeros((n, captured.parts_ps.shape[1])), np.zeros((n, 2))
    np.add.at(parts, cluster, captured.parts_ps)
    np.add.at(waits, cluster, np.column_stack([times.input_ps[row], times.compile_ps[row]]))
    every = Clusters(parts, np.zeros((n, 0)), waits[:, 0], waits[:, 1], weight)
    return cluster, owner, [take_clusters(every, owner == index) for index in range(n_strata)]


def take_clusters(clusters: Clusters, which: NDArray[np.bool_]) -> Clusters:
    """Some of the clusters."""
    return Clusters(*(getattr(clusters, name)[which] for name in Clusters.__dataclass_fields__))


def estimate_strata(
    strata: Sequence[Stratum], clusters: Sequence[Clusters], names: Mapping[int, str]
) -> StrataEstimate:
    """Let a sample speak for every stratum: its own, or, with fewer than two clusters, one joined with the most alike.

    Args:
        strata: what the clock knows of each.
        clusters: of each stratum.
        names: phase id → name, for the notes.
    """
    whole = [i for i, mine in enumerate(clusters) if len(mine) >= LEAST_CLUSTERS]
    donor = [i if i in whole else _most_alike(strata, i, whole) for i in range(len(strata))]
    shares: dict[int, Shares | None] = {}
    for index in sorted(set(donor)):
        joined = [clusters[i] for i in range(len(strata)) if donor[i] == index]
        shares[index] = find_shares(join_clusters(joined))
    spread = _spread([shares[i] for i in whole])
    rests = []
    for index, stratum in enumerate(strata):
        own = donor[index] == index or not stratum.rest_ps
        sample = shares[donor[index]]
        rests.append(None if sample is None else estimate_rest(stratum, sample, spread=None if own else spread))
    notes = _notes(strata, donor, shares, names)
    return StrataEstimate(tuple(strata), tuple(rests), np.array(donor, np.int64), notes)


def _most_alike(strata: Sequence[Stratum], index: int, whole: Sequence[int]) -> int:
    """The stratum to join; with none to join, all short ones are one sample, under the first's number."""
    if not whole:
        return 0
    return min(whole, key=lambda other: (distance(strata[index], strata[other]), other))


def _spread(shares: Sequence[Shares | None]) -> Floats | None:
    """Standard deviation of the shares between strata; with one stratum, the most that a share can vary."""
    ratios = np.array([known.work.ratio for known in shares if known is not None])
    if len(ratios) >= 2:
        return np.asarray(ratios.std(axis=0, ddof=1), np.float64)
    if not len(ratios):
        return None
    deviation = np.sqrt(np.abs(ratios[0] * (1 - np.minimum(ratios[0], 1))))
    deviation[N_WORK:] = ratios[0][N_WORK:]
    return np.asarray(deviation, np.float64)


def _notes(
    strata: Sequence[Stratum], donor: Sequence[int], shares: Mapping[int, Shares | None], names: Mapping[int, str]
) -> tuple[str, ...]:
    total_ps = sum(stratum.total_ps for stratum in strata)
    notes = []
    for index, stratum in enumerate(strata):
        sample = shares[donor[index]]
        if not stratum.rest_ps or sample is None:
            continue
        name = names.get(stratum.phase, f"phase {stratum.phase}")
        share = f"{100 * stratum.rest_ps / max(total_ps, 1):.2g} % of the time"
        if donor[index] != index:
            like = names.get(strata[donor[index]].phase, "another phase")
            notes.append(f"{name} ({share}) has too few windows: taken to be like {like}, with a wider interval")
        elif sample.single:
            notes.append(f"{name} ({share}) rests on a single window: its interval is the widest that shares allow")
        elif sample.by_choice:
            notes.append(f"{name} ({share}) has no random windows: it rests on windows opened by choice")
    return tuple(notes)


def with_extras(clusters: Sequence[Clusters], owner: Int64s, extra: Floats) -> list[Clusters]:
    """The clusters of each stratum with further quantities, given for all clusters `[n_clusters, k]`."""
    return [
        Clusters(c.parts, extra[owner == index], c.input_ps, c.compile_ps, c.weight) for index, c in enumerate(clusters)
    ]
