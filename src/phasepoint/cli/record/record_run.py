"""What `phasepoint record` does, without the command line's library, whose import costs more than all this.

A command line written in the plain way (`--out RUN … -- COMMAND…`) is read here; Typer reads all others, and explains.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phasepoint.recorder.process.launch import Launched
    from phasepoint.report.words.recorded_line import Tally

NO_LIMIT = "none"

CLEARLY_ENOUGH_STEPS = 20
"""Steps a process below which the run is looked at as a whole, to say whether it can be judged."""

_TALLIED = ("steps", "windows", "wall_ps", "cost_ps", "outside_ps", "losses")


@dataclass(frozen=True)
class RecordWords:
    """The words of a command line `phasepoint record`, as they were written."""

    out: str
    command: tuple[str, ...]
    budget: str = "0.01"
    window_steps: int = 5
    force: bool = False
    quiet: bool = False
    as_json: bool = False


def read_plain(words: Sequence[str]) -> RecordWords | None:
    """The words after `phasepoint record`; None where they are for Typer to read: help, mistakes, short forms.

    Args:
        words: such as `["--out", "RUN", "--", "python", "train.py"]`.
    """
    if "--" not in words:
        return None
    at = words.index("--")
    own, command = list(words[:at]), tuple(words[at + 1 :])
    values: dict[str, str] = {}
    flags = {"--force": False, "--quiet": False, "--json": False}
    while own:
        name, mark, value = own.pop(0).partition("=")
        if name in flags and not mark and not flags[name]:
            flags[name] = True
        elif name in {"--out", "--budget", "--window-steps"} and name not in values and (mark or own):
            values[name] = value if mark else own.pop(0)
        else:
            return None
    window_steps = values.pop("--window-steps", "5")
    if not command or "--out" not in values or not (window_steps.isascii() and window_steps.isdecimal()):
        return None
    if int(window_steps) < 1 or any(value.startswith("-") for value in values.values()):
        return None
    budget = values.get("--budget", RecordWords.budget)
    chosen = (flags["--force"], flags["--quiet"], flags["--json"])
    return RecordWords(values["--out"], command, budget, int(window_steps), *chosen)


def record_command(words: RecordWords) -> int:
    """Run the command under the recorder, say what was recorded, and return the command's exit code.

    Raises:
        UsageError: the budget is no ratio, or the command is empty.
        OutputExistsError, RecordError: the run cannot be written there, or the command cannot be started.
    """
    from phasepoint.core.errors import StoreError
    from phasepoint.recorder.process.launch import launch
    from phasepoint.recorder.seam.options import AutoOptions

    share = _parse_budget(words.budget)
    options = AutoOptions(_prepare(words.out, force=words.force), share, words.window_steps)
    launched = launch(words.command, options)
    try:
        _say(words, options.path, launched)
    except StoreError as error:  # the command has done its work: its exit code counts
        sys.stderr.write(f"note: {error}\n")
    return launched.exit_code


def _parse_budget(text: str) -> float | None:
    """A ratio from 0 to 1, or None for no limit.

    Raises:
        UsageError: it is neither.
    """
    from phasepoint.cli.ratios import ratio_option

    return None if text.lower() == NO_LIMIT else ratio_option("--budget", text, most=1, or_else=NO_LIMIT)


def _prepare(out: str, *, force: bool) -> str:
    """Make sure that the run can be written before anything is started, and make a local path absolute.

    Raises:
        OutputExistsError: something that is no run is there, or beside a run that `force` is to remove.
        RecordError: the folder cannot be written.
    """
    from phasepoint.core.errors import OutputExistsError, RecordError

    if "://" in out:
        return out
    path = Path(out).absolute()
    if path.is_file() or (path.is_dir() and any(path.iterdir()) and not (path / "run.json").is_file()):
        raise OutputExistsError(f"{out}: exists and is no run; choose another place with --out")
    try:
        if force and path.is_dir():
            from phasepoint.store.removal import remove_run

            remove_run(path, out)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{error.filename or out}: {error.strerror}; choose another place with --out") from error
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise RecordError(f"{out}: no permission to write; choose another place with --out")
    return str(path)


def _say(words: RecordWords, path: str, launched: "Launched") -> None:
    """What was recorded: one line on stderr, a document on stdout with `--json`, and what is missing, on stderr."""
    if words.quiet and not words.as_json:
        if "://" in path or not (Path(path) / "run.json").is_file():
            _create(path, words.command)
        return
    tally = None if words.as_json else read_tally(path)
    if tally is not None:
        from phasepoint.report.words.recorded_line import recorded_line

        sys.stderr.write(f"{recorded_line(tally, words.out, launched.dur_ps)}\n")
        return
    _say_from_tables(words, path, launched)


def _say_from_tables(words: RecordWords, path: str, launched: "Launched") -> None:
    """The same where the run has to be looked at: a process did not close it, or what there is tells too little."""
    from phasepoint.cli.console import write_notes
    from phasepoint.report.documents import to_json
    from phasepoint.report.words.recorded_line import recorded_line, tally_of
    from phasepoint.store import open_run
    from phasepoint.summary.enough import count_recorded

    _create(path, words.command)
    found = count_recorded(open_run(path))
    if words.as_json:
        facts = {"steps": found.steps, "windows": found.windows, "hosts": found.processes}
        cost = {"cost_ps": found.cost.total_ps, "cost_ratio": found.cost.share, "not_enough": found.not_enough}
        ending = {"exit_code": launched.exit_code, "dur_ps": launched.dur_ps}
        print(to_json("record", {"run": words.out, **facts, **cost, **ending}))
    if not words.quiet:
        sys.stderr.write(f"{recorded_line(tally_of(found), words.out, launched.dur_ps)}\n")
        short = found.not_enough
        write_notes([f"{words.out}: {short.text}. {short.remedy}"] if short is not None else [])


def _create(path: str, command: Sequence[str]) -> None:
    """Where no process made a step, there is no run yet."""
    from phasepoint.store import create_run

    create_run(path, command=command)


def read_tally(path: str) -> "Tally | None":
    """What a local run's sessions say that they came to, if that is enough to say nothing more; else None.

    Reading tables imports pyarrow, as much CPU time as all else that this process does. None where a process was killed
    or lost rows, where the run has several attempts, few steps, or much time outside steps.

    Args:
        path: of the run.
    """
    from phasepoint.report.words.recorded_line import Tally

    if "://" in path:
        return None
    try:
        sessions = [json.loads(file.read_bytes()) for file in Path(path).glob("host=*/session.json")]
        tallies = [session["tally"] for session in sessions]
        total = {name: sum(tally[name] for tally in tallies) for name in _TALLIED}
        is_whole = all(session["closed_unix_ns"] and not session["attempt"] for session in sessions)
        machines = {session["owner"]["hostname"] for session in sessions}
        budgets = {session["notes"].get("budget") for session in sessions}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not is_whole or total["steps"] < CLEARLY_ENOUGH_STEPS * max(len(sessions), 1) or total["losses"]:
        return None
    if 2 * total["outside_ps"] > total["wall_ps"]:
        return None
    budget = next(iter(budgets)) if len(budgets) == 1 else None
    return Tally(
        steps=total["steps"],
        windows=total["windows"],
        processes=len(sessions),
        machines=len(machines),
        cost_share=total["cost_ps"] / total["wall_ps"] if total["wall_ps"] else None,
        budget=None if budget is None else float(budget),
    )
