"""Training jobs on a card with one cause of lost time planted; called by `child.py`.

Each trains the same steps with the cause, recorded, and without it. What removing it saves is the truth that the
finding's seconds are held against.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.jobs import Job, make_job

BUDGET = 0.05
"""Of the recorder: these runs last seconds."""

EXTRA = 0.6
"""Share of a step by which a cause on the host is to lengthen it, about."""

CLEAN_S, SMALL_STEPS = 5.0, 30
PROBED_STEPS = 20

TINY_OPS, TINY_WIDTH = 400, 16
COPIED_BYTES = 256 << 20
SAVE_EVERY = 25
SHAPE_EVERY = 20


@dataclass(frozen=True)
class Loop:
    """A job with or without its cause.

    Attributes:
        step: trains on the batch of a number.
        load: called before the batch of a number is given.
        after: called after the step of a number, with its loss.
    """

    step: Callable[[int], Any]
    load: Callable[[int], None] = lambda index: None
    after: Callable[[int, Any], None] = lambda index, loss: None


@dataclass(frozen=True)
class Basis:
    """What a plant is put into.

    Attributes:
        job: the plain job.
        device: "cuda" or "cpu".
        small: sizes of a test.
        step_s: of the plain job.
        folder: for files.
    """

    job: Job
    device: str
    small: bool
    step_s: float
    folder: Path


def late_loader(basis: Basis, planted: bool) -> Loop:
    """Each batch takes longer to make than the step before takes to train."""
    wait_s = (1 + EXTRA) * basis.step_s if planted else 0.0
    return Loop(basis.job.step, load=lambda index: _work(wait_s))


def sync_every_step(basis: Basis, planted: bool) -> Loop:
    """The loss is fetched each step, before work on the host that the device would hide."""

    def after(index: int, loss: Any) -> None:
        if planted:
            loss.item()
        _work(EXTRA * basis.step_s)

    return Loop(basis.job.step, after=after)


def tiny_kernels(basis: Basis, planted: bool) -> Loop:
    """Small products one by one; without the cause in one batch."""
    import torch

    count = TINY_OPS // 20 if basis.small else TINY_OPS
    rows = torch.ones(count, 1, TINY_WIDTH, device=basis.device)
    weight = torch.eye(TINY_WIDTH, device=basis.device) * 0.5

    def step(index: int) -> Any:
        if planted:
            torch.stack([torch.tanh(row @ weight) for row in rows])
        else:
            torch.tanh(rows @ weight)
        return basis.job.step(index)

    return Loop(step)


def wide_type(basis: Basis, planted: bool) -> Loop:
    """All products in f32 with tf32 off; without the cause in bfloat16."""
    if not planted:
        return Loop(basis.job.step)
    wide = make_job("torch", "transformer", mode="wide", device=basis.device, small=basis.small)
    return Loop(wide.step)


def recompiling(basis: Basis, planted: bool) -> Loop:
    """A compiled function gets another shape again and again."""
    import torch

    compiled = torch.compile(
        lambda x: torch.tanh(x @ x.T).sum(), dynamic=False, backend="eager" if basis.small else "inductor"
    )
    torch._dynamo.config.cache_size_limit = torch._dynamo.config.recompile_limit = 10_000
    data = torch.ones(4096, 64, device=basis.device)
    compiled(data[:64])

    def step(index: int) -> Any:
        compiled(data[: 64 + (index // SHAPE_EVERY if planted else 0)])
        return basis.job.step(index)

    return Loop(step)


def slow_saves(basis: Basis, planted: bool) -> Loop:
    """The state is written to the disk every few steps."""
    import torch

    state = {"parameters": torch.frombuffer(bytearray(basis.job.state()), dtype=torch.uint8)}
    path = basis.folder / "state.pt"

    def after(index: int, loss: Any) -> None:
        if planted and index % SAVE_EVERY == SAVE_EVERY - 1:
            with path.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())

    return Loop(basis.job.step, after=after)


def exposed_copies(basis: Basis, planted: bool) -> Loop:
    """A batch of pageable memory is copied to the device each step; without the cause it is there."""
    import torch

    host = torch.ones((COPIED_BYTES >> 8 if basis.small else COPIED_BYTES) // 4)
    there = host.to(basis.device)

    def step(index: int) -> Any:
        (host.to(basis.device) if planted else there).sum()
        return basis.job.step(index)

    return Loop(step)


@dataclass(frozen=True)
class Plant:
    """One cause.

    Attributes:
        make: the job with it or without.
        codes: of the findings that may tell of it, the one meant first.
        net: of the plain job.
        needs: as of a row.
    """

    make: Callable[[Basis, bool], Loop]
    codes: tuple[str, ...]
    net: str = "transformer"
    needs: tuple[str, ...] = ()


PLANTS: dict[str, Plant] = {
    "a late loader": Plant(late_loader, ("INPUT-STALL",)),
    "a sync every step": Plant(sync_every_step, ("SYNC-EVERY-STEP", "DEVICE-IDLE"), needs=("cuda",)),
    "tiny kernels": Plant(tiny_kernels, ("TINY-KERNELS", "HOST-DISPATCH")),
    "f32 where bf16 would do": Plant(wide_type, ("LOW-PRECISION",), needs=("cuda",)),
    "recompilation": Plant(recompiling, ("RECOMPILE", "COMPILE-SHARE")),
    "slow checkpoints": Plant(slow_saves, ("CHECKPOINT-STALL",)),
    "exposed copies": Plant(exposed_copies, ("DATA-MOVEMENT",), net="cnn", needs=("cuda",)),
}


def judged(*, name: str, device: str, small: bool) -> dict[str, Any]:
    """Train with and without a cause, and say what the findings make of it.

    Returns:
        `clean_s` and `planted_s` of the same steps; `own_s`, the recorder's account; `findings`, each with its code and
        seconds; `verdict`; `steps` and `windows`.
    """
    from phasepoint.findings.judge import judge_analysis
    from phasepoint.recorder import record
    from phasepoint.sources.ingest.opened import open_run
    from phasepoint.summary.analysis import analyse_run

    plant = PLANTS[name]
    job = make_job("torch", plant.net, device=device, small=small)
    with tempfile.TemporaryDirectory(prefix="phasepoint-gpu-") as folder:
        step_s = _loop_s(Loop(job.step), range(PROBED_STEPS), job.wait) / PROBED_STEPS
        basis = Basis(job, device, small, step_s, Path(folder))
        steps = SMALL_STEPS if small else max(SMALL_STEPS, int(CLEAN_S / step_s))
        clean, planted = plant.make(basis, False), plant.make(basis, True)
        for loop in (clean, planted):
            _loop_s(loop, range(3), job.wait)
        clean_s = _loop_s(clean, range(steps), job.wait)
        out = f"{folder}/run"
        with record(out, budget=BUDGET, framework="torch") as run:
            planted_s = _loop_s(planted, run.steps(_loading(planted, steps)), job.wait, is_loading=True)
        found = judge_analysis(analyse_run(open_run(out)))
        return {
            "clean_s": clean_s,
            "planted_s": planted_s,
            "own_s": run.cost.total_ps / 1e12,
            "steps": steps,
            "windows": run.cost.windows,
            "verdict": found.verdict.text,
            "findings": [
                {"code": one.code} | {end: getattr(one, f"{end}_ps") / 1e12 for end in ("saved", "low", "high")}
                for one in found.findings
            ],
        }


def _loading(loop: Loop, steps: int) -> Iterator[int]:
    for index in range(steps):
        loop.load(index)
        yield index


def _loop_s(loop: Loop, numbers: Any, wait: Callable[[], None], *, is_loading: bool = False) -> float:
    wait()
    began_s = time.perf_counter()
    for index in numbers:
        if not is_loading:
            loop.load(index)
        loop.after(index, loop.step(index))
    wait()
    return time.perf_counter() - began_s


def _work(seconds: float) -> None:
    """Work of the host's for so long."""
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        pass
