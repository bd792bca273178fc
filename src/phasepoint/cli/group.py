"""The command group: lists the commands from their table and imports one only when it is called."""

from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from phasepoint.cli.commands import COMMANDS, find_command
from phasepoint.core.errors import UsageError


class LazyGroup(TyperGroup):
    """`phasepoint` itself."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands, in the order of the table."""
        return [command.name for command in COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, built from its module.

        Raises:
            UsageError: there is none of that name.
        """
        command = find_command(cmd_name)
        if command is None:
            raise UsageError(_no_such_command(cmd_name))
        function = getattr(import_module(command.module), command.function)
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        settings = {"help_option_names": ["-h", "--help"], **command.settings}
        app.command(command.name, context_settings=settings)(function)
        return get_command(app)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command and its words; a name of two words (`stack measure`) goes before that of the first."""
        if find_command(" ".join(args[:2])) is not None:
            args = [" ".join(args[:2]), *args[2:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with their one-line helps, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.help) for command in COMMANDS])


def _no_such_command(name: str) -> str:
    names = [command.name for command in COMMANDS]
    near = get_close_matches(name, names, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return f"no command named {name!r}. {meant}The commands are {', '.join(names)}"


def build_group() -> LazyGroup:
    """The command line's root, with its options."""
    app = typer.Typer(
        cls=LazyGroup,
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Find out where a training run's time went.",
        epilog="Exit codes, JSON layouts and examples: docs/cli.md.",
    )
    app.callback()(_root)
    group = get_command(app)
    assert isinstance(group, LazyGroup)
    return group


def _print_version(asked: bool) -> None:
    if asked:
        from phasepoint.cli.version import version

        version()
        raise typer.Exit


def _root(
    _show_version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Nothing to do before a command."""
