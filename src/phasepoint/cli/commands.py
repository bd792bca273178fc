"""The commands, one row each. A command's module is imported when it is used, so that `--help` stays fast."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Command:
    """One command of the command line.

    Attributes:
        name: what the user types.
        module: module that holds it; nothing but Typer may be imported at its top.
        function: function in the module; its docstring is the command's help.
        help: one line for the list of commands.
        settings: the parser's settings, where they differ from the usual ones.
    """

    name: str
    module: str
    function: str
    help: str
    settings: Mapping[str, Any] = field(default_factory=dict)


_WRAPS_A_COMMAND = {"allow_interspersed_args": False}
"""Options after the first word belong to the recorded command, not to us."""

COMMANDS: tuple[Command, ...] = (
    Command(
        "record",
        "phasepoint.cli.record",
        "record",
        "Record a training job: phasepoint record --out RUN -- python train.py",
        _WRAPS_A_COMMAND,
    ),
    Command("import", "phasepoint.cli.import_", "import_", "Turn traces of other profilers into a run."),
    Command("demo", "phasepoint.cli.demo", "demo", "Train a small network under the recorder and explain its run."),
    Command("summary", "phasepoint.cli.summary", "summary", "Say what a run's time went into."),
    Command("phases", "phasepoint.cli.phases", "phases", "List the phases of a run: what recurs, how long, how often."),
    Command("findings", "phasepoint.cli.findings", "findings", "Say what could be won in a run, and how."),
    Command("explain", "phasepoint.cli.explain", "explain", "Explain a finding's code: formula, thresholds, remedy."),
    Command("stack", "phasepoint.cli.stack", "stack", "Analyse a run across model, layer, op, kernel and counters."),
    Command(
        "stack measure",
        "phasepoint.cli.stack_measure",
        "measure",
        "Measure a script at several levels: phasepoint stack measure -- python infer.py",
        _WRAPS_A_COMMAND,
    ),
    Command(
        "replay check",
        "phasepoint.cli.replay_check",
        "check",
        "Hold a replay against the run that it replays: faithful, or what is other.",
    ),
    Command(
        "replay compact",
        "phasepoint.cli.replay_compact",
        "compact",
        "Choose a few windows that stand for a run: phasepoint replay compact RUN --budget 5%",
    ),
    Command("learn", "phasepoint.cli.learn", "learn", "List the performance models that came with the package."),
    Command(
        "learn collect",
        "phasepoint.cli.learn_collect",
        "collect",
        "Measure kernels of programs into a corpus: phasepoint learn collect --out corpus/ --programs zoo",
    ),
    Command("learn train", "phasepoint.cli.learn_train", "train", "Train a performance model from measured times."),
    Command(
        "learn evaluate",
        "phasepoint.cli.learn_evaluate",
        "evaluate",
        "Hold a performance model against measurements: error, order, what its choices cost.",
    ),
    Command("diff", "phasepoint.cli.diff", "diff", "Say what changed between two runs, beyond noise; a gate for CI."),
    Command(
        "replay",
        "phasepoint.cli.replay",
        "replay",
        "List a run's checkpoints: what is left of each, and which phases it leads to.",
    ),
    Command(
        "replay plan",
        "phasepoint.cli.replay_plan",
        "plan",
        "Say which checkpoint and steps reach a phase again, and at what cost.",
    ),
    Command(
        "replay run",
        "phasepoint.cli.replay_run",
        "run",
        "Capture a phase again from its checkpoint: phasepoint replay run RUN --phase P -- python train.py",
    ),
    Command(
        "replay estimate",
        "phasepoint.cli.replay_estimate",
        "estimate",
        "Say what the whole run would take and cost if a phase went as in its replay.",
    ),
    Command(
        "predict",
        "phasepoint.cli.predict",
        "predict",
        "Say how long a program takes on a device: phasepoint predict train.py:step --device tpu-v4",
    ),
    Command("report", "phasepoint.cli.report", "report", "Write the summary with its timeline as one HTML file."),
    Command("sql", "phasepoint.cli.sql", "sql", "Ask a run's tables in SQL."),
    Command("export", "phasepoint.cli.export", "export", "Write a run for other tools: Chrome, Perfetto, CSV."),
    Command("compact", "phasepoint.cli.compact", "compact", "Merge a run's small files."),
    Command("convert", "phasepoint.cli.convert", "convert", "Turn a run's raw captures into tables now."),
    Command("tables", "phasepoint.cli.tables", "tables", "Print the reference of the tables: columns, types, units."),
    Command(
        "devices", "phasepoint.cli.devices", "devices", "Print what devices can do at most, each number with source."
    ),
    Command("version", "phasepoint.cli.version", "version", "Print the version."),
)


def find_command(name: str) -> Command | None:
    """The command of that name, None where there is none."""
    return next((command for command in COMMANDS if command.name == name), None)
