"""docs/cli.md says what the code does."""

import re
from pathlib import Path

from phasepoint.cli import main
from phasepoint.cli.commands import COMMANDS
from phasepoint.core import errors
from phasepoint.report.export.csv_tables import CSV_TABLES

TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def _codes():
    found = [kind.exit_code for kind in vars(errors).values() if isinstance(kind, type)]
    return {0, *found, main.EXIT_UNEXPECTED, main.EXIT_INTERRUPTED, main.EXIT_BROKEN_PIPE}


def test_every_exit_code_is_documented_once():
    section = TEXT.partition("## Exit codes")[2].partition("\n## ")[0]
    documented = [int(code) for code in re.findall(r"^\| (\d+) \|", section, re.M)]
    assert documented == sorted(_codes())


def test_every_command_and_its_json_is_documented():
    rows = TEXT.partition("Rules that hold")[0]
    commands = re.findall(r"^\| `((?:stack|replay|learn|tune|scale|bench) [a-z-]+|\w+)", rows, re.M)
    assert sorted(commands) == sorted(command.name for command in COMMANDS)
    kinds = re.findall(r"^\| `([\w -]+)` \|", TEXT.partition("## JSON")[2].partition("## SQL")[0], re.M)
    assert sorted(kinds) == sorted(command.name for command in COMMANDS)


def test_every_csv_file_is_documented():
    assert re.findall(r"^\| `(\w+)\.csv`", TEXT, re.M) == list(CSV_TABLES)


def test_the_sql_examples_run(phasepoint, run_path):
    queries = re.findall(r'phasepoint sql runs/demo "(.*?)"', TEXT)
    assert len(queries) == 2
    for query in queries:
        assert phasepoint("sql", run_path, query).code == 0
