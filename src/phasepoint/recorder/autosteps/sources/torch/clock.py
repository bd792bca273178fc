"""The steps of a PyTorch job that says nothing: they end with an optimizer step and begin with the next batch.

An optimizer's step is told by torch's own global hook, the wait for a batch by a wrapper around the data loader's
`__next__`. Of several optimizers (a GAN's) the first one seen counts. Batches without an optimizer step belong to the
step in progress (accumulated gradients) if their loader is one that trains, and to no step if not (evaluation). Where
batches do not come from a data loader, a step lasts from one optimizer step to the next; the first one begins when the
optimizer was made. What was not known to be a step until later (the first one of a new loader, those of an optimizer
whose stage has only begun) becomes one then.

Measured with torch 2.13 on 2 shared cores (`benchmarks/step_cost.py`, 2026-11-23), in a loop of 0.4 ms a step: 7 µs a
step, clock included, and 4 µs for the hook of backward passes (`updates.py`).
"""

import functools
import threading
import time
import weakref
from itertools import pairwise
from typing import Any

from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording, PastStep
from phasepoint.recorder.autosteps.step_ends import told_after
from phasepoint.recorder.seam.guard import guarded
from phasepoint.recorder.seam.patch import patch_attribute

SWITCH_STEPS = 16
"""Steps of other optimizers in a row after which one becomes the clock: the first one's stage is over. Those that it
made until then become steps as well."""


OPTIMIZER_STEP = StepEvidence(Rank.OPTIMIZER_STEP, "torch", "optimizer steps (torch.optim)")


def install(late: LateRecording, module: str) -> None:
    """Put the hooks in; torch must have been imported."""
    TorchClock(late).install()


