"""What the suite runs on: the card, its driver, the versions of what is installed; and what is not here."""

import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("torch", "triton", "jax", "jaxlib", "flax", "optax", "numpy", "pyarrow", "numba", "traceml-ai")
"""Whose versions are told, beside Phasepoint's own."""


def _without_cuda() -> str:
    import torch

    return "" if torch.cuda.is_available() else "PyTorch sees no CUDA device"


def _without_jax_gpu() -> str:
    import jax

    return "" if jax.default_backend() == "gpu" else f"JAX runs on {jax.default_backend()} here"


def _without_nvml() -> str:
    if find_spec("pynvml") is None:
        return "nvidia-ml-py is not installed"
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"NVML does not start: {error}"
    return ""


def _without(package: str) -> Callable[[], str]:
    return lambda: "" if find_spec(package) is not None else f"{package} is not installed"


MISSING: Mapping[str, Callable[[], str]] = {
    "cuda": _without_cuda,
    "jax-gpu": _without_jax_gpu,
    "nvml": _without_nvml,
    "torch": _without("torch"),
    "jax": _without("jax"),
    "optax": _without("optax"),
    "traceml": _without("traceml_ai"),
    "pillow": _without("PIL"),
}
"""What a row may need → why it is not here; empty where it is."""


@cache
def _why_missing(need: str) -> str:
    return MISSING[need]()


def missing(needs: Sequence[str]) -> str:
    """Why some of what is needed is not here; empty where all is."""
    return "; ".join(why for need in needs if (why := _why_missing(need)))


def describe_machine(device: str) -> dict[str, str]:
    """The card and the host, in words."""
    host = {"cores": str(len(os.sched_getaffinity(0))), "system": f"{platform.system()} {platform.machine()}"}
    if device != "cuda":
        return {"card": "none", **host}
    import torch

    card = torch.cuda.get_device_properties(0)
    asked = "driver_version,clocks.max.sm,clocks.max.mem,power.limit"
    told = _output(["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader", "--id=0"]).split(", ")
    names = ("driver", "most SM clock", "memory clock", "power limit")
    return {
        "card": card.name,
        "memory": f"{card.total_memory / 2**30:.1f} GiB",
        **dict(zip(names, told, strict=False)),
        "CUDA": str(torch.version.cuda),
        **host,
    }


def describe_versions() -> dict[str, str]:
    """Of Python, Phasepoint with its commit, and the packages that are here."""
    commit = _output(["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"])
    found = {"Python": platform.python_version(), "phasepoint": f"{_version('phasepoint')} {commit}".strip()}
    return found | {name: text for name in PACKAGES if (text := _version(name))}


def card_name() -> str:
    """As the driver reports it."""
    import torch

    return str(torch.cuda.get_device_name(0))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if not done.returncode else ""


def where_am_i(*, device: str, small: bool, fails: bool = False) -> dict[str, int]:
    """The process that measures; a function for `child.call` that needs nothing."""
    if fails:
        raise RuntimeError(f"no such device: {device}")
    return {"pid": os.getpid()}
