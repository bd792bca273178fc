"""Commands on a real terminal: colour and progress there, and neither in what goes into a pipe."""

import os
import pty
import subprocess
import sys

import pytest
from made_run import EVIL

from phasepoint.cli.opening import progress_bar


def _on_terminal(arguments, *, width=100):
    """What a command shows on a pseudo-terminal of its own."""
    main, child = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(width), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "phasepoint", *arguments], stdout=child, stderr=child, stdin=child, env=environment
    )
    os.close(child)
    shown = b""
    try:
        while chunk := os.read(main, 65_536):
            shown += chunk
    except OSError:  # Linux ends a pseudo-terminal so
        pass
    finally:
        os.close(main)
    assert process.wait(timeout=60) == 0, shown.decode()
    return shown.decode()


@pytest.fixture(scope="module")
def shown(run_path):
    return _on_terminal(["summary", run_path])


def test_the_strip_is_coloured(shown):
    assert "▌" in shown
    assert "\x1b[38;2;0;114;178;48;2;0;114;178m" in shown


def test_names_cannot_add_colours(shown):
    assert "\x1b[31m" not in shown
    assert "[red]\\x1b[31m" in shown


def test_csv_on_a_terminal_is_made_harmless(run_path):
    shown = _on_terminal(["sql", run_path, "select distinct op from ops where op like '<img%'", "--csv"])
    assert EVIL.replace("\x1b", "\\x1b") in shown


def test_progress_is_silent_where_there_is_no_terminal(capsys):
    with progress_bar("converting") as advance:
        advance(0, 2)
        advance(2, 2)
    assert capsys.readouterr() == ("", "")


def test_progress_names_the_work_and_clears_away(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    with progress_bar("converting") as advance:
        advance(1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert "converting" in err
    assert "1/2" in err
