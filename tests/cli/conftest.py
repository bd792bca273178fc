import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from made_run import made_run

from phasepoint.cli.main import run


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def run_path(tmp_path_factory) -> str:
    """A run that tests read and do not change."""
    return made_run(tmp_path_factory.mktemp("runs") / "made")


@pytest.fixture
def phasepoint(capsys) -> Callable[..., Outcome]:
    """The command line, in this process: exit code, stdout and stderr."""

    def call(*arguments: str) -> Outcome:
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def python_m() -> list[str]:
    """The command line as a process of its own."""
    return [sys.executable, "-m", "phasepoint"]


@pytest.fixture
def fresh_run(tmp_path) -> Path:
    """A run that a test may change."""
    return Path(made_run(tmp_path / "made"))
