"""What was tried, and what that says of what to try next."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from phasepoint.tune.choose import Proposal, list_settings, propose
from phasepoint.tune.knobs import FREE, Effect, Knob, Setting, Turn, allowed_knobs, describe_setting
from phasepoint.tune.live.memory_watch import MemoryWatch
from phasepoint.tune.pipeline import PipelineTimes
from phasepoint.tune.source import LoaderSource

MOST_TRIALS = 6
"""Of one search."""

FUTILE_TRIALS = 2
"""Refused one after the other, within epochs or in whole ones: then the model knows no better there."""

PRIOR_WORKER_BYTES = 150 * 10**6
"""Memory that a worker takes before one was seen: forked, with what reference counts copy (60 to 120 MB, PyTorch)."""

NOT_THE_SAME = (
    "other settings do not make the same batches: making them draws random numbers, or their order is another "
    f"(allow=['{Effect.RANDOM_NUMBERS}'] gives each batch random numbers of its own)"
)


@dataclass
class Search:
    """A search for a faster setting.

    Attributes:
        source: of the feeds.
        allow: what may change beside speed.
        cpus: cores that the job may use.
        watch: the limit on memory.
        worker_bytes: memory that a worker took at most; None before one was seen.
    """

    source: LoaderSource
    allow: Sequence[str]
    cpus: float
    watch: MemoryWatch
    worker_bytes: int | None = None
    _tried: list[Setting] = field(default_factory=list)
    _corrections: dict[int, float] = field(default_factory=dict)
    _trials: int = 0
    _refused: Counter[bool] = field(default_factory=Counter)
    _differs: bool = False
    _cache_differs: bool = False

    def reopen(self) -> None:
        """The bottleneck has moved: what was tried holds no more, and what was measured of workers half as much."""
        self._tried.clear()
        self._corrections = {workers: math.sqrt(ratio) for workers, ratio in self._corrections.items()}
        self._trials = 0
        self._refused.clear()

    def begin(self, setting: Setting) -> None:
        """A setting is tried."""
        self._tried.append(setting)
        self._trials += 1

    def end(self, current: Setting, setting: Setting, speed_ratio: float | None, *, accepted: bool) -> None:
        """A trial has ended.

        Args:
            current: the setting in force until then.
            setting: that was tried.
            speed_ratio: measured speed over the one that was simulated; None where nothing was measured.
            accepted: whether it was taken up.
        """
        if speed_ratio is not None:
            self._corrections[self.source.width(setting).workers] = speed_ratio
        if accepted:
            self._refused.clear()
        else:
            self._refused[self.waits_for_epoch(current, setting)] += 1

    def leave(self, setting: Setting) -> None:
        """A faster one has taken the place of a setting."""
        self._tried.append(setting)

    def found_other_batches(self, current: Setting, setting: Setting) -> None:
        """A setting made other batches than the job has without it; so would all, or all that keep results."""
        if self._begins_to_cache(current, setting):
            self._cache_differs = True
        else:
            self._differs = True

    def _begins_to_cache(self, current: Setting, setting: Setting) -> bool:
        return self.source.width(setting).caches and not self.source.width(current).caches

    def is_over(self, *, waits_for_epoch: bool) -> str | None:
        """Why nothing more is tried, in whole epochs or within one; None where something may be."""
        if self._differs:
            return NOT_THE_SAME
        futile = self._trials >= MOST_TRIALS or self._refused[waits_for_epoch] >= FUTILE_TRIALS
        return "the last trials won nothing" if futile else None

    def best(
        self,
        current: Setting,
        pipeline: PipelineTimes,
        measured: float,
        *,
        allow: Sequence[str] | None = None,
        within_epoch: bool = False,
    ) -> Proposal | None:
        """The most promising setting within the limits.

        Args:
            current: the setting in force.
            pipeline: its times.
            measured: its speed, steps a second.
            allow: what may change beside speed; as the user says where None.
            within_epoch: whether what only turns between epochs stays as it is.
        """
        allowed = allowed_knobs(self.source.knobs, self.allow if allow is None else allow)
        knobs = [knob for knob in allowed if knob.turn is not Turn.EPOCH or not within_epoch]
        used_bytes = self.watch.look()
        settings = [
            setting
            for setting in list_settings(knobs, current)
            if setting not in self._tried and self._fits(current, setting, used_bytes, pipeline)
        ]
        proposals = propose(
            pipeline,
            current,
            settings,
            width=self.source.width,
            measured_steps_per_s=measured,
            corrections=self._corrections,
            written_workers=self.source.width(self.source.as_written).workers,
        )
        return proposals[0] if proposals else None

    def not_allowed(self, current: Setting, pipeline: PipelineTimes, measured: float) -> str:
        """What should be faster and would change more than speed, in words."""
        best = self.best(current, pipeline, measured, allow=tuple(Effect))
        if best is None:
            return ""
        effects = sorted({knob.effect.value for knob in self._turned(current, best.setting)} - FREE)
        allow = ", ".join(map(repr, effects))
        return f"; {describe_setting(best.setting)} should win {best.gain:.0%}, where allow=[{allow}] is given"

    def waits_for_epoch(self, current: Setting, setting: Setting) -> bool:
        """Whether something is turned that turns between epochs alone."""
        return any(knob.turn is Turn.EPOCH for knob in self._turned(current, setting))

    def _turned(self, current: Setting, setting: Setting) -> Sequence[Knob]:
        """The knobs that differ."""
        return [knob for knob in self.source.knobs if setting.get(knob.name) != current.get(knob.name)]

    def _fits(self, current: Setting, setting: Setting, used_bytes: int, pipeline: PipelineTimes) -> bool:
        """Whether the workers of a setting, and what it keeps, stay within the limits while it is tried.

        As many as there are cores do, and more where what they want of the cores, all at work, is no more than these.
        """
        if self._begins_to_cache(setting, current):
            return False  # what making a batch takes without is not known any more
        if self._begins_to_cache(current, setting):
            cache_bytes = pipeline.cache_bytes * pipeline.epoch_steps
            if self._cache_differs or not 0 < cache_bytes < math.inf:
                return False
            used_bytes += round(cache_bytes)
        workers = self.source.width(setting).workers
        wanted = workers * min(pipeline.batch_cores, 1.0)
        if workers > self.source.width(self.source.as_written).workers and wanted > self.cpus:
            return False
        return used_bytes + workers * (self.worker_bytes or PRIOR_WORKER_BYTES) < self.watch.limit_bytes
