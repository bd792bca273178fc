"""Steps of a PyTorch job that changes its parameters by hand: a backward pass, then other parameters than before it.

`p.data.add_(p.grad, alpha=-lr)`, `p -= lr * p.grad` under `no_grad`, a library's own optimizer: none of torch's is
called. What can be seen is each backward pass (private: `torch.autograd._engine_run_backward`), and at the next one
whether a few of the parameters it reached were written to, replaced, or had their gradients taken away. Accumulated
gradients are therefore one step. A step begins with a backward pass and lasts until the next one that finds changed
parameters; the last one ends with its backward pass, which nothing comes after.

The search for parameters goes through the graph of the first backward pass and is repeated while none is known; every
other backward pass costs a look at the versions of up to `MOST_PARAMETERS` tensors and of their gradients. Their first
values are read only while nothing else has told of an update, and never on a device.
"""

import functools
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording, PastStep
from phasepoint.recorder.seam.guard import guarded
from phasepoint.recorder.seam.patch import patch_attribute
from phasepoint.recorder.seam.session import Remove

PARAMETER_UPDATE = StepEvidence(
    Rank.PARAMETER_UPDATE,
    "torch",
    "updates of parameters after a backward pass (torch.optim was not used)",
)

MOST_PARAMETERS = 2
"""Parameters looked at: one may be frozen later, or be a buffer of the loss."""

MOST_NODES = 20_000
"""Nodes of the graph that a search visits, a microsecond each."""

MOST_SEARCHES = 8
"""Searches for parameters. A job whose parameters are new tensors in every step needs one each time, and is let be
after so many that found the same tensors unchanged."""

HINT = (
    "backward passes were seen, but neither an optimizer's step nor a change of the parameters after them could be "
    "followed"
)


def install(late: LateRecording, module: str) -> None:
    """Put the hook in; `torch.autograd` must have been imported."""
    updates = ParameterUpdates(late, sys.modules[module])
    late.add_source(PARAMETER_UPDATE.rank, finish=updates.finish, reset=updates.reset)


@dataclass(frozen=True)
class _Seen:
    """What is compared of one parameter: versions change with every write that autograd knows of, values with all."""

    version: int
    gradient: tuple[int, int] | None
    value: float | None


