"""What a job of `benchmarks/findings.py` is told: which cause, how strong, and whether it is planted or taken away."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ROWS = 128
"""Rows of a batch."""


@dataclass(frozen=True)
class Plan:
    """One job.

    Attributes:
        framework: "jax" or "torch".
        ahead: whether the host runs one step ahead of the device; else it waits for every step's end (JAX alone).
        strength: share of the run's time that the cause is meant to cost, 0–1; 0 in a shared control.
        planted: whether the cause is in; the same job without it is the control.
        toggle: whether blocks of steps with and without the cause take turns; such a job is not recorded.
        steps: training steps.
        step_s: what a step takes without the cause, as probed here.
        repeats: how often the planted piece of work is done a step, or a run.
        out: where to record; None to run without a recorder.
        budget: of the recorder.
        rank, ranks: of a job of several processes.
        folder: of the job's own files.
        remedied: whether the job does what the finding advises; the cause stays where it is.
    """

    framework: str
    ahead: bool
    strength: float
    planted: bool
    toggle: bool
    steps: int
    step_s: float
    repeats: int
    out: str | None
    budget: float | None
    folder: str
    rank: int = 0
    ranks: int = 1
    remedied: bool = False

    @property
    def extra_s(self) -> float:
        """Seconds a step by which the cause is to lengthen it: then it costs `strength` of the run."""
        return self.step_s * self.strength / (1 - self.strength)

    @property
    def host_s(self) -> float:
        """Seconds of host work a step that lengthen it by `extra_s`: where the host runs ahead, the rest is hidden."""
        return self.step_s + self.extra_s if self.ahead and self.framework == "jax" else self.extra_s


@dataclass
class Job:
    """What a hook sees of the running job.

    Attributes:
        run: the recording; None where nothing is recorded.
        state: parameters and optimizer state (JAX), or module and optimizer (PyTorch).
        loss: of the step that was issued last; its value may still be on its way.
        before: loss of the step before, for which a host waits that runs ahead.
        wait: wait for what was issued.
    """

    run: Any
    state: Any
    loss: Any = None
    before: Any = None
    wait: Callable[[], None] = lambda: None


@dataclass
class Plant:
    """What a cause puts into a job; each hook gets the step's number.

    Attributes:
        load: in the loader, before a batch is given.
        after: in the loop, after the step was issued.
        device: on the device, traced into the step (JAX) or called in it (PyTorch): `(images, step) -> images`.
        rows: rows of a step's batch.
        evaluations: how many evaluations are spread over the run, each in a loop of its own.
        eval_batches: batches of one evaluation.
        fetch: whether the loss is fetched every step, before `after`.
        warm: whether the step is compiled before the recording begins.
        compile: whether PyTorch's step is compiled.
        depth: small layers added to the network, each of them a part of the program.
        marked: steps that the cause alone makes long: what they take beyond their neighbours is what it costs.
        steps, budget: instead of the plan's.
    """

    load: Callable[[int], None] | None = None
    after: Callable[[int, Job], None] | None = None
    device: Callable[[Any, Any], Any] | None = None
    rows: Callable[[int], int] = field(default=lambda step: ROWS)
    evaluations: int = 0
    eval_batches: int = 20
    fetch: bool = False
    warm: bool = True
    compile: bool = False
    depth: int = 0
    marked: Callable[[int], bool] | None = None
    steps: int | None = None
    budget: float | None = None


@dataclass(frozen=True)
class Cause:
    """One rule's planted cause.

    Attributes:
        code: of the rule that must find it.
        plant: the hooks, from a plan.
        cases: framework, whether the host runs ahead, and strength of every job.
        shared: whether the control is the plain job, shared with other causes; else the same job without the cause.
        per: what `repeats` counts: pieces a "step" or a "run"; "" where the plan's seconds are planted as such.
        measured: how the saving is measured: "toggle" (blocks with and without it take turns in one process), "hooks"
            (a clock around what was planted, beside which nothing runs; where the host runs ahead, "toggle" instead),
            "marked" (excess of the steps hit).
        probe_repeats: repeats of the probe that finds out what one piece costs.
        costs: whether it is judged by time; else it must be found at every strength.
        also: other codes that may tell of the same time.
        ranks: processes of the job.
        environ: environment of its processes.
        nets: jobs of its own, by framework, instead of the plain ones.
        times: how many times as long as the others these jobs are: where windows are dear, 8 s at a budget of 5 % pay
            for two of them, and the recorder keeps to its budget.
        remedy: where the advised remedy leaves a part of the cost: environment of the job that follows it, "{cache}" a
            folder that is filled by a first such job. What that job still pays is no saving.
    """

    code: str
    plant: Callable[[Plan], Plant]
    cases: tuple[tuple[str, bool, float], ...]
    shared: bool = True
    per: str = ""
    measured: str = "toggle"
    probe_repeats: int = 1
    costs: bool = True
    also: tuple[str, ...] = ()
    ranks: int = 1
    environ: dict[str, str] = field(default_factory=dict)
    nets: dict[str, Callable[[Plan, "Plants"], dict[str, Any]]] = field(default_factory=dict)
    times: int = 1
    remedy: dict[str, str] | None = None


Plants = dict[bool, Plant]
"""What is in the job with the cause (True) and without it (False)."""

STRENGTHS = (0.05, 0.15, 0.40)
FIVE_STRENGTHS = (0.05, 0.10, 0.15, 0.25, 0.40)
"""Of causes that one sort of job alone can have."""
JAX = tuple(("jax", True, strength) for strength in STRENGTHS)
"""The host runs ahead."""
JAX_SYNC = tuple(("jax", False, strength) for strength in STRENGTHS)
"""The host waits for every step."""
TORCH = tuple(("torch", False, strength) for strength in STRENGTHS)
TORCH_FIVE = tuple(("torch", False, strength) for strength in FIVE_STRENGTHS)


def measured_by(cause: Cause, plan: Plan) -> str:
    """How this job's saving is measured: see `Cause.measured`."""
    return "toggle" if cause.measured == "hooks" and plan.ahead else cause.measured


class Work:
    """Real work of a processor for about so many seconds: a fixed number of smoothing passes over an image."""

    def __init__(self) -> None:
        import time

        self._image = np.random.default_rng(0).standard_normal((48, 48), dtype=np.float32)
        times = []
        for _ in range(7):
            began = time.perf_counter()
            self._smooth(50)
            times.append((time.perf_counter() - began) / 50)
        self._pass_s = min(times)

    def _smooth(self, passes: int) -> None:
        image = self._image
        for _ in range(passes):
            image = (image + np.roll(image, 1, axis=0) + np.roll(image, 1, axis=1)) / 3

    def __call__(self, seconds: float) -> None:
        self._smooth(round(seconds / self._pass_s))
