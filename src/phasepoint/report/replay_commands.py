"""The command that replays a phase, ready to be copied into a shell."""

import shlex
from collections.abc import Sequence

from phasepoint.report.names import printable


def replay_command(run: str, phase: str, command: Sequence[str], *, from_start: bool = False) -> str:
    """`phasepoint replay run RUN --phase P -- COMMAND…`, quoted; `COMMAND…` where the run does not know its command.

    Args:
        run: path of the run.
        phase: its name or id.
        command: words with which the job was started.
        from_start: whether the job is started from its beginning.
    """
    words = ["phasepoint", "replay", "run", run, "--phase", phase]
    words += ["--from-start"] if from_start else []
    text = " ".join(shlex.quote(printable(word)) for word in words)
    job = " ".join(shlex.quote(printable(word)) for word in command) or "COMMAND…"
    return f"{text} -- {job}"