class ParameterUpdates:
    """Turns backward passes whose parameters changed afterwards into steps."""

    def __init__(self, late: LateRecording, autograd: Any) -> None:
        self.guard = late.source_guard()
        self._late = late
        self._autograd = autograd
        self._leave: Remove | None = None
        self.reset()

    def reset(self) -> None:
        """Forget what was seen, and look anew; in a forked child."""
        if self._leave is None:
            self._leave = patch_attribute(self._autograd, "_engine_run_backward", self.wrap)
        self._parameters: list[weakref.ref[Any]] = []
        self._seen: list[_Seen] = []
        self._searches = 0
        self._passes = 0
        self._reads_values = True
        self._thread = 0
        self._is_inside = False
        self._began_ns: int | None = None
        self._ended_ns = 0
        self._past: list[PastStep] = []

    def wrap(self, run: Any) -> Any:
        """Stands in front of the engine."""

        late = self._late

        @functools.wraps(run)
        def run_and_look(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            leader = late.leader
            if leader is not None and leader.rank > Rank.PARAMETER_UPDATE:
                if self._leave is not None:  # nobody weaker will lead any more: passing it on takes 2 µs of each step
                    self._leave()
                    self._leave = None
                return run(t_outputs, *args, **kwargs)
            looks = self._before(t_outputs)
            try:
                return run(t_outputs, *args, **kwargs)
            finally:
                if looks:
                    self._after()

        return run_and_look

    @guarded
    def _before(self, outputs: Any) -> bool:
        """A backward pass begins; True if it is one of the loop's own."""
        thread = threading.get_ident()
        late = self._late
        if self._is_inside or late.is_optimizing or not late.admits(PARAMETER_UPDATE):
            return False
        if self._thread and thread != self._thread:
            return False
        self._thread = thread
        self._is_inside = True
        self._passes += 1
        now_ns = time.perf_counter_ns()
        if self._began_ns is None:
            self._began_ns = now_ns
        elif self._have_changed():
            self._step(now_ns)
        if not self._seen or self._needs_search:
            self._search(outputs)
        return True

    @guarded
    def _after(self) -> None:
        self._is_inside = False
        self._ended_ns = time.perf_counter_ns()
        alive = self._alive()
        self._parameters = [weakref.ref(parameter) for parameter in alive]
        # One value is always read: after the last pass nothing else may tell of the update.
        self._seen = [_look(parameter, reads_value=self._reads_values or not at) for at, parameter in enumerate(alive)]

    @property
    def _needs_search(self) -> bool:
        return self._passes > 1 and self._began_ns is not None and not self._past and self._searches < MOST_SEARCHES

    def _have_changed(self, *, is_last: bool = False) -> bool:
        known = [(reference(), before) for reference, before in zip(self._parameters, self._seen, strict=False)]
        alive = [(parameter, before) for parameter, before in known if parameter is not None]
        if known and not alive:
            self._parameters, self._seen = [], []  # new tensors have taken their place
            return True
        if any(_differs(before, _look(parameter, reads_value=False)) for parameter, before in alive):
            self._reads_values = False
            return True
        reads_values = self._reads_values or is_last
        return reads_values and any(
            before.value is not None and before.value != _first_value(parameter) for parameter, before in alive
        )

    def _alive(self) -> list[Any]:
        parameters = (reference() for reference in self._parameters)
        return [parameter for parameter in parameters if parameter is not None]

    def _step(self, now_ns: int) -> None:
        if self._late.leader is PARAMETER_UPDATE:
            self._late.mark()
        elif self._began_ns is not None:
            self._past.append(PastStep(self._began_ns, None, now_ns))
            if len(self._past) > 1:
                self._open()
        self._began_ns = now_ns

    def _open(self) -> None:
        self._late.open(PARAMETER_UPDATE, self._past, finish=self._finish_step)
        if self._late.leader is PARAMETER_UPDATE:
            self._late.mark()

    def _finish_step(self) -> None:
        """The last step ended with its backward pass, if parameters changed after it."""
        if self._have_changed(is_last=True):
            self._late.end_loop_at(self._ended_ns)
        else:
            self._late.drop_step()

    @guarded
    def finish(self) -> None:
        """The process ends: a job of few steps has not opened its recording yet."""
        if self._began_ns is not None and self._have_changed(is_last=True):
            self._past.append(PastStep(self._began_ns, None, self._ended_ns))
        if self._past:
            self._late.open(PARAMETER_UPDATE, self._past, finish=self._late.drop_step)
        elif self._passes > 1:
            self._late.hint(HINT)

    def _search(self, outputs: Any) -> None:
        """Find parameters in the graph of a backward pass."""
        self._searches += 1
        found = _parameters(output.grad_fn for output in outputs if getattr(output, "grad_fn", None) is not None)
        known = self._alive()
        if self._seen and found and not any(parameter is one for parameter in found for one in known):
            self._step(time.perf_counter_ns())  # other tensors than in the pass before
        self._parameters = [weakref.ref(parameter) for parameter in found]


def _parameters(roots: Iterable[Any]) -> list[Any]:
    """The first few tensors that gradients are accumulated into, breadth first."""
    found: list[Any] = []
    waiting = deque(roots)
    seen: set[Any] = set()
    while waiting and len(found) < MOST_PARAMETERS and len(seen) < MOST_NODES:
        node = waiting.popleft()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        waiting.extend(following for following, _ in node.next_functions if following is not None)
    declared = [one for one in found if isinstance(one, sys.modules["torch"].nn.Parameter)]
    return declared or found  # without a module's parameters, any tensor may be one; an input has its gradient too


def _look(parameter: Any, *, reads_value: bool) -> _Seen:
    gradient = parameter.grad
    of_gradient = None if gradient is None else (gradient.data_ptr(), gradient._version)
    return _Seen(parameter._version, of_gradient, _first_value(parameter) if reads_value else None)


def _first_value(parameter: Any) -> float | None:
    """Its first element, where reading it waits for no device: a write through `.data` leaves the version alone.

    FSDP frees the whole parameter between passes: it has elements then, but no memory.
    """
    if parameter.device.type != "cpu" or not parameter.numel() or parameter.layout is not sys.modules["torch"].strided:
        return None
    if not parameter.untyped_storage().nbytes():
        return None
    return float(parameter.detach().view(-1)[0]) if parameter.is_contiguous() else None


def _differs(before: _Seen, now: _Seen) -> bool:
    """Whether a parameter was written to, or its gradient taken away or written to, since the last pass."""
    taken_away = before.gradient is not None and now.gradient != before.gradient
    return now.version != before.version or taken_away
