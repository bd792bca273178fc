"""The device that a prediction is for, found by the name that the user gives."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from types import MappingProxyType

from phasepoint.core.errors import ModelError
from phasepoint.devices.specs import DeviceSpec, device_spec, device_specs

_NAMES_SHOWN = 5
_TPU_ALIASES = ("tpu",)


@dataclass(frozen=True)
class Target:
    """What is predicted for.

    Attributes:
        name: product, or the CPU of the model that was trained on one.
        kind: cpu, gpu or tpu.
        spec: what it can do at most; None for a CPU, whose peaks stand in its model.
    """

    name: str
    kind: str
    spec: DeviceSpec | None


def resolve_target(text: str) -> Target:
    """The device of a name.

    Args:
        text: `cpu`, or a product as a driver reports it, or a part that only one product has: `tpu-v4`, `RTX 4090`;
            case and punctuation do not matter.

    Raises:
        ModelError: no device of the table is meant, or several could be.

    Example:
        >>> resolve_target("tpu-v4").name
        'TPU v4'
    """
    if text.strip().lower() == "cpu":
        return Target("cpu", "cpu", None)
    spec = device_spec(text)
    if spec is None:
        spec = _only_product(text)
    return Target(spec.name, "tpu" if spec.name.startswith("TPU") else "gpu", spec)


def _only_product(text: str) -> DeviceSpec:
    wanted = _plain(text)
    found = {}
    for spec in device_specs():
        names = {_plain(name) for name in _names_of(spec)}
        if wanted and any(wanted in name for name in names):
            found[spec.name] = spec
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise ModelError(
            f"device {text!r} is several products, whose times differ: {', '.join(sorted(found))}; name one of them"
        )
    raise ModelError(_unknown(text))


def _unknown(text: str) -> str:
    plain = _plain_names()
    near = [plain[name].name for name in get_close_matches(_plain(text), plain, n=_NAMES_SHOWN, cutoff=0.5)]
    meant = f"near it are: {', '.join(dict.fromkeys(near))}; " if near else ""
    return (
        f"no device called {text!r} is known; {meant}`phasepoint devices` lists all, and `cpu` is the model's own CPU"
    )


def _names_of(spec: DeviceSpec) -> tuple[str, ...]:
    return (spec.name, f"{spec.vendor} {spec.name}", *([spec.architecture] if spec.architecture else []))


@cache
def _plain_names() -> Mapping[str, DeviceSpec]:
    return MappingProxyType({_plain(name): spec for spec in device_specs() for name in _names_of(spec)})


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
