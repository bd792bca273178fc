"""What `phasepoint tune search` runs: replays of settings, on this machine or on those of a Ray cluster.

Its own file: a task travels between machines, which needs a function of a module; and tuning knows nothing of replays.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from phasepoint.tune.knobs import Setting
from phasepoint.tune.offline.search import Bounds, Measured
from phasepoint.tune.offline.space import SearchSpace

if TYPE_CHECKING:
    from phasepoint.summary.analysis import Analysis

NAME_CHARACTERS = 12  # of a machine, in the name of a folder


@dataclass(frozen=True)
class ReplayTask:
    """Settings that one machine runs, one after the other.

    Attributes:
        run: the recording.
        method: of its phases.
        phase: that is replayed.
        space: of the settings.
        words: the job's command.
        folder: where replays go.
        steps: that are timed.
        from_start: whether nothing is restored.
        settings: to run.
        bounds: of what each may take; None where nothing is known yet.
    """

    run: str
    method: str
    phase: str
    space: SearchSpace
    words: tuple[str, ...]
    folder: str
    steps: int
    from_start: bool
    settings: tuple[Setting, ...] = ()
    bounds: Bounds | None = None


def measure_settings(task: ReplayTask, ray_address: str | None) -> Callable[..., list[list[Measured]]]:
    """What a search asks: groups of settings, each for one machine."""
    from phasepoint.core.workers import map_tasks

    def measure(groups: Sequence[Sequence[Setting]], bounds: Bounds | None) -> list[list[Measured]]:
        tasks = [replace(task, settings=tuple(group), bounds=bounds) for group in groups]
        return map_tasks(run_settings, tasks, ray_address=ray_address, whole_machines=True)

    return measure


def run_settings(task: ReplayTask) -> list[Measured]:
    """Replay the phase once for each; what the job prints goes to stderr, so that stdout holds the answer alone."""
    from phasepoint.replay.timed import time_replay

    analysis, bounds = _analysis(task.run, task.method), task.bounds
    found = []
    for setting in task.settings:
        with _stdout_to_stderr():
            timed = time_replay(
                analysis,
                task.phase,
                task.space.words(task.words, setting),
                os.path.join(task.folder, f"replay-{os.uname().nodename[:NAME_CHARACTERS]}-{os.getpid()}"),  # noqa: PTH118
                environ={**os.environ, **task.space.environ(setting)},
                steps=task.steps,
                from_start=task.from_start,
                limit_s=None if bounds is None else bounds.run_s,
                hopeless_ns=None if bounds is None else round(bounds.step_ns * task.space.samples(setting)),
            )
        logged = {name: dict(values) for name, values in timed.logged.items()}
        found.append(Measured(timed.step_ns, timed.steps, timed.dur_s, timed.problem, logged or None))
    return found


@cache
def _analysis(run: str, method: str) -> "Analysis":
    from phasepoint.cli.opening import open_analysis

    return open_analysis(run, method)


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
