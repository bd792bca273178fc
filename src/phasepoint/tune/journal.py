"""What tuning leaves in a run: a row of `trials` for each trial, and of `tunings` whenever the state has changed."""

import json
import math
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from phasepoint.core.units import PS_PER_NS
from phasepoint.tune.apply import this_machine
from phasepoint.tune.certificate import Gain
from phasepoint.tune.knobs import Setting, describe_setting

if TYPE_CHECKING:
    from phasepoint.recorder.recording import Recording

Row = dict[str, Any]


class TuneVerdict(StrEnum):
    """What came of it."""

    TUNED = "tuned"
    NOTHING = "nothing to tune"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class TrialEnd:
    """A trial that has ended.

    Attributes:
        trial: its number, from 0.
        knobs: the setting that was tried.
        predicted_gain: what it should win, said before.
        gain: what its pairs have shown; None where no pair ended.
        pairs: of blocks.
        accepted: whether it was taken up.
        reason: why it ended.
        first_step: of the loop.
        last_step: of the loop.
        began_ns: when.
        ended_ns: when.
        spent_ns: by how much longer its steps took than before; 0 where it won.
    """

    trial: int
    knobs: Setting
    predicted_gain: float
    gain: Gain | None
    pairs: int
    accepted: bool
    reason: str
    first_step: int
    last_step: int
    began_ns: int
    ended_ns: int
    spent_ns: int

    def row(self) -> Row:
        """As a row of `trials`; the times still on the clock that the recorder takes."""
        gain = self.gain
        return {
            "trial": self.trial,
            "knobs": json.dumps(dict(self.knobs)),
            "predicted_gain": self.predicted_gain,
            "gain": None if gain is None else gain.value,
            "gain_low": None if gain is None else gain.low,
            "gain_high": None if gain is None or math.isinf(gain.high) else gain.high,
            "pairs": self.pairs,
            "accepted": self.accepted,
            "reason": self.reason,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "dur_ps": (self.ended_ns - self.began_ns) * PS_PER_NS,
            "spent_ps": self.spent_ns * PS_PER_NS,
        }


MOST_WAITING = 1000
"""Rows that wait for a recording to begin; where none ever does they are dropped."""


class RunJournal:
    """In a run that is being recorded, or will be: `phasepoint record` begins with the job's first steps.

    Args:
        run: the recording; None is the one in progress, whenever it begins.
        loader: name of the loader in it.

    Attributes:
        trials: what was tried so far.
    """

    def __init__(self, run: "Recording | None", loader: str) -> None:
        self.trials: list[TrialEnd] = []
        self._run, self._loader = run, loader
        self._waiting: deque[tuple[str, Row, int]] = deque(maxlen=MOST_WAITING)

    def end_trial(self, end: TrialEnd) -> None:
        """A row of `trials`; of a trial that went on in another epoch, one more, which counts."""
        self.trials = [other for other in self.trials if other.trial != end.trial] + [end]
        self._keep("trials", end.row(), end.began_ns)

    def tell(self, row: Row) -> None:
        """A row of `tunings`."""
        at_ns = row.pop("at_ns")
        self._keep("tunings", row | {"machine": this_machine()}, at_ns)

    def next_step(self) -> int:
        """Number of the step that the next batch is for; 0 where nothing is recorded yet."""
        run = self._recording()
        return 0 if run is None else run.next_step()

    def _keep(self, table: str, row: Row, at_ns: int) -> None:
        self._waiting.append((table, row | {"loader": self._loader}, at_ns))
        run = self._recording()
        while run is not None and self._waiting:
            name, kept, when_ns = self._waiting.popleft()
            run.keep(name, kept, at_ns=when_ns)

    def _recording(self) -> "Recording | None":
        if self._run is not None or "phasepoint.recorder.recording" not in sys.modules:
            return self._run
        return sys.modules["phasepoint.recorder.recording"].current_recording()  # type: ignore[no-any-return]


@dataclass
class TuneState:
    """Where the tuning of a loader stands.

    Attributes:
        kind: of loader.
        as_written: the setting without tuning.
        chosen: the setting in force.
        verdict: so far.
        reason: of the verdict, in one sentence.
    """

    kind: str
    as_written: Setting
    chosen: Setting
    verdict: TuneVerdict = TuneVerdict.UNDECIDED
    reason: str = "too few steps were seen"
    spent_ns: int = 0
    _logs: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    _wins: list[tuple[int, float]] = field(default_factory=list)
    _won_before_ns: float = 0.0
    _ceiling: float | None = None
    _limited_by: str | None = None
    _speed: float | None = None
    _wait_ratio: float | None = None

    def measured(self, steps_per_s: float, ceiling: float, limited_by: str, wait_ratio: float) -> None:
        """What was seen of the setting in force."""
        self._speed, self._ceiling, self._limited_by, self._wait_ratio = steps_per_s, ceiling, limited_by, wait_ratio

    def settle(self, verdict: TuneVerdict, reason: str) -> None:
        """A search has ended."""
        self.verdict, self.reason = verdict, reason

    def settle_at_epochs(self, setting: Setting) -> None:
        """A trial in whole epochs begins."""
        if self.verdict is not TuneVerdict.TUNED:
            self.settle(TuneVerdict.UNDECIDED, f"{describe_setting(setting)} is tried in every other epoch")

    def fall_back(self, reason: str) -> None:
        """What was chosen failed."""
        self.chosen, self._logs, self._wins = dict(self.as_written), [0.0, 0.0, 0.0], []
        self.settle(TuneVerdict.UNDECIDED, f"{reason}; the loader is as written again")

    def go_back(self, steps: int) -> None:
        """What was chosen wins nothing any more, so many steps after the begin."""
        self._won_before_ns = self.won_ns(steps)
        self.fall_back("the bottleneck has moved")

    def take_in(self, end: TrialEnd, *, step_ns: float, at_step: int) -> None:
        """A trial has ended."""
        self.spent_ns += end.spent_ns
        if not end.accepted or end.gain is None:
            return
        self.chosen = dict(end.knobs)
        gains = (end.gain.value, end.gain.low, end.gain.high)
        self._logs = [log + math.log1p(gain) for log, gain in zip(self._logs, gains, strict=True)]
        self._wins.append((at_step, step_ns * end.gain.value / (1 + end.gain.value)))
        self.settle(TuneVerdict.TUNED, f"{describe_setting(self.chosen)}: {end.reason}")

    def won_ns(self, steps: int) -> float:
        """What accepted settings have saved in so many steps of the loop."""
        return self._won_before_ns + sum((steps - since) * saved_ns for since, saved_ns in self._wins)

    def row(self, step: int, at_ns: int, *, steps: int) -> Row:
        """As a row of `tunings`."""
        gain, low, high = (math.expm1(log) for log in self._logs) if self._wins else (None, None, None)
        return {
            "at_ns": at_ns,
            "step": step,
            "kind": self.kind,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "as_written": _json(self.as_written),
            "chosen": _json(self.chosen),
            "gain": gain,
            "gain_low": low,
            "gain_high": None if high is None or math.isinf(high) else high,
            "spent_ps": self.spent_ns * PS_PER_NS,
            "won_ps": int(self.won_ns(steps)) * PS_PER_NS,
            "steps_per_s": self._speed,
            "ceiling_steps_per_s": self._ceiling,
            "wait_ratio": self._wait_ratio,
            "limited_by": self._limited_by,
        }


def _json(setting: Mapping[str, Any]) -> str:
    return json.dumps(dict(setting))
