"""The tuner in the job: it watches the loop, tries on the job's own batches what should be faster, keeps what is.

Between two steps it may do one thing: judge what the last steps were limited by, begin a trial, take a finished pair of
blocks in, or end the trial. Whatever goes wrong in that leaves the loop with the loader that it has.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from phasepoint.core.units import NS_PER_S
from phasepoint.recorder.process.identity import ranks_of_job
from phasepoint.recorder.resume.loader_state import RandomState
from phasepoint.tune.certificate import Certificate
from phasepoint.tune.choose import Proposal
from phasepoint.tune.journal import RunJournal, TrialEnd, TuneState, TuneVerdict
from phasepoint.tune.knobs import Setting, describe_setting
from phasepoint.tune.live.blocks import BlockPlan
from phasepoint.tune.live.epoch_trial import MOST_CHECKS, EpochTrial
from phasepoint.tune.live.loop_times import LoopTimes
from phasepoint.tune.live.memory_watch import MemoryWatch
from phasepoint.tune.live.search import NOT_THE_SAME, Search
from phasepoint.tune.live.trial import LEAST_COUNTED, WITNESSES, LoaderTrial, Role, SettingTrial, lay_out
from phasepoint.tune.live.witness import batch_digest
from phasepoint.tune.pipeline import PipelineTimes, forecast
from phasepoint.tune.source import Feed, LoaderSource, Positions, WrongBatchError, random_numbers_kept

WARM_STEPS = 5
"""Steps after a change that tell nothing: caches, queues that fill."""

OBSERVED_STEPS, OBSERVED_S = 16, 1.0
"""What is looked at before a judgement: both at least."""

LEAST_WAIT = 0.02
"""A choice: a loop that waits for less of its time has nothing to win from its loader."""

LOOK_STEPS, LOOK_S = 32, 3.0
"""Between two looks at a loop in which there was nothing to tune, or not any more: both at least. Each search that is
opened again doubles the seconds, until something is won. A choice: a wait of a fifth of the time scatters by 5 % over
half a second, and by 1 % over three."""

CHANGED_WAIT = 0.05
"""Share of the time by which the wait must have grown since the last judgement, so that the search is opened again."""

JUMPED_WAIT, JUMPED_STEPS, JUMPED_S = 0.25, 16, 1.0
"""A choice: where the usual wait of the last steps has grown by so much, and is so for a second, no more is looked at:
that is five times what it scatters by over one. A single long wait, as an epoch begins with, does not count."""

TOLD_S = 1.0
"""Between two rows of the state at the ends of epochs, where nothing else has changed."""

SPENT_RATIO, LEAST_SPENT_S, TRIAL_S = 0.01, 0.75, 0.25
"""What all trials together may cost, net of what they won: this part of the job's time so far, or three quarters of a
second. None begins where less is left than the last one has cost, or a quarter of a second, which workers take to start
(100 ms each, 2 cores)."""

LEAST_SILENT_S, SILENT_BATCHES = 5.0, 30
"""A choice: a worker that is silent for so long, and for so many times the longest batch that was seen, has hung. The
setting before then makes its batch, so that one that was only slow costs a wait and no result."""


FEWER = "it gave fewer batches than the epoch has"


@dataclass
class LoaderPass:
    """One pass over the loader.

    Attributes:
        feed: that makes its batches, but for those of a trial.
        role: of the feed.
        setting: of the feed.
        order: of its batches.
        began_ns: when it began.
        opened_ns: when its feed was there.
        asked_ns: when the loop asked for a batch last.
        position: of the next batch.
        is_whole: whether it came to its end.
        is_latest: whether no other pass has begun since.
        is_beside: whether another one has, and this one goes on.
        check: the setting before, which makes the first batches once more; None where they are not looked at.
    """

    feed: Feed
    role: Role
    setting: Setting
    order: Any
    began_ns: int
    opened_ns: int = 0
    asked_ns: int = 0
    position: int = 0
    is_whole: bool = False
    is_latest: bool = True
    is_beside: bool = False
    check: Feed | None = None


@dataclass
class Tuner:
    """Tunes one loader.

    Args:
        source: makes its feeds.
        allow: what may change beside speed.
        cpus: cores that the job may use.
        watch: the limit on memory.
        journal: where trials and states go.
        start: setting of the first epoch; the factory's own where None.
        seed: of the order of blocks.
        is_on: whether anything is tried at all.
    """

    source: LoaderSource
    allow: Sequence[str]
    cpus: float
    watch: MemoryWatch
    journal: RunJournal
    start: Setting | None = None
    first: Setting | None = None
    seed: int = 0
    is_on: bool = True
    now_ns: Callable[[], int] = time.perf_counter_ns
    _trial: LoaderTrial | None = None
    _trials: int = 0
    _is_resting: bool = False
    _has_moved: bool = False
    _jumped_ns: int | None = None
    _rest_wait: float = 0.0
    _steps: int = 0
    _look_ns: float = field(default_factory=lambda: LOOK_S * NS_PER_S)
    _waits_until_ns: float = 0.0
    _last_cost_ns: float = TRIAL_S * NS_PER_S
    _suspended: LoaderTrial | None = None
    _by_epochs: EpochTrial | None = None
    _epoch_steps: int | None = None

    def __post_init__(self) -> None:
        self.setting: Setting = dict(self.start or self.source.as_written)
        self.times = LoopTimes(self.now_ns)
        self.state = TuneState(
            as_written=dict(self.source.as_written), chosen=dict(self.setting), kind=self.source.kind
        )
        self.search = Search(self.source, self.allow, self.cpus, self.watch)
        self._random = random.Random(self.seed)
        self._epoch: LoaderPass | None = None
        self._base_bytes = 0
        self._began_ns = self._told_ns = self.now_ns()
        if self.start is not None:
            self.watch.look()
            self.source.room_bytes = self.watch.room_bytes

    # ---- the loop ----

    def begin_epoch(self) -> LoaderPass:
        """A pass over the loader begins."""
        if self._epoch is not None:
            self.end_epoch(self._epoch)
        began_ns, trial = self.now_ns(), self._by_epochs
        is_new = trial is not None and trial.begin_epoch() == "new"
        setting = trial.proposal.setting if trial is not None and is_new else self.setting
        order, role, state = self.source.begin_epoch(), Role(), RandomState.take(with_devices=False)
        feed, setting = self._open_first(order, role, setting)
        self._epoch = LoaderPass(feed, role, setting, order, began_ns, self.now_ns())
        trial = self._by_epochs
        if trial is not None and setting != self.setting and self.source.can_repeat and trial.checks < MOST_CHECKS:
            trial.checks += 1
            self._begin_check(self._epoch, trial, state)
        self.times.pause()
        return self._epoch

    def _open_first(self, order: Any, role: Role, setting: Setting) -> tuple[Feed, Setting]:
        """The feed that begins an epoch, and its setting: where it cannot be begun with one, with the one before."""
        state = RandomState.take(with_devices=False)
        while True:
            try:
                return self.source.open(order, setting, role.next, start=0, begins_epoch=True), setting
            except Exception as error:
                if setting == self.source.as_written:
                    raise
                failed = f"{describe_setting(setting)} could not be begun: {_words(error)}"
                if setting == self.setting:
                    self._fall_back(failed)
                else:
                    self._end_epochs(failed)
                setting = self.setting
                state.put_back()

    def _begin_check(self, epoch: LoaderPass, trial: EpochTrial, state: RandomState) -> None:
        """Open the setting before once more; where that fails, the trial is over, and the epoch begins without it."""
        began_ns = self.now_ns()
        try:
            with random_numbers_kept():
                epoch.check = self.source.open(epoch.order, self.setting, _first(WITNESSES), start=0)
        except Exception as error:  # noqa: BLE001 - of the user's factory, or of what it makes
            self._end_epochs(f"the setting before it could not be begun beside it: {_words(error)}")
            epoch.feed.close()
            epoch.role, epoch.setting = Role(), self.setting
            with random_numbers_kept():
                state.put_back()
                epoch.feed = self.source.open(epoch.order, self.setting, epoch.role.next, start=0, begins_epoch=True)
            return
        self._leave_out(epoch, trial, self.now_ns() - began_ns)

    def _leave_out(self, epoch: LoaderPass, trial: EpochTrial, checked_ns: int) -> None:
        """What looking at first batches took is no time of the epoch's, but a cost of the trial."""
        epoch.began_ns += checked_ns
        epoch.opened_ns += checked_ns
        trial.spent_ns += checked_ns

    def _take_checked(self, epoch: LoaderPass, check: Feed, trial: EpochTrial) -> Any:
        """One of the first batches of an epoch of a trial: it is as it would be without, or the setting goes.

        Both are made when the loop asks, from the same random numbers.
        """
        state, reason, is_same = RandomState.take(with_devices=False), NOT_THE_SAME, False
        try:
            batch = epoch.feed.take(epoch.position)
            taken_ns = self.now_ns()
            with random_numbers_kept():
                state.put_back()
                is_same = batch_digest(check.take(epoch.position)) == batch_digest(batch)
        except StopIteration:
            if epoch.position >= (self.source.length() or 0):
                raise
            reason = FEWER
        except Exception as error:  # noqa: BLE001 - whatever a worker dies of
            reason = f"a batch could not be made: {_words(error)}"
        if is_same:
            if epoch.position + 1 >= WITNESSES:
                self._end_check(epoch)
            self._leave_out(epoch, trial, self.now_ns() - taken_ns)
            return batch
        state.put_back()
        self._end_epochs(reason)
        self._reopen(epoch)
        return epoch.feed.take(epoch.position)

    def _end_check(self, epoch: LoaderPass) -> None:
        check, epoch.check = epoch.check, None
        if check is not None:
            check.close()

    def take(self, epoch: LoaderPass) -> Any:
        """The next batch of an epoch. Raises StopIteration at its end, and what the loader raises."""
        if not epoch.is_latest:
            return self._take_beside(epoch)
        asked_ns = epoch.asked_ns = self.now_ns()
        self._guarded(self._before, epoch, asked_ns)
        begun_ns = self.now_ns()  # what the tuner itself took is no wait for data
        if self._trial is None:
            self.state.spent_ns += begun_ns - asked_ns
        feed, batch = self._take(epoch)
        self._guarded(self._after, epoch, feed, batch, begun_ns, self.now_ns())
        epoch.position += 1
        self._steps += 1
        return batch

    def end_epoch(self, epoch: LoaderPass) -> None:
        """The pass is over, or was left."""
        if not epoch.is_latest:
            return
        epoch.is_latest = False
        if self._trial is not None:
            self._suspend_trial(epoch)
        if self.now_ns() - self._told_ns > TOLD_S * NS_PER_S:
            self._tell()
        self.times.pause()
        epoch.feed.close()
        self._end_check(epoch)
        self._epoch = None
        self._guarded(self._note_epoch, epoch)

    def _take_beside(self, epoch: LoaderPass) -> Any:
        """Of a pass that another one has begun beside: it goes on by itself, where it stood."""
        if not epoch.is_beside:
            epoch.is_beside = True
            self._reopen(epoch)
        batch = epoch.feed.take(epoch.position)
        epoch.position += 1
        return batch

    def _take(self, epoch: LoaderPass) -> tuple[Feed, Any]:
        trial = self._trial
        if trial is not None and trial.plan.side_of(epoch.position) == "new":
            try:
                return trial.feed, trial.feed.take(epoch.position)
            except StopIteration:
                if epoch.position >= (self.source.length() or 0):
                    raise
                self._drop_trial(epoch, FEWER)
            except Exception as error:
                if not self.source.can_repeat:
                    epoch.position += 1
                    raise
                self._drop_trial(epoch, f"a batch could not be made: {_words(error)}")
        by_epochs = self._by_epochs
        try:
            if epoch.check is not None and by_epochs is not None:
                batch = self._take_checked(epoch, epoch.check, by_epochs)
                return epoch.feed, batch
            return epoch.feed, epoch.feed.take(epoch.position)
        except StopIteration:
            epoch.is_whole = True
            raise
        except Exception as error:
            is_ours = isinstance(error, WrongBatchError)
            if not is_ours and (epoch.setting == self.source.as_written or not self.source.can_repeat):
                epoch.position += 1
                raise
            if epoch.setting != self.setting:
                self._end_epochs(f"a batch could not be made: {_words(error)}")
            else:
                failed = f"{describe_setting(epoch.setting)} failed: {_words(error)}"
                self._drop_trial(epoch, f"the setting before it failed: {_words(error)}")
                self._fall_back(failed)
            self._reopen(epoch)
            return epoch.feed, epoch.feed.take(epoch.position)

    # ---- what the tuner does between two steps ----

    def _guarded(self, act: Callable[..., None], *arguments: Any) -> None:
        """Our own mistakes end the tuning and not the job."""
        if not self.is_on and self._trial is None:
            return
        try:
            act(*arguments)
        except Exception as error:  # noqa: BLE001 - as it says
            self.is_on, self._by_epochs = False, None
            if self._trial is not None and self._epoch is not None:
                self._drop_trial(self._epoch, f"the tuner failed: {_words(error)}")
            self.state.settle(TuneVerdict.UNDECIDED, f"the tuner failed and was switched off: {_words(error)}")

    def _before(self, epoch: LoaderPass, asked_ns: int) -> None:
        if self.watch.is_full:
            self._make_room(epoch)
        trial = self._trial
        if trial is None:
            self.times.asked(asked_ns)
            self._judge(epoch)
            return
        if trial.last is not None:
            if epoch.position >= trial.last:
                self._finish_trial(epoch)
            return
        if self.source.can_repeat and not trial.is_witnessed and epoch.position >= trial.plan.first:
            trial.is_witnessed = True
            if not self._is_same(trial, epoch):
                return
        ratio = trial.plan.note(epoch.position, asked_ns)
        if ratio is not None:
            trial.certificate.add(ratio)
        begins_block = trial.plan.begins_block(epoch.position)
        if not begins_block and self.source.width(self.setting).ahead:
            return  # the old setting has begun batches beyond this block
        decided = trial.verdict(asked_ns) if ratio is not None else trial.is_hopeless(epoch.position, asked_ns)
        if decided is None and trial.cost_ns(asked_ns) > self._allowance_ns(asked_ns):
            decided = (
                "old",
                f"it had cost {trial.cost_ns(asked_ns) / NS_PER_S:.1f} s, which is what trials may cost so far",
            )
        if decided is not None:
            self._end_trial(*decided, epoch)

    def _make_room(self, epoch: LoaderPass) -> None:
        """Memory is short: what is tried goes first, then what was tuned."""
        reason = f"memory came near the limit of {self.watch.limit_bytes:,} bytes"
        if self._trial is not None:
            self._drop_trial(epoch, reason)
        elif self._by_epochs is not None:
            is_new = epoch.setting != self.setting
            self._end_epochs(reason)
            if is_new:
                self._reopen(epoch)
        elif epoch.setting != self.source.as_written:
            self._fall_back(reason)
            self._reopen(epoch)

    def _allowance_ns(self, now_ns: int) -> float:
        """What a trial may cost: a part of the job's time so far, and what trials won, less what they cost."""
        won_ns = self.state.won_ns(self._steps) - self.state.spent_ns
        return max(SPENT_RATIO * (now_ns - self._began_ns), LEAST_SPENT_S * NS_PER_S) + won_ns

    def _after(self, epoch: LoaderPass, feed: Feed, batch: Any, asked_ns: int, got_ns: int) -> None:
        trial = self._trial
        if trial is None:
            begins = not epoch.position
            opening_ns = epoch.opened_ns - epoch.began_ns if begins else 0
            self.times.got(
                asked_ns - opening_ns,
                got_ns,
                feed.time_of(epoch.position),
                was_ready=feed.was_ready,
                begins_epoch=begins,
            )
            return
        trial.steps += 1
        if self.source.can_repeat and epoch.position in trial.role.witnesses:
            trial.digests[epoch.position] = batch_digest(batch)

    def _judge(self, epoch: LoaderPass) -> None:
        """Look at the last steps, and begin a trial where something should be faster."""
        times = self.times
        if times.steps == WARM_STEPS and not self._is_resting:
            times.restart()
            times.steps = WARM_STEPS  # they are not warm-up again
        if not self.is_on or (self._by_epochs is not None and self._by_epochs.side is not None):
            return
        if self._suspended is not None:
            if self._enter_trial(epoch, self._suspended):
                self._suspended = None
        elif self._is_resting:
            self._look_again()
        elif self.now_ns() < self._waits_until_ns:
            return
        elif len(times.bodies_ns) >= OBSERVED_STEPS and times.elapsed_ns >= OBSERVED_S * NS_PER_S:
            self._look(epoch)

    def _look(self, epoch: LoaderPass) -> None:
        """Enough was seen of the setting in force: try another one, or rest."""
        times = self.times
        width = self.source.width(self.setting)
        ranks = ranks_of_job()
        if ranks is not None and ranks[1] > 1:
            self._rest(f"the job has {ranks[1]} ranks, and what one tries shows in all", TuneVerdict.UNDECIDED)
            return
        epoch_steps = self.source.length() or self._epoch_steps or math.inf
        pipeline = times.pipeline(width, cpus=self.cpus, epoch_steps=epoch_steps)
        if pipeline is None:
            self._rest("no batch could be timed")
            return
        if self._goes_back(epoch, pipeline):
            return
        measured = NS_PER_S / times.step_ns
        limited_by = forecast(pipeline, width).limited_by
        self.state.measured(measured, pipeline.ceiling_steps_per_s, limited_by, times.wait_ratio)
        first, self.first = self.first, None
        if first is not None and first != self.setting:
            predicted = forecast(pipeline, self.source.width(first))
            gain = predicted.steps_per_s / measured - 1
            waits = self.search.waits_for_epoch(self.setting, first)
            self._begin_trial(epoch, Proposal(first, gain, predicted.steps_per_s), pipeline, waits=waits)
            return
        waiting = f"the loop waits for data {times.wait_ratio:.1%} of the time"
        is_crowded = width.workers and times.delay_ns > LEAST_WAIT * times.step_ns
        if times.wait_ratio < LEAST_WAIT and not is_crowded:
            self._rest(waiting)
            return
        search = self.search
        best = search.best(self.setting, pipeline, measured)
        waits = best is not None and search.waits_for_epoch(self.setting, best.setting)
        if waits and search.is_over(waits_for_epoch=False) is None:
            now = search.best(self.setting, pipeline, measured, within_epoch=True)
            if now is not None and self._holds(epoch, self._trial_of(now, pipeline)):
                best, waits = now, False
        over = search.is_over(waits_for_epoch=waits)
        if best is None:
            other = search.not_allowed(self.setting, pipeline, measured)
            self._rest(f"{waiting}, and no setting within the limits should be faster{other}")
        elif over is not None:
            self._rest(f"{waiting}, and {over}")
        elif (missing_ns := max(self._last_cost_ns, TRIAL_S * NS_PER_S) - self._allowance_ns(self.now_ns())) > 0:
            self._waits_until_ns = self.now_ns() + missing_ns / SPENT_RATIO
        else:
            self._begin_trial(epoch, best, pipeline, waits=waits)

    def _look_again(self) -> None:
        """Whether the bottleneck has moved since the search ended."""
        times = self.times
        has_jumped = self._has_jumped()
        if not has_jumped and (times.steps < LOOK_STEPS or times.elapsed_ns < self._look_ns):
            return
        if has_jumped or times.wait_ratio > max(LEAST_WAIT, self._rest_wait + CHANGED_WAIT):
            self._is_resting, self._by_epochs = False, None  # one that has not begun
            self._look_ns *= 2
            self._has_moved, self._jumped_ns = True, None
            self.search.reopen()
        times.restart()

    def _has_jumped(self) -> bool:
        """Whether the loop waits far longer than when it came to rest, and has done so for a second."""
        if self.times.steps % (JUMPED_STEPS // 2):
            return False
        if self.times.usual_wait_ratio(JUMPED_STEPS) <= self._rest_wait + JUMPED_WAIT:
            self._jumped_ns = None
            return False
        self._jumped_ns = self._jumped_ns or self.now_ns()
        return self.now_ns() - self._jumped_ns >= JUMPED_S * NS_PER_S

    def _goes_back(self, epoch: LoaderPass, pipeline: PipelineTimes) -> bool:
        """After the bottleneck has moved: back to what the job had, where that should be faster now."""
        has_moved, self._has_moved = self._has_moved, False
        written = self.source.as_written
        if not has_moved or self.setting == written or not self.source.can_repeat:
            return False
        here, back = (forecast(pipeline, self.source.width(one)).steps_per_s for one in (self.setting, written))
        if back < (1 + CHANGED_WAIT) * here or self.search.waits_for_epoch(self.setting, written):
            return False
        self.source.let_go(self.setting, written)
        self.setting = dict(written)
        self.state.go_back(self._steps)
        self._reopen(epoch)
        self._watch_on()
        self._tell()
        self.times.batches.clear()
        self.times.restart()
        return True

    def _rest(self, reason: str, verdict: TuneVerdict = TuneVerdict.NOTHING) -> None:
        """The search ends; what was tuned in it stays so."""
        self._is_resting, self._rest_wait = True, self.times.wait_ratio
        if self.state.verdict is not TuneVerdict.TUNED:
            self.state.settle(verdict, reason)
        self._tell()
        self.times.restart()

    # ---- trials ----

    def _begin_trial(self, epoch: LoaderPass, proposal: Proposal, pipeline: PipelineTimes, *, waits: bool) -> None:
        trial = self._trial_of(proposal, pipeline)
        try:
            entered = not waits and self._enter_trial(epoch, trial)
        except Exception as error:  # noqa: BLE001 - of the user's factory, or of what it makes
            trial.entered_ns, trial.reason = trial.began_ns, f"it could not be begun: {_words(error)}"
            self._account(trial, accepted=False)
            entered = True
        if entered is None:
            return
        self.search.begin(proposal.setting)
        if not entered:
            self._by_epochs = EpochTrial.instead_of(trial, partial(self._random.getrandbits, 1))
            self.source.room_bytes = self.watch.room_bytes
            self.state.settle_at_epochs(proposal.setting)
            self._is_resting, self._rest_wait = True, self.times.wait_ratio  # until the next epoch
        self._trials += 1

    def _trial_of(self, proposal: Proposal, pipeline: PipelineTimes) -> LoaderTrial:
        return LoaderTrial(
            number=self._trials,
            proposal=proposal,
            first_step=self._step_number(),
            began_ns=self.now_ns(),
            base_step_ns=self.times.step_ns,
            certificate=Certificate(self.times.spread(LEAST_COUNTED)),
            batch_ns=sum(pipeline.batch_ns) / len(pipeline.batch_ns),
        )

    def _plan(self, epoch: LoaderPass, trial: LoaderTrial) -> BlockPlan:
        """The blocks of a trial from here on."""
        old, new = self.source.width(self.setting), self.source.width(trial.proposal.setting)
        times = {"step_ns": trial.base_step_ns, "batch_ns": trial.batch_ns}
        return lay_out(epoch.position, old, new, **times, draw=lambda: self._random.getrandbits(1))

    def _holds(self, epoch: LoaderPass, trial: LoaderTrial) -> bool:
        """Whether a whole epoch is long enough for pairs of blocks."""
        length, plan = self.source.length(), self._plan(epoch, trial)
        return length is None or length > plan.first - epoch.position + plan.pair

    def _note_epoch(self, epoch: LoaderPass) -> None:
        """An epoch has ended: of a trial in whole epochs it is a half pair."""
        steps = epoch.position if epoch.is_whole else max(epoch.position - 1, 0)
        if epoch.is_whole:
            self._epoch_steps = steps
        trial = self._by_epochs
        if trial is None or trial.side is None:
            return
        broken = trial.end_epoch(steps, epoch.asked_ns - epoch.began_ns, is_whole=epoch.is_whole)
        if broken is not None:
            self._end_epochs(broken)
            return
        decided = trial.verdict()
        if decided is None and trial.spent_ns > self._allowance_ns(self.now_ns()):
            decided = "old", f"it had cost {trial.spent_ns / NS_PER_S:.1f} s, which is what trials may cost so far"
        if decided is None:
            self.journal.end_trial(self._end_of(trial, accepted=False))
        else:
            self._end_epochs(decided[1], accepted=decided[0] == "new")

    def _end_epochs(self, reason: str, *, accepted: bool = False) -> None:
        """A trial in whole epochs is over."""
        trial, self._by_epochs = self._by_epochs, None
        if trial is None:
            return
        self._is_resting = False
        trial.reason = reason
        self._account(trial, accepted=accepted)
        ends, stays = (self.setting, trial.proposal.setting)[:: 1 if accepted else -1]
        self.source.let_go(ends, stays)
        if accepted:
            self.search.leave(self.setting)
            self.setting = trial.proposal.setting
            self.times.batches.clear()
            self.times.starts_ns.clear()
        elif reason == NOT_THE_SAME:
            self.search.found_other_batches(self.setting, trial.proposal.setting)
        self._watch_on()
        self.times.restart()

    def _enter_trial(self, epoch: LoaderPass, trial: LoaderTrial) -> bool | None:
        """Lay out the blocks of a trial in what is left of an epoch. False: no epoch is long enough; None: this one."""
        plan, length = self._plan(epoch, trial), self.source.length()
        if length is not None and length - plan.first < plan.pair:
            return None if self._holds(epoch, trial) else False
        entered_ns = self.now_ns()
        self._base_bytes = self.watch.look()
        workers = self.source.width(trial.proposal.setting).workers
        self.source.worker_bytes = self.watch.room_bytes // max(workers, 1)
        self.source.silent_s = max(LEAST_SILENT_S, SILENT_BATCHES * self.times.longest_batch_ns / NS_PER_S)
        role = Role("new", plan, range(epoch.position, epoch.position + WITNESSES))
        feed = self.source.open(epoch.order, trial.proposal.setting, role.next, start=epoch.position)
        epoch.role.side, epoch.role.plan = "old", plan
        trial.enter(plan, role, feed, entered_ns)
        self._trial = trial
        self.watch.start(closely=True)
        return True

    def _suspend_trial(self, epoch: LoaderPass) -> None:
        """The epoch ends in the middle of a trial: it goes on in the next one, with what its pairs have shown."""
        trial = self._trial
        assert trial is not None
        if trial.last is not None:
            self._finish_trial(epoch)
            return
        self._trial, self._suspended = None, trial
        trial.leave(self.now_ns())
        trial.reason = "the job or the epoch ended before it was decided"
        self.journal.end_trial(self._end_of(trial, accepted=False))
        trial.feed.close()
        epoch.role.plan = None
        self._watch_on()
        self.times.restart()

    def _is_same(self, trial: LoaderTrial, epoch: LoaderPass) -> bool:
        """Whether the new setting makes the batches that the old one has made; if not, the trial is dropped."""
        in_loop = not self.source.width(trial.proposal.setting).workers
        try:
            with random_numbers_kept() if in_loop else nullcontext():
                digests = {position: batch_digest(trial.feed.take(position)) for position in trial.role.witnesses}
        except Exception as error:  # noqa: BLE001 - whatever a worker dies of
            self._drop_trial(epoch, f"a batch could not be made: {_words(error)}")
            return False
        if digests != trial.digests:
            self._drop_trial(epoch, NOT_THE_SAME)
            self.search.found_other_batches(self.setting, trial.proposal.setting)
        return digests == trial.digests

    def _end_trial(self, winner: str, reason: str, epoch: LoaderPass) -> None:
        """The trial is decided; the loser may have one block to finish."""
        trial = self._trial
        assert trial is not None
        trial.winner, trial.reason = ("new" if winner == "new" else "old"), reason
        workers = self.source.width(trial.proposal.setting).workers
        if workers and self.watch.most_bytes > self._base_bytes:
            grown = max(self.watch.look() - self._base_bytes, 0) // workers
            self.search.worker_bytes = max(self.search.worker_bytes or 0, grown)
        if not epoch.is_latest:
            trial.last = epoch.position
            self._finish_trial(epoch)
            return
        goes_on = trial.proposal.setting if trial.winner == "new" else self.setting
        trial.last = trial.plan.end(epoch.position, trial.winner, at_once=not self.source.width(goes_on).ahead)
        if epoch.position >= trial.last:
            self._finish_trial(epoch)

    def _finish_trial(self, epoch: LoaderPass) -> None:
        """One feed goes on alone."""
        trial = self._trial
        assert trial is not None
        self._trial = None
        self._account(trial, accepted=trial.winner == "new")
        if trial.winner == "new":
            epoch.feed.close()
            self.source.let_go(self.setting, trial.proposal.setting)
            self.search.leave(self.setting)
            epoch.feed, epoch.role, epoch.setting = trial.feed, trial.role, trial.proposal.setting
            self.setting = trial.proposal.setting
            self.times.batches.clear()  # in other workers they take another time
            self.times.starts_ns.clear()
        else:
            trial.feed.close()
        epoch.role.plan, epoch.role.least = None, epoch.position
        self._watch_on()
        self.times.restart()

    def _drop_trial(self, epoch: LoaderPass, reason: str) -> None:
        """The new setting failed: the old one makes everything from here on, the batch in hand included."""
        trial = self._trial
        if trial is None:
            return
        self._trial = None
        trial.reason = reason
        self._account(trial, accepted=False)
        trial.feed.close()
        epoch.role.plan = None
        if (
            trial.plan.number_of(epoch.position) >= 0
            or epoch.position + self.source.width(self.setting).ahead > trial.plan.first
        ):
            self._reopen(epoch)
        self._watch_on()
        self.times.restart()

    def _reopen(self, epoch: LoaderPass) -> None:
        """The setting in force once more, from the batch in hand on: what its feed has begun belongs elsewhere."""
        epoch.feed.close()
        self._end_check(epoch)
        epoch.role, epoch.setting = Role(), self.setting
        epoch.feed = self.source.open(epoch.order, self.setting, epoch.role.next, start=epoch.position)

    def _watch_on(self) -> None:
        """After a trial: memory is watched where the job has other workers than it would have without tuning."""
        if self.setting == self.source.as_written:
            self.watch.stop()
        else:
            self.watch.start(closely=False)

    def _fall_back(self, reason: str) -> None:
        """Back to what the user wrote."""
        self.source.let_go(self.setting, self.source.as_written)
        self.setting = dict(self.source.as_written)
        self.is_on, self._by_epochs = False, None
        self.state.fall_back(reason)
        self._tell()

    def _account(self, trial: SettingTrial, *, accepted: bool) -> None:
        """Write the trial down."""
        if isinstance(trial, LoaderTrial):
            trial.leave(self.now_ns())
        end = self._end_of(trial, accepted=accepted)
        self._last_cost_ns = max(trial.spent_ns, 0.0)
        if accepted:
            self._look_ns = LOOK_S * NS_PER_S
        simulated = trial.proposal.simulated_steps_per_s * trial.base_step_ns / NS_PER_S
        ratio = None if end.gain is None else (1 + end.gain.value) / simulated
        self.search.end(self.setting, trial.proposal.setting, ratio, accepted=accepted)
        self.journal.end_trial(end)
        self.state.take_in(end, step_ns=trial.base_step_ns, at_step=self._steps)
        self._tell()

    def _end_of(self, trial: SettingTrial, *, accepted: bool) -> TrialEnd:
        return TrialEnd(
            trial=trial.number,
            knobs=dict(trial.proposal.setting),
            predicted_gain=trial.proposal.gain,
            gain=trial.certificate.gain() if trial.certificate.log_ratios else None,
            pairs=len(trial.certificate.log_ratios),
            accepted=accepted,
            reason=trial.reason,
            first_step=trial.first_step,
            last_step=max(self._step_number() - 1, trial.first_step),
            began_ns=trial.began_ns,
            ended_ns=self.now_ns(),
            spent_ns=max(int(trial.spent_ns), 0),
        )

    def _step_number(self) -> int:
        return self.journal.next_step() or self._steps

    def _tell(self) -> None:
        self._told_ns = self.now_ns()
        self.journal.tell(self.state.row(self._step_number(), self.now_ns(), steps=self._steps))


def _first(count: int) -> Positions:
    """The first positions of an epoch."""
    return lambda position: position if position < count else None


def _words(error: BaseException) -> str:
    """An error in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[-1] if text else ''}".rstrip(": ")
