"""Spans whose beginning and end are events of their own (`B` and `E`; asynchronous: `b` and `e`, `S` and `F`)."""

from typing import Any


class Pairs:
    """Matches ends with beginnings: on a thread the last begun ends first; asynchronous ones go by name and id.

    Source: Trace Event Format, "Duration events" and "Async events": times of one thread rise through the file.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[Any, ...], list[tuple[int | None, int, int]]] = {}
        self._done: list[tuple[int, int, int, int]] = []
        self._lost: dict[int, int] = {}

    def take(self, phase: str, key: tuple[Any, ...], time_ps: int | None, kind: int, track: int) -> None:
        """Take one event, in the file's order.

        Args:
            phase: B, E, b, e, S or F.
            key: what a beginning and its end share.
            time_ps: when; None where it cannot be read.
            kind: number of its kind.
            track: number of its track.
        """
        if phase in "BbS":
            self._open.setdefault((phase, *key), []).append((time_ps, kind, track))
            return
        begun = self._open.get(({"E": "B", "e": "b", "F": "S"}[phase], *key))
        if not begun:
            self._lose(kind)
            return
        start_ps, its_kind, its_track = begun.pop()
        if start_ps is None or time_ps is None or time_ps < start_ps:
            self._lose(kind)
            self._lose(its_kind)
            return
        self._done.append((start_ps, time_ps - start_ps, its_kind, its_track))

    def done(self) -> list[tuple[int, int, int, int]]:
        """Start, duration, kind and track of the spans that have ended since the last call."""
        done, self._done = self._done, []
        return done

    def lost(self) -> dict[int, int]:
        """Per kind, how many beginnings and ends have no partner so far."""
        lost = dict(self._lost)
        for begun in self._open.values():
            for _, kind, _ in begun:
                lost[kind] = lost.get(kind, 0) + 1
        return lost

    def _lose(self, kind: int) -> None:
        self._lost[kind] = self._lost.get(kind, 0) + 1
