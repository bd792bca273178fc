"""Runs the demo's training job as a process of its own, as a user's job would run."""

import os
import subprocess
import sys
from importlib.util import find_spec

from phasepoint.core.errors import MissingExtraError, RecordError

_NEEDS = ("jax", "flax", "optax", "orbax.checkpoint")


def run_training(out: str, *, seconds: float, budget: float | None, seed: int = 0) -> None:
    """Train under the recorder into the run at `out`; returns when the job has ended.

    Raises:
        MissingExtraError: JAX, Flax, Optax or Orbax is not installed.
        RecordError: the job failed; its own messages stand above on stderr.
    """
    missing = [name for name in _NEEDS if not _is_installed(name)]
    if missing:
        raise MissingExtraError(f"the demo trains with JAX; {', '.join(missing)} is missing: pip install '.[jax]'")
    command = [sys.executable, "-m", "phasepoint.demo.train", "--out", out, "--seconds", str(seconds)]
    command += ["--seed", str(seed)] + ([] if budget is None else ["--budget", str(budget)])
    environment = {**os.environ, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}
    code = subprocess.run(command, env=environment, check=False).returncode
    if code:
        raise RecordError(f"the demo's training job ended with exit code {code}; its messages stand above")


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