class TorchClock:
    """Turns batches and optimizer steps into the steps of a recording."""

    def __init__(self, late: LateRecording) -> None:
        self.guard = late.source_guard()
        self._late = late
        self._loaders: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()
        self._training: weakref.WeakSet[Any] = weakref.WeakSet()
        self._reset()

    def _reset(self) -> None:
        self._optimizer: weakref.ref[Any] | None = None
        self._others: list[tuple[int, int]] = []
        self._stranger: weakref.ref[Any] | None = None
        self._asked_ns = 0
        self._thread = 0
        self._current: weakref.ref[Any] | None = None
        self._early = _EarlySteps()
        self._stepped = False
        self._stepped_ns = 0
        self._asking = False
        self._in_step = False
        self._ending = False
        self._by_optimizer = False
        self._begins_here = False

    def install(self) -> None:
        """Put the hooks in; torch must have been imported."""
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
        from torch.utils.data import dataloader

        def steps(optimizer: Any, args: Any, kwargs: Any) -> None:
            self._late.is_optimizing = True

        def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
            late = self._late
            late.is_optimizing = False
            clock = self._optimizer
            if (  # the hot path of `_optimizer_stepped`: one step after another, without a loader
                late.leader is OPTIMIZER_STEP
                and self._begins_here
                and clock is not None
                and clock() is optimizer
                and self._thread == threading.get_ident()
            ):
                self._others.clear()
                late.mark()
            else:
                self._optimizer_stepped(optimizer)

        # As `torch.compiler.disable` marks a function, without importing the compiler for it: in a compiled optimizer
        # step the hook is called and not traced.
        steps._torchdynamo_disable = stepped._torchdynamo_disable = True  # type: ignore[attr-defined]
        register_optimizer_step_pre_hook(steps)
        register_optimizer_step_post_hook(stepped)
        patch_attribute(torch.optim.Optimizer, "__init__", told_after(self.guard, self._made))
        patch_attribute(torch.utils.data.DataLoader, "__iter__", self._wrap_iter)
        patch_attribute(dataloader._BaseDataLoaderIter, "__next__", self._wrap_next)
        self._late.add_source(OPTIMIZER_STEP.rank, finish=self._exit, reset=self._reset)

    def _made(self) -> None:
        self._early.made(time.perf_counter_ns())

    def _wrap_iter(self, make: Any) -> Any:
        @functools.wraps(make)
        def make_iterator(loader: Any) -> Any:
            iterator = make(loader)
            self._remember(iterator, loader)
            return iterator

        return make_iterator

    def _wrap_next(self, fetch: Any) -> Any:
        @functools.wraps(fetch)
        def fetch_batch(iterator: Any) -> Any:
            self._ask(iterator)
            try:
                batch = fetch(iterator)
            except StopIteration:
                self._stop(iterator)
                raise
            self._got(iterator, batch)
            return batch

        return fetch_batch

    @guarded
    def _remember(self, iterator: Any, loader: Any) -> None:
        self._loaders[iterator] = weakref.ref(loader)

    @guarded
    def _ask(self, iterator: Any) -> None:
        if self._is_elsewhere():
            return
        self._begins_here = False
        loader = self._loader(iterator)
        self._current = weakref.ref(loader)
        if not self._leads:
            past = self._early.ask(loader, time.perf_counter_ns())
            if past:
                self._open(past)
                self._begin()
        elif loader not in self._training:
            self._leave()
            if self._stranger is None or self._stranger() is not loader:
                self._stranger, self._asked_ns = self._current, time.perf_counter_ns()
        elif self._stepped or not self._in_step:
            self._begin()

    @guarded
    def _got(self, iterator: Any, batch: Any) -> None:
        if self._is_elsewhere():
            return
        if not self._leads:
            self._early.got_batch(time.perf_counter_ns())
        elif self._asking:
            self._late.got()
            self._late.take_batch(batch)
            self._in_step = True
            self._asking = False

    @guarded
    def _stop(self, iterator: Any) -> None:
        """A loader has no more batches; its last step may still be on its way (loaders that fetch ahead)."""
        if self._is_elsewhere():
            return
        self._current = None
        if not self._leads:
            self._early.stop(time.perf_counter_ns())
        elif self._loader(iterator) in self._training:
            if self._stepped or not self._in_step:
                self._leave()
            else:
                self._ending = True

    @guarded
    def _optimizer_stepped(self, optimizer: Any) -> None:
        past = self._become_clock(optimizer)
        if past is None or self._is_elsewhere():
            return
        self._thread = threading.get_ident()
        loader = self._current() if self._current is not None else None
        if loader is not None and loader not in self._training:
            self._training.add(loader)
            past = past or ([] if self._in_step else [time.perf_counter_ns()])
        if past and self._leads:
            self._recall(past)
        if not self._leads:
            early = self._early.optimizer_stepped(time.perf_counter_ns())
            if early:
                self._open(early)
                self._begin_here()
                self._by_optimizer = loader is not None
        elif self._ending:
            self._leave()
        elif loader is None or self._by_optimizer:
            self._begin_here()
        elif self._stepped:
            self._late.end_step_at(self._stepped_ns)
            self._begin_here()
            self._by_optimizer = True
        else:
            self._stepped = True
            self._stepped_ns = time.perf_counter_ns()

    def _open(self, past: list[PastStep]) -> None:
        self._late.open(OPTIMIZER_STEP, past, finish=self._finish)

    @property
    def _leads(self) -> bool:
        return self._late.leader is OPTIMIZER_STEP

    def _begin(self) -> None:
        """A training loader is asked for a batch: the step before ends here."""
        self._late.ask()
        self._asking = True
        self._in_step = self._stepped = self._by_optimizer = False

    def _begin_here(self) -> None:
        """A step without a batch of a loader: the one before ends here."""
        self._late.mark()
        self._in_step = True
        self._asking = self._stepped = False
        self._begins_here = self._current is None

    def _leave(self) -> None:
        if self._in_step or self._asking:
            self._late.end_loop()
        self._in_step = self._asking = self._stepped = self._ending = self._by_optimizer = self._begins_here = False

    def _finish(self) -> None:
        """The job is over: its last step ended with the optimizer's; without one it is none."""
        if self._stepped:
            self._late.end_loop_at(self._stepped_ns)
        else:
            self._late.drop_step()

    @guarded
    def _exit(self) -> None:
        """A job of one step has not opened its recording yet."""
        past = self._early.finish(time.perf_counter_ns())
        if past:
            self._open(past)

    def _loader(self, iterator: Any) -> Any:
        loader = self._loaders.get(iterator)
        return iterator if loader is None else loader() or iterator

    def _become_clock(self, optimizer: Any) -> list[int] | None:
        """When it stepped before, as long as it was not the clock; None while it is not."""
        clock = None if self._optimizer is None else self._optimizer()
        if clock is optimizer:
            self._others.clear()
            return []
        self._others.append((id(optimizer), time.perf_counter_ns()))
        if clock is not None and len(self._others) < SWITCH_STEPS:
            return None
        self._optimizer = weakref.ref(optimizer)
        stepped_ns = [at_ns for other, at_ns in self._others if other == id(optimizer)]
        self._others.clear()
        return stepped_ns

    def _recall(self, stepped_ns: list[int]) -> None:
        """Steps until it was known what they are: the first one ends the open step, or began with its loader."""
        if self._in_step:
            self._late.end_loop_at(stepped_ns[0])
            self._in_step = False
        elif self._stranger is not None and self._asked_ns < stepped_ns[0]:
            stepped_ns = [self._asked_ns, *stepped_ns]
        self._stranger = None
        self._late.recall([PastStep(began_ns, None, ended_ns) for began_ns, ended_ns in pairwise(stepped_ns)])

    def _is_elsewhere(self) -> bool:
        """Whether this is another thread than the one that makes the steps, or somebody knows better what a step is."""
        is_other = bool(self._thread) and threading.get_ident() != self._thread
        return is_other or not self._late.admits(OPTIMIZER_STEP)


