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

MOST_SETTINGS = 2000
"""Settings that are forecast: 0.3 ms each, so that a search takes half a second at most."""


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
) -> list[Proposal]:
    """Settings that should be faster, the most promising first.

    Args:
        times: of the loop and of its batches.
        current: the setting in force.
        settings: what may be tried, cheapest first.
        width: what a setting means for the pipeline.
        measured_steps_per_s: of the setting in force.
        corrections: measured over predicted speed, by number of workers, of what was tried.
    """
    here = width(current)
    forecasts: dict[Width, Forecast] = {}
    correction = measured_steps_per_s / forecast(times, here).steps_per_s
    known = {**corrections, here.workers: correction}
    rows: list[Proposal] = []
    for setting in settings:
        place = width(setting)
        if place not in forecasts:
            forecasts[place] = forecast(times, place)
        made = forecasts[place]
        nearest = min(known, key=lambda workers: abs(workers - place.workers))
        factor = known[nearest] if place.workers and nearest else 1.0
        steps_per_s = min(made.steps_per_s * factor, max(times.ceiling_steps_per_s, measured_steps_per_s))
        rows.append(Proposal(setting, steps_per_s / measured_steps_per_s - 1, made.steps_per_s))
    best = max((row.gain for row in rows), default=0.0)
    near = [row for row in rows if 1 + row.gain >= (1 - AS_FAST) * (1 + best)]
    rest = sorted((row for row in rows if row not in near), key=lambda row: -row.gain)
    return [row for row in [*near, *rest] if row.setting != current and row.gain >= LEAST_PREDICTED_GAIN]
