"""Settings that a run has found, taken to another run of the same job in its environment."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from phasepoint.core.errors import UsageError
from phasepoint.devices.cpu_now import cpu_model
from phasepoint.tune.limits import usable_cpus

VARIABLE = "PHASEPOINT_TUNE"
"""Environment variable: `off` leaves loaders as they are written; else what `phasepoint tune --apply` sets, as JSON."""


@dataclass(frozen=True)
class Applied:
    """What a job starts with.

    Attributes:
        is_off: whether nothing is tuned.
        settings: by the loader's name.
        machine: where they were found.
    """

    is_off: bool = False
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    machine: str = ""

    def to_environ(self) -> str:
        """The value of `VARIABLE`."""
        return json.dumps({"settings": {name: dict(s) for name, s in self.settings.items()}, "machine": self.machine})

    @staticmethod
    def from_environ(value: str | None = None) -> "Applied":
        """From the value of `VARIABLE`, or from the environment.

        Raises:
            UsageError: it is neither `off` nor what `to_environ` gives.
        """
        value = os.environ.get(VARIABLE, "") if value is None else value
        if value.strip().lower() in {"off", "0"}:
            return Applied(is_off=True)
        if not value.strip():
            return Applied()
        try:
            content = json.loads(value)
            settings = {str(name): dict(setting) for name, setting in content["settings"].items()}
            return Applied(settings=settings, machine=str(content.get("machine", "")))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(
                f"{VARIABLE} is {value[:80]!r}; expected 'off', nothing, or what `phasepoint tune --apply` sets"
            ) from error


@cache
def this_machine() -> str:
    """What decides how many workers are best: processor, cores that may be used, memory."""
    gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return f"{cpu_model()}, {usable_cpus():g} cores, {gigabytes:.0f} GB"
