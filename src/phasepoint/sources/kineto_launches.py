"""The host's calls that launched work, by correlation id, from slice to slice."""

from collections.abc import Mapping

import numpy as np

from phasepoint.core.arrays import Int64s

CALLS = 1 << 19
"""Calls that are remembered beyond the slice in which they stand: the newest."""


class Launches:
    """Calls with a correlation id. Of several with one id the last counts.

    Args:
        parameters: names of what is remembered of each call beside its span and start.
    """

    def __init__(self, parameters: tuple[str, ...] = ()) -> None:
        self._columns = ("correlation", "span", "start", *parameters)
        self._calls = {name: np.empty(0, np.int64) for name in self._columns}

    def add(self, calls: Mapping[str, Int64s]) -> None:
        """Take the calls of a slice, by start: correlation, span, start and the parameters, `[n]` each."""
        if not len(calls["correlation"]):
            return
        merged = {name: np.concatenate((self._calls[name], calls[name])) for name in self._columns}
        order = np.argsort(merged["correlation"], kind="stable")
        found = merged["correlation"][order]
        order = order[np.append(found[1:] != found[:-1], True)]
        self._calls = {name: column[order] for name, column in merged.items()}

    def forget(self) -> None:
        """Drop the oldest calls, so that memory stays bounded."""
        surplus = len(self._calls["span"]) - CALLS
        if surplus > 0:
            least = np.partition(self._calls["span"], surplus)[surplus]
            kept = self._calls["span"] >= least
            self._calls = {name: column[kept] for name, column in self._calls.items()}

    def find(self, correlation: Int64s) -> dict[str, Int64s]:
        """Span, start and parameters of the calls with these ids; -1 where there is none."""
        known = self._calls["correlation"]
        if not len(known):
            return {name: np.full(len(correlation), -1, np.int64) for name in self._columns[1:]}
        place = np.minimum(np.searchsorted(known, correlation), len(known) - 1)
        there = known[place] == correlation
        return {name: np.where(there, self._calls[name][place], -1) for name in self._columns[1:]}
