"""Commands with subcommands: their help lists them, and a run may be called as one of them."""

import json
import shutil
from pathlib import Path

import pytest

from phasepoint.cli.commands import COMMANDS

SUBCOMMANDS = [command for command in COMMANDS if " " in command.name]
GROUPS = sorted({command.name.partition(" ")[0] for command in SUBCOMMANDS})


@pytest.fixture
def folder(run_path, tmp_path, monkeypatch):
    """A folder in which the caller stands, with a run for every subcommand's name."""
    for command in SUBCOMMANDS:
        shutil.copytree(run_path, tmp_path / command.name.partition(" ")[2], dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _document(done):
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_of_a_group_lists_its_subcommands(group, option, phasepoint):
    done = phasepoint(group, option)
    assert done.code == 0
    block = done.out.partition("Commands:\n")[2]
    of_group = [command for command in SUBCOMMANDS if command.name.startswith(f"{group} ")]
    names = [command.name.partition(" ")[2] for command in of_group]
    assert [line.split()[0] for line in block.splitlines() if line[2:3].isalpha()] == names
    listed = " ".join(block.split())  # a line of help may be broken into two
    assert all(" ".join(command.help.split()) in listed for command in of_group)
    assert "--json" in done.out


@pytest.mark.parametrize("command", SUBCOMMANDS, ids=lambda command: command.name)
def test_help_of_a_subcommand_is_its_own_where_a_run_has_its_name(command, phasepoint, folder):
    done = phasepoint(*command.name.split(), "--help")
    assert done.out.startswith(f"Usage: phasepoint {command.name} ")
    assert "Commands:" not in done.out


@pytest.mark.parametrize("name", ["plan", "run", "check", "compact", "estimate"])
@pytest.mark.parametrize(
    "words", ["NAME --json", "./NAME --json", "--json NAME", "--json -- NAME", "NAME --json --method=ols"]
)
def test_checkpoints_of_a_run_called_like_a_subcommand(name, words, phasepoint, folder):
    document = _document(phasepoint("replay", *words.replace("NAME", name).split()))
    assert (document["kind"], Path(document["run"]).name) == ("replay", name)
    assert len(document["checkpoints"]) == 2


def test_a_subcommand_of_a_run_that_has_its_name(phasepoint, folder):
    assert _document(phasepoint("replay", "plan", "plan", "--json"))["kind"] == "replay plan"
    assert _document(phasepoint("replay", "compact", "compact", "--json"))["kind"] == "replay compact"
    assert _document(phasepoint("replay", "estimate", "estimate", "--json"))["kind"] == "replay estimate"
    assert "is no replay" in phasepoint("replay", "check", "check", "check").err
    assert phasepoint("replay", "run", "run", "--phase", "nope").err.startswith("error: run: ")


@pytest.mark.parametrize("words", ["measure --json", "./measure --json", "--json measure", "-- measure"])
def test_stack_of_a_run_called_like_its_subcommand(words, phasepoint, folder):
    done = phasepoint("stack", *words.split())
    assert (done.code, done.err) == (0, "")
    assert "device-time" in done.out


def test_learn_of_folders_called_like_its_subcommands(phasepoint, folder):
    assert "CORPUS" in phasepoint("learn", "train").err
    collected = phasepoint("learn", "collect", "collect", "--out", "corpus")
    assert "error: collect: no compiled module is kept in this run" in collected.err


def test_without_a_run_of_that_name_the_subcommand_misses_its_words(phasepoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert phasepoint("replay", "plan") == (2, "", "error: Missing argument 'RUN'. See phasepoint --help.\n")
    assert phasepoint("replay", "plan", "--json").code == 2
    assert phasepoint("stack", "measure").code == 2
