"""The commands, one row each, and their groups. A module is imported when its command is used: `--help` stays fast."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from phasepoint.core.errors import UsageError


@dataclass(frozen=True)
class Command:
    """One command of the command line.

    Attributes:
        name: what the user types; of a subcommand both words.
        place: module below `phasepoint.cli` that holds it; nothing but Typer may be imported at its top.
        help: one line for the list of commands.
        function: function in the module, whose docstring is the command's help; left out: the name's last word.
        settings: the parser's settings, where they differ from the usual ones.
    """

    name: str
    place: str
    help: str
    function: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Callable[..., None]:
        """Its function, from its module."""
        module = import_module(f"phasepoint.cli.{self.place}")
        function: Callable[..., None] = getattr(module, self.function or self.name.rpartition(" ")[2])
        return function


_WRAPS_A_COMMAND = {"allow_interspersed_args": False}
"""Options after the first word belong to the recorded command, not to us."""

_HELP = {"help_option_names": ["-h", "--help"]}

COMMANDS: tuple[Command, ...] = (
    Command(
        "record",
        "record.record",
        "Record a training job: phasepoint record --out RUN -- python train.py",
        settings=_WRAPS_A_COMMAND,
    ),
    Command("import", "record.convert", "Turn traces of other profilers into a run.", function="import_"),
    Command("demo", "record.record", "Train a small network under the recorder and explain its run."),
    Command("summary", "answers.summary", "Say what a run's time went into."),
    Command("phases", "answers.summary", "List the phases of a run: what recurs, how long, how often."),
    Command("findings", "answers.summary", "Say what could be won in a run, and how."),
    Command("explain", "answers.summary", "Explain a finding's code: formula, thresholds, remedy."),
    Command("stack", "stack", "Analyse a run across model, layer, op, kernel and counters."),
    Command(
        "stack measure",
        "stack",
        "Measure a script at several levels: phasepoint stack measure -- python infer.py",
        settings=_WRAPS_A_COMMAND,
    ),
    Command("diff", "answers.diff", "Say what changed between two runs, beyond noise; a gate for CI."),
    Command("replay", "replay", "List a run's checkpoints: what is left of each, and which phases it leads to."),
    Command("replay plan", "replay", "Say which checkpoint and steps reach a phase again, and at what cost."),
    Command(
        "replay run",
        "replay",
        "Capture a phase again from its checkpoint: phasepoint replay run RUN --phase P -- python train.py",
    ),
    Command("replay check", "replay", "Hold a replay against the run that it replays: faithful, or what is other."),
    Command(
        "replay compact",
        "replay",
        "Choose a few windows that stand for a run: phasepoint replay compact RUN --budget 5%",
    ),
    Command(
        "replay estimate",
        "replay",
        "Say what the whole run would take and cost if a phase went as in its replay.",
    ),
    Command(
        "tune",
        "tune",
        "Say what tuning tried and won in a run; start a job with it: phasepoint tune --apply RUN -- COMMAND",
    ),
    Command(
        "tune search",
        "tune",
        "Try settings of a job on one of its phases: phasepoint tune search SPACE --run RUN -- python train.py",
    ),
    Command("learn", "learn", "List the performance models that came with the package."),
    Command(
        "learn collect",
        "learn",
        "Measure kernels of programs into a corpus: phasepoint learn collect --out corpus/ --programs zoo",
    ),
    Command("learn train", "learn", "Train a performance model from measured times."),
    Command(
        "learn evaluate", "learn", "Hold a performance model against measurements: error, order, what its choices cost."
    ),
    Command(
        "predict",
        "answers.devices",
        "Say how long a program takes on a device: phasepoint predict train.py:step --device tpu-v4",
    ),
    Command("scale", "scale", "Say what larger systems will take, and how far such predictions were off."),
    Command("scale plan", "scale", "Say what larger systems will take, from one that was measured."),
    Command(
        "scale what-if",
        "scale",
        "Say what each technique of a training step is worth: scale what-if train.py:step --to tpu-v3:32x32",
        function="what_if",
    ),
    Command(
        "scale validate", "scale", "Hold predictions of large systems against what was published: scale validate DIR"
    ),
    Command(
        "bench",
        "answers.bench",
        "Measure models on devices, and say what ten of them tell of all the others.",
    ),
    Command("bench run", "answers.bench", "Measure models on this machine: bench run --quick --out runs/bench"),
    Command(
        "bench fingerprint",
        "answers.bench",
        "Measure ten models and predict the others: bench fingerprint --like DIR --like DIR --out DIR",
    ),
    Command(
        "bench fleet",
        "answers.bench",
        "Measure models on every machine of a Ray cluster: bench fleet --ray auto --out DIR",
    ),
    Command("bench pack", "answers.bench", "One file that measures graphs on a board or a phone: bench pack -o FILE"),
    Command("bench compare", "answers.bench", "Hold suites against each other: bench compare DIR DIR …"),
    Command("bench report", "answers.bench", "Print what a suite measured, and write it as a page: bench report DIR"),
    Command(
        "bench validate", "answers.bench", "Take each device of a file for a new one, and compare: bench validate DIR"
    ),
    Command("report", "answers.report", "Write the summary with its timeline as one HTML file."),
    Command("sql", "answers.tables", "Ask a run's tables in SQL."),
    Command("export", "answers.tables", "Write a run for other tools: Chrome, Perfetto, CSV."),
    Command("compact", "record.convert", "Merge a run's small files."),
    Command("convert", "record.convert", "Turn a run's raw captures into tables now."),
    Command("tables", "answers.tables", "Print the reference of the tables: columns, types, units."),
    Command("devices", "answers.devices", "Print what devices can do at most, each number with source."),
    Command("version", "answers.devices", "Print the version."),
)
"""Every command; one of two words, such as `replay plan`, is a subcommand of the first."""


def find_command(name: str) -> Command | None:
    """The command of that name, None where there is none."""
    return next((command for command in COMMANDS if command.name == name), None)


def _subcommands(name: str) -> tuple[Command, ...]:
    return tuple(command for command in COMMANDS if command.name.startswith(f"{name} "))


def _build_command(command: Command) -> Any:
    """A command from its module; one that has subcommands is their group, and its own words are what names none."""
    function = command.load()
    settings = {**_HELP, **command.settings}
    if not _subcommands(command.name):
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(command.name, context_settings=settings)(function)
        return get_command(app)
    app = typer.Typer(
        name=command.name,
        cls=CommandGroup,
        add_completion=False,
        rich_markup_mode=None,
        invoke_without_command=True,
        subcommand_metavar="| COMMAND [ARGS]...",
        context_settings={**settings, "allow_interspersed_args": True, "allow_extra_args": False},
    )
    app.callback()(function)
    return get_command(app)


class CommandGroup(TyperGroup):
    """A command with subcommands: `phasepoint replay RUN` lists checkpoints, `phasepoint replay plan RUN` plans."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the subcommands, in the order of the table."""
        return [command.name.removeprefix(f"{self.name} ") for command in _subcommands(str(self.name))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The subcommand, built from its module; None where there is none of that name."""
        command = find_command(f"{self.name} {cmd_name}")
        return None if command is None else _build_command(command)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The subcommand's context where the first word names one; else the group's own, whose words they are."""
        subcommand = self.get_command(parent, args[0]) if args and not self._means_run(args) else None
        if subcommand is None:
            return super().make_context(info_name, args, parent, **extra)
        return subcommand.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the subcommands with their one-line helps, without importing any of them."""
        helps = [command.help for command in _subcommands(str(self.name))]
        with formatter.section("Commands"):
            formatter.write_dl(list(zip(self.list_commands(ctx), helps, strict=True)))

    def _means_run(self, words: list[str]) -> bool:
        """Whether the first word is a run that lies here: no other word but options follows, as no subcommand takes."""
        takes_run = any(parameter.param_type_name == "argument" for parameter in self.params)
        are_options = all(word.startswith("-") and word not in _HELP["help_option_names"] for word in words[1:])
        return takes_run and are_options and (Path(words[0]) / "run.json").is_file()


class LazyGroup(TyperGroup):
    """`phasepoint` itself."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands, in the order of the table."""
        return [command.name for command in COMMANDS if " " not in command.name]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, built from its module.

        Raises:
            UsageError: there is none of that name.
        """
        command = find_command(cmd_name)
        if command is not None:
            return _build_command(command)
        names = [command.name for command in COMMANDS]
        near = get_close_matches(cmd_name, names, n=1)
        meant = f"Did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"no command named {cmd_name!r}. {meant}The commands are {', '.join(names)}")

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands and their subcommands with their one-line helps, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.help) for command in COMMANDS])


def build_group() -> LazyGroup:
    """The command line's root, with its options."""
    app = typer.Typer(
        cls=LazyGroup,
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        context_settings=_HELP,
        help="Find out where a training run's time went.",
        epilog="Exit codes, JSON layouts and examples: docs/cli.md.",
    )
    app.callback()(_root)
    group = get_command(app)
    assert isinstance(group, LazyGroup)
    return group


def _print_version(asked: bool) -> None:
    if asked:
        from phasepoint.cli.answers.devices import version

        version()
        raise typer.Exit


def _root(
    _show_version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Nothing to do before a command."""
