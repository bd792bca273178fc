"""What `phasepoint record` asks of the processes that it starts, passed on in their environment.

Its own file: the launcher writes it and the processes read it, and neither imports the other.
"""

import json
from dataclasses import asdict, dataclass

VARIABLE = "PHASEPOINT_AUTORECORD"
"""Environment variable that holds the options of a recording without code, as JSON."""


@dataclass(frozen=True)
class AutoOptions:
    """What `phasepoint record` was asked for.

    Attributes:
        path: run directory or URL.
        budget: as in `record`.
        window_steps: as in `record`.
    """

    path: str
    budget: float | None
    window_steps: int

    def to_environ(self) -> str:
        """The value of `VARIABLE`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_environ(value: str) -> "AutoOptions":
        """The options from the value of `VARIABLE`."""
        return AutoOptions(**json.loads(value))
