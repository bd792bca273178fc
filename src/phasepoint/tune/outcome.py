"""What tuning came to in a run, read back from its tables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phasepoint.core.errors import NoDataError
from phasepoint.core.units import PS_PER_S
from phasepoint.store import Run
from phasepoint.tune.apply import Applied


@dataclass(frozen=True)
class TrialOutcome:
    """A setting that was tried.

    Attributes:
        knobs: the setting.
        predicted_gain: said before; a gain is a ratio of steady steps a second, minus 1.
        gain: what its blocks have shown; None where no pair of them ended.
        low: lower end of the interval.
        high: upper end, None where nothing bounds it.
        accepted: whether it was taken up.
        reason: why it ended.
        first_step: of the loop.
        last_step: of the loop.
        pairs: of blocks.
        spent_s: by how much longer its steps took.
        start_ps: when it began.
        dur_ps: how long it lasted.
    """

    knobs: Mapping[str, Any]
    predicted_gain: float
    gain: float | None
    low: float | None
    high: float | None
    accepted: bool
    reason: str
    first_step: int
    last_step: int
    pairs: int
    spent_s: float
    start_ps: int
    dur_ps: int


@dataclass(frozen=True)
class TuneOutcome:
    """What came of tuning one loader.

    Attributes:
        loader: its name.
        loader_kind: of what kind it is.
        verdict: `tuned`, `nothing to tune` or `undecided`.
        reason: in one sentence.
        as_written: the setting without tuning.
        chosen: the setting at the end.
        gain: what was won; 0 where nothing was taken up.
        gain_low: lower end of the interval.
        gain_high: upper end, None where nothing bounds it.
        spent_s: what trials cost.
        won_s: what they won until the end of the recording.
        steps_per_s: steady speed, as last measured.
        ceiling_steps_per_s: if the loop never waited for a batch.
        wait_ratio: share of the time in which it waited, as last measured.
        limited_by: `input`, `loop` or `cpu`.
        machine: on which.
        trials: in their order.
    """

    loader: str
    loader_kind: str
    verdict: str
    reason: str
    as_written: Mapping[str, Any]
    chosen: Mapping[str, Any]
    gain: float
    gain_low: float
    gain_high: float | None
    spent_s: float
    won_s: float
    steps_per_s: float | None
    ceiling_steps_per_s: float | None
    wait_ratio: float | None
    limited_by: str | None
    machine: str
    trials: Sequence[TrialOutcome] = field(default_factory=tuple)


def read_outcomes(run: Run) -> tuple[TuneOutcome, ...]:
    """What came of each tuned loader of a run, of the last attempt of its first host; most trials first.

    Raises:
        NoDataError: no loader of it was tuned.
        StoreError: the run cannot be read.
    """
    states = _of_last_attempt(run.table("tunings").to_pylist())
    if not states:
        raise NoDataError(
            f"{run.path}: no loader was tuned in it; make the job's loader with "
            "phasepoint.tune.loader(lambda **knobs: DataLoader(…, **knobs), run=run), and record it again"
        )
    rows = {(row["loader"], row["trial"]): row for row in _of_last_attempt(run.table("trials").to_pylist())}
    trials = list(rows.values())  # of a trial that went on in another epoch, the last row
    last = {state["loader"]: state for state in states}
    outcomes = [_outcome(state, [trial for trial in trials if trial["loader"] == name]) for name, state in last.items()]
    return tuple(sorted(outcomes, key=lambda outcome: -len(outcome.trials)))


CURVE_POINTS = 160
"""Of the curve of speed over time: one for some pixels of a page."""


@dataclass(frozen=True)
class TuningShown:
    """What a report shows of tuning.

    Attributes:
        outcomes: of each tuned loader.
        point_ps: middles of equal stretches of the recording, [n].
        steps_per_s: steps that ended in each, per second, [n].
    """

    outcomes: tuple[TuneOutcome, ...]
    point_ps: Sequence[int]
    steps_per_s: Sequence[float]


def build_tuning(run: Run) -> TuningShown | None:
    """The outcomes over the speed of the run; None where nothing was tuned.

    Raises:
        StoreError: the run cannot be read.
    """
    if not run.has_part("tunings"):
        return None
    outcomes = read_outcomes(run)
    steps = _of_last_attempt(run.table("steps", columns=("start_ps", "dur_ps")).to_pylist())
    ends_ps = np.array([row["start_ps"] + row["dur_ps"] for row in steps], np.int64)
    if len(ends_ps) < 2:
        return TuningShown(outcomes, (), ())
    edges_ps = np.linspace(int(ends_ps[0]), int(ends_ps[-1]), CURVE_POINTS + 1)
    counts, _ = np.histogram(ends_ps, edges_ps)
    width_s = max((edges_ps[1] - edges_ps[0]) / PS_PER_S, 1e-12)
    middles_ps = ((edges_ps[1:] + edges_ps[:-1]) / 2).astype(np.int64)
    return TuningShown(outcomes, middles_ps.tolist(), (counts / width_s).tolist())


def applied_from(outcomes: Sequence[TuneOutcome]) -> Applied:
    """What another run of the job starts with."""
    return Applied(settings={one.loader: one.chosen for one in outcomes}, machine=outcomes[0].machine)


def _of_last_attempt(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not rows:
        return rows
    host = min(row["host"] for row in rows)
    attempt = max(row["attempt"] for row in rows if row["host"] == host)
    kept = [row for row in rows if (row["host"], row["attempt"]) == (host, attempt)]
    return sorted(kept, key=lambda row: int(row["start_ps"]))


def _outcome(state: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> TuneOutcome:
    none_taken = state["gain"] is None
    return TuneOutcome(
        loader=state["loader"],
        loader_kind=state["kind"],
        verdict=state["verdict"],
        reason=state["reason"],
        as_written=_setting(state["as_written"]),
        chosen=_setting(state["chosen"]),
        gain=0.0 if none_taken else state["gain"],
        gain_low=0.0 if none_taken else state["gain_low"],
        gain_high=0.0 if none_taken else state["gain_high"],
        spent_s=state["spent_ps"] / PS_PER_S,
        won_s=state["won_ps"] / PS_PER_S,
        steps_per_s=state["steps_per_s"],
        ceiling_steps_per_s=state["ceiling_steps_per_s"],
        wait_ratio=state["wait_ratio"],
        limited_by=state["limited_by"],
        machine=state["machine"],
        trials=tuple(_trial(trial) for trial in trials),
    )


def _trial(row: Mapping[str, Any]) -> TrialOutcome:
    return TrialOutcome(
        knobs=_setting(row["knobs"]),
        predicted_gain=row["predicted_gain"],
        gain=row["gain"],
        low=row["gain_low"],
        high=row["gain_high"],
        accepted=row["accepted"],
        reason=row["reason"],
        first_step=row["first_step"],
        last_step=row["last_step"],
        pairs=row["pairs"],
        spent_s=row["spent_ps"] / PS_PER_S,
        start_ps=row["start_ps"],
        dur_ps=row["dur_ps"],
    )


def _setting(text: str) -> dict[str, Any]:
    """Knobs from a run's text, which may be anything; what is no object is no setting."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return {str(name): item for name, item in value.items()} if isinstance(value, dict) else {}
