"""What to try next: the settings that may be turned, what each should give, and the cheapest of the fastest."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from phasepoint.tune.knobs import Knob, Setting
from phasepoint.tune.pipeline import Forecast, PipelineTimes, Width, forecast

LEAST_PREDICTED_GAIN = 0.03
"""A choice: a trial costs some hundred steps, and less than that is not seen in them."""

AS_FAST = 0.01
"""A choice: settings within that of the fastest are taken for as fast, and the cheapest of them is tried."""

ROOM = 0.02
"""A choice: fewer workers than the job is written with are tried where they win that much more than as many: what
they would save is little, and a store that becomes slower later finds them too few."""

NEAR = 0.1
"""A choice: the least number of workers that comes within that of the best is looked at in all its settings, and so is
the least that is as fast."""

MOST_SETTINGS = 2000
"""Settings that are looked at; those that are alike to the pipeline are forecast once."""


@dataclass(frozen=True)
class Proposal:
    """A setting to try.

    Attributes:
        setting: its knobs.
        gain: what it should win against the setting in force, as a ratio of speeds minus 1.
        simulated_steps_per_s: its speed as simulated, before what trials have shown.
    """

    setting: Setting
    gain: float
    simulated_steps_per_s: float


def _forecasts(
    times: PipelineTimes, settings: Sequence[tuple[Setting, Width]], always: set[int]
) -> list[tuple[Setting, Width, Forecast]]:
    """What settings should give, of the least numbers of workers that come near the best, results kept and not, and
    of those that are `always` looked at.

    A forecast takes 1 to 2 ms in the loop's own thread, and a machine of many cores has hundreds of settings. More
    workers are taken to be no slower, within what the cores allow.
    """
    groups: dict[bool, dict[int, list[Width]]] = {}
    for _, place in settings:
        groups.setdefault(place.caches, {}).setdefault(place.workers, []).append(place)
    found = [_Group(times, [places for _, places in sorted(group.items())]) for group in groups.values()]
    best = max((group.best for group in found), default=0.0)
    near = set(always)
    for group in found:
        near.update(group.least((1 - NEAR) * best), group.least((1 - AS_FAST) * best))
    known = {place: forecast(times, place) for place in {place for _, place in settings if place.workers in near}}
    return [(setting, place, known[place]) for setting, place in settings if place in known]


class _Group:
    """Settings by number of workers, from the least on; some numbers are forecast, twice as far apart each time."""

    def __init__(self, times: PipelineTimes, places: Sequence[Sequence[Width]]) -> None:
        self._times, self._places = times, places
        self._speeds: dict[int, float] = {}
        self._some = sorted({0, *(1 << power for power in range(len(places).bit_length())), len(places) - 1})
        self._some = [index for index in self._some if index < len(places)]
        self.best = max(map(self._speed, self._some))

    def least(self, steps_per_s: float) -> list[int]:
        """The least number of workers that is as fast as this; none where none is."""
        above = next((index for index in self._some if self._speed(index) >= steps_per_s), None)
        if above is None:
            return []
        below = max((index for index in self._some if index < above), default=-1)
        while above - below > 1:
            middle = (above + below) // 2
            below, above = (below, middle) if self._speed(middle) >= steps_per_s else (middle, above)
        return [self._places[above][0].workers]

    def _speed(self, index: int) -> float:
        if index not in self._speeds:
            self._speeds[index] = forecast(self._times, _widest(self._places[index])).steps_per_s
        return self._speeds[index]


def _widest(places: Sequence[Width]) -> Width:
    """At least as fast as each of some that have as many workers and keep the same."""
    return Width(
        places[0].workers,
        max(place.ahead for place in places),
        max(place.readers for place in places),
        starts=all(place.starts for place in places),
        receives_ahead=any(place.receives_ahead for place in places),
        caches=places[0].caches,
    )


def list_settings(knobs: Sequence[Knob], current: Setting) -> list[dict[str, object]]:
    """Every combination of the knobs' values, cheapest first; what is not turned stays as it is."""
    names = [knob.name for knob in knobs]
    combinations = islice(product(*(knob.values for knob in knobs)), MOST_SETTINGS)
    return [dict(current) | dict(zip(names, values, strict=True)) for values in combinations]


def propose(
    times: PipelineTimes,
    current: Setting,
    settings: Iterable[Setting],
    *,
    width: Callable[[Setting], Width],
    measured_steps_per_s: float,
    corrections: Mapping[int, float],
    written_workers: int = 0,
) -> list[Proposal]:
    """Settings that should be faster, the most promising first.

    Args:
        times: of the loop and of its batches.
        current: the setting in force.
        settings: what may be tried, cheapest first.
        width: what a setting means for the pipeline.
        measured_steps_per_s: of the setting in force.
        corrections: measured over predicted speed, by number of workers, of what was tried.
        written_workers: that the job has without tuning.
    """
    here = width(current)
    correction = measured_steps_per_s / forecast(times, here).steps_per_s
    known = {**corrections, here.workers: correction}
    rows: list[Proposal] = []
    widths = [(setting, width(setting)) for setting in settings]
    for setting, place, made in _forecasts(times, widths, {here.workers, written_workers}):
        if place == here:
            continue  # as fast, as far as the model can tell
        nearest = min(known, key=lambda workers: abs(workers - place.workers))
        factor = known[nearest] if place.workers or not here.workers else 1.0
        steps_per_s = min(made.steps_per_s * factor, max(times.ceiling_steps_per_s, measured_steps_per_s))
        rows.append(Proposal(setting, steps_per_s / measured_steps_per_s - 1, made.steps_per_s))

    def has_room(row: Proposal) -> bool:
        return width(row.setting).workers >= written_workers

    best = max((row.gain for row in rows), default=0.0)
    near = [row for row in rows if 1 + row.gain >= (1 - AS_FAST) * (1 + best)]
    roomy = [row for row in rows if 1 + row.gain >= (1 - ROOM) * (1 + best) and has_room(row)]
    first = roomy if near and not has_room(near[0]) else []
    rest = sorted((row for row in rows if row not in near), key=lambda row: -row.gain)
    ranked = [*first, *(row for row in [*near, *rest] if row not in first)]
    return [row for row in ranked if row.setting != current and row.gain >= LEAST_PREDICTED_GAIN]