class _EarlySteps:
    """The first steps, before the recording is open. What they return, if anything, is what it opens with."""

    def __init__(self) -> None:
        self._past: list[PastStep] = []
        self._loader: weakref.ref[Any] | None = None
        self._asked_ns: int | None = None
        self._got_ns: int | None = None
        self._stepped_ns: int | None = None
        self._made_ns: int | None = None

    def made(self, now_ns: int) -> None:
        """The first optimizer was made: without a batch, the first step begins here."""
        if self._made_ns is None:
            self._made_ns = now_ns

    def ask(self, loader: Any, now_ns: int) -> list[PastStep]:
        self._end_step(now_ns)
        same = self._loader is not None and self._loader() is loader
        if self._asked_ns is None or not same:
            self._asked_ns, self._got_ns = now_ns, None
            self._loader = weakref.ref(loader)
        return self._past

    def got_batch(self, now_ns: int) -> None:
        if self._asked_ns is not None and self._got_ns is None:
            self._got_ns = now_ns

    def stop(self, now_ns: int) -> None:
        self._end_step(now_ns)
        self._asked_ns = None

    def optimizer_stepped(self, now_ns: int) -> list[PastStep]:
        """A second optimizer step with no batch between: they come without a loader."""
        if self._stepped_ns is not None:
            began_ns = self._stepped_ns
            self._end_step(began_ns)
            self._past.append(PastStep(began_ns, None, now_ns))
            return self._past
        self._stepped_ns = now_ns
        return []

    def finish(self, now_ns: int) -> list[PastStep]:
        self._end_step(now_ns)
        return self._past

    def _end_step(self, now_ns: int) -> None:
        """If there was an optimizer step since the batch was asked for, that is a step; the next one begins here."""
        if self._stepped_ns is None:
            return
        if self._asked_ns is not None:
            self._past.append(PastStep(self._asked_ns, self._got_ns, now_ns))
        elif self._made_ns is not None:
            self._past.append(PastStep(self._made_ns, None, self._stepped_ns))
        self._asked_ns, self._got_ns = now_ns, None
        self._stepped_ns = None
