"""Measurements in a process of their own: a card's context, a profiler or a crash of one must not reach another.

python -m benchmarks.gpu.child turns.overhead '{"framework": "torch", …}'
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu.jobs import environ_of
from benchmarks.gpu.suite import Setting

ROOT = Path(__file__).resolve().parents[2]
"""Of the repository."""

TOLD_CHARACTERS = 1500
"""Of what a process that failed wrote last."""


def call(setting: Setting, function: Callable[..., Any], **arguments: Any) -> Any:
    """Call a function of this package for a row: in a process of its own, or at a test's sizes right here.

    Args:
        setting: of the row.
        function: takes and gives what JSON holds; told the device and whether sizes are small.
        arguments: its others, by name.

    Raises:
        RuntimeError: the process failed or took too long; with the end of what it wrote.
    """
    arguments |= {"device": setting.device, "small": setting.is_small}
    if setting.is_small:
        return function(**arguments)
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    words = [sys.executable, "-m", "benchmarks.gpu.child", name, json.dumps(arguments)]
    return json.loads(run_command(words, setting.limit_s, environ=environ_of(setting.device)).splitlines()[-1])


def run_command(words: Sequence[str], limit_s: float, *, environ: Mapping[str, str] | None = None) -> str:
    """What a command prints.

    Raises:
        RuntimeError: it failed or took too long; with the end of what it wrote.
    """
    told = " ".join(words[1:5])
    options: dict[str, Any] = {"cwd": ROOT, "env": {**os.environ, **(environ or {})}, "timeout": limit_s}
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{told}: not done after {limit_s:.0f} s") from error
    if done.returncode:
        raise RuntimeError(f"{told}: exit code {done.returncode}: {done.stderr[-TOLD_CHARACTERS:]}")
    return done.stdout


def main() -> None:
    module, _, function = sys.argv[1].rpartition(".")
    found = getattr(import_module(f"benchmarks.gpu.{module}"), function)(**json.loads(sys.argv[2]))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
