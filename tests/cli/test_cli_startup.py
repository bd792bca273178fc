"""The command line starts fast because it imports nothing it does not need."""

import subprocess
import sys

import pytest

from phasepoint.cli.commands import COMMANDS

HEAVY = ("pyarrow", "duckdb", "numba", "numpy", "sklearn", "ruptures", "jax", "torch", "rich", "msgspec")


def _modules_after(code: str) -> set[str]:
    probe = f"import sys\n{code}\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60)
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_help_imports_nothing_heavy():
    loaded = _modules_after("from phasepoint.cli.main import run\nassert run(['--help']) == 0")
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.parametrize("command", [c.name for c in COMMANDS])
def test_help_of_a_command_imports_nothing_heavy(command):
    loaded = _modules_after(f"from phasepoint.cli.main import run\nassert run([*{command!r}.split(), '--help']) == 0")
    assert loaded.isdisjoint(HEAVY)


def test_help_lists_every_command(phasepoint):
    done = phasepoint("--help")
    assert done.code == 0
    block = done.out.partition("Commands:\n")[2].partition("\n\n")[0]
    listed = [line.strip().partition("  ")[0] for line in block.splitlines() if line[2:3].isalpha()]
    assert listed == [command.name for command in COMMANDS]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_every_command_has_help_and_json(command, phasepoint):
    assert command.load().__doc__
    done = phasepoint(*command.name.split(), "--help")
    assert done.code == 0
    assert "--json" in done.out


def test_no_command_prints_help_and_fails(phasepoint):
    done = phasepoint()
    assert (done.code, done.out) == (2, "")
    assert "Commands:" in done.err


def test_version_option_is_the_version_command(phasepoint):
    assert phasepoint("--version") == phasepoint("version")
