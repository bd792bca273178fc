"""Causes in how the run of `benchmarks/findings.py` is arranged: compiling, saving, evaluating, recording."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from findings_plan import JAX, JAX_SYNC, ROWS, TORCH, Cause, Job, Plan, Plant

_BALLAST = 6_000_000
"""Numbers saved beside the network: 24 MB."""

_THIN: dict[float, dict[str, Any]] = {0.05: {"budget": 0.0005}, 0.15: {"budget": 0.0}, 0.40: {"steps": 8}}
"""What makes a profile thin: a budget too small, no captures at all, too few steps."""


def new_shapes(plan: Plan) -> Plant:
    """The last rows of some batches are missing, never as many as before; without the cause batches are padded."""
    compiled = plan.framework == "torch"
    if not plan.planted or not plan.repeats:
        return Plant(compile=compiled)
    every = max(plan.steps // (plan.repeats + 1), 1)

    def is_new(step: int) -> bool:
        return step % every == 0 and 0 < step // every <= plan.repeats

    return Plant(
        compile=compiled,
        rows=lambda step: ROWS - step // every % 64 if is_new(step) else ROWS,
        marked=is_new,
    )


def cold_start(plan: Plan) -> Plant:
    """A deep program is compiled in the first step; without the cause it was compiled before."""
    is_torch = plan.framework == "torch"
    return Plant(depth=max(plan.repeats, 1), warm=not plan.planted, compile=is_torch, marked=lambda step: step == 0)


def saves(plan: Plan) -> Plant:
    """The loop waits for every checkpoint; by the remedy it goes on, and waits for the last one."""
    if not plan.planted or not plan.repeats:
        return Plant()
    every = max(plan.steps // plan.repeats, 1)
    folder, save = Path(plan.folder) / "checkpoints", _saving(plan)

    def after(step: int, job: Job) -> None:
        if step % every == every - 1:
            save(folder / f"{step:06d}", job, step + every >= plan.steps)

    return Plant(after=after)


def _saving(plan: Plan) -> Callable[[Path, Job, bool], None]:
    if plan.framework == "torch":
        import torch

        ballast, writer = torch.zeros(_BALLAST), ThreadPoolExecutor(1)

        def save_torch(path: Path, job: Job, is_last: bool) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            net, optimizer = job.state
            state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "ballast": ballast}
            if not plan.remedied:
                torch.save(state, path)
                return
            writing = writer.submit(torch.save, copy.deepcopy(state), path)
            if is_last:
                writing.result()

        return save_torch
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    checkpointer, more = ocp.StandardCheckpointer(), jnp.zeros(_BALLAST)

    def save_jax(path: Path, job: Job, is_last: bool) -> None:
        checkpointer.save(path, {"state": job.state, "ballast": more})
        if is_last or not plan.remedied:
            checkpointer.wait_until_finished()

    return save_jax


def evaluations(plan: Plan) -> Plant:
    """An evaluation comes round again and again; without the cause none does."""
    return Plant(evaluations=plan.repeats) if plan.planted else Plant()


def thin(plan: Plan) -> Plant:
    """Too little is recorded to judge by."""
    return Plant(**_THIN[plan.strength]) if plan.planted else Plant()


def clean(plan: Plan) -> Plant:
    """A good job with something of everything: a loader that takes a moment, a rare evaluation, a log line."""
    lines: list[str] = []

    def after(step: int, job: Job) -> None:
        if step % 50 == 49:
            lines.append(f"{step}: {float(job.loss):.4f}")

    def load(step: int) -> None:
        np.sort(np.arange(2000)[::-1])

    return Plant(after=after, load=load, evaluations=2 if plan.strength > 0.1 else 0, eval_batches=4)


_TORCH_COMPILES = (("torch", False, 0.40),)

_CACHES = {
    "JAX_COMPILATION_CACHE_DIR": "{cache}",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "TORCHINDUCTOR_CACHE_DIR": "{cache}",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "0",
}

CAUSES = (
    Cause(
        "RECOMPILE",
        new_shapes,
        (*JAX, *JAX_SYNC[1:], *_TORCH_COMPILES),
        shared=False,
        per="run",
        measured="marked",
        probe_repeats=4,
        also=("COMPILE-SHARE",),
    ),
    Cause(
        "COMPILE-SHARE",
        cold_start,
        (*JAX, *JAX_SYNC[1:], *_TORCH_COMPILES),
        shared=False,
        per="run",
        measured="marked",
        probe_repeats=20,
        remedy=_CACHES,
    ),
    Cause("CHECKPOINT-STALL", saves, (*JAX_SYNC, *TORCH), per="run", measured="hooks", probe_repeats=4, remedy={}),
    Cause("EVAL-SHARE", evaluations, (*JAX_SYNC, *TORCH), per="run", measured="hooks", probe_repeats=3),
    Cause("THIN-PROFILE", thin, (*JAX, *TORCH), costs=False),
    Cause("CLEAN", clean, (*JAX[:2], *JAX_SYNC[:2], *TORCH[:2]), costs=False),
)
