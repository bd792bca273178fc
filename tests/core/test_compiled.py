"""Machine code is kept where something can be written, and nowhere else."""

import os
import pickle
import subprocess
import sys

import numba
import pytest

from phasepoint.core import compiled as module
from phasepoint.core.compiled import CachePlace, compiled, find_cache_place


@pytest.fixture
def writable(monkeypatch):
    """Which folders can be written, by choice of the test."""
    folders = set()
    monkeypatch.setattr(module, "can_write", lambda folder: folder in folders)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    return folders


def test_places_are_tried_in_order(writable, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    source, environ = tmp_path / "source", {"HOME": str(home)}
    own = tmp_path / f"phasepoint-compiled-{os.getuid()}"
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    assert find_cache_place(source, environ) == CachePlace(False)
    writable.add(own)
    assert find_cache_place(source, environ) == CachePlace(True, own)
    writable.add(home / ".cache" / "phasepoint" / "compiled")
    assert find_cache_place(source, environ) == CachePlace(True, home / ".cache" / "phasepoint" / "compiled")
    writable.add(tmp_path / "xdg" / "phasepoint" / "compiled")
    xdg = environ | {"XDG_CACHE_HOME": str(tmp_path / "xdg")}
    assert find_cache_place(source, xdg) == CachePlace(True, tmp_path / "xdg" / "phasepoint" / "compiled")
    writable.add(source / "__pycache__")
    assert find_cache_place(source, xdg) == CachePlace(True)


@pytest.mark.parametrize("environ", [{}, {"HOME": "~"}, {"HOME": "/nonexistent"}])
def test_a_home_that_is_not_there_is_not_made(writable, tmp_path, monkeypatch, environ):
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(module, "can_write", lambda folder: folder.is_relative_to("/nonexistent") or "~" in str(folder))
    assert find_cache_place(tmp_path / "source", environ) == CachePlace(False)


def test_a_shared_folder_of_another_is_not_trusted(writable, tmp_path, monkeypatch):
    """Kept machine code is run: a folder that others can write, or a link, is left alone."""
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(module, "can_write", lambda folder: folder.is_relative_to(tmp_path / "phasepoint-compiled-0"))
    monkeypatch.setattr(module.os, "getuid", lambda: 0)
    own = tmp_path / "phasepoint-compiled-0"
    own.mkdir()
    own.chmod(0o777)
    assert find_cache_place(tmp_path / "source", {}) == CachePlace(False)
    own.rmdir()
    (tmp_path / "elsewhere").mkdir()
    own.symlink_to(tmp_path / "elsewhere")
    assert find_cache_place(tmp_path / "source", {}) == CachePlace(False)


def test_a_cache_that_fails_meanwhile_costs_nothing_but_time(monkeypatch, capsys):
    module._once.cache_clear()

    @compiled()
    def double(x):
        return 2 * x

    def fails(*_):
        raise OSError(28, "No space left on device")

    def damaged(*_):
        raise pickle.UnpicklingError("pickle data was truncated")

    monkeypatch.setattr(double._cache._cache_file, "save", fails)
    monkeypatch.setattr(double._cache._cache_file, "load", damaged)
    assert double(21) == 42
    assert double(1.5) == 3.0
    err = capsys.readouterr().err
    module._once.cache_clear()
    assert err.count("cannot be kept") == 1
    assert "No space left on device" in err


CALLED = "from phasepoint.core.compiled import compiled\n@compiled()\ndef inner(x):\n    return {factor} * x\n"
CALLING = """
from called import inner
from phasepoint.core.compiled import compiled
@compiled()
def outer(x):
    return inner(x) + 1
print(outer(10), sum(outer.stats.cache_hits.values()))
"""


def test_a_change_in_a_function_that_is_called_is_seen(tmp_path):
    """Numba alone looks at the file of the caller, which holds the machine code of both."""
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(factor):
        (tmp_path / "called.py").write_text(CALLED.format(factor=factor))
        command = [sys.executable, "-c", "import calling"]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
        return done.stdout.split()

    (tmp_path / "calling.py").write_text(CALLING)
    assert run(2) == ["21", "0"]
    (tmp_path / "called.py").touch()
    assert run(3) == ["31", "0"]
    command = [sys.executable, "-c", "import calling"]
    again = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    assert again.stdout.split() == ["31", "1"]


def test_numbas_own_setting_is_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_place_of", lambda _: CachePlace(True, tmp_path / "kept"))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")

    @compiled()
    def triple(x):
        return 3 * x

    assert triple(2) == 6
    assert numba.config.CACHE_DIR == ""
    assert len(list((tmp_path / "kept").rglob("*.nbc"))) == 1


def test_without_a_place_functions_are_compiled_all_the_same(monkeypatch, capsys):
    module._once.cache_clear()
    monkeypatch.setattr(module, "_place_of", lambda _: CachePlace(False))

    @compiled()
    def square(x):
        return x * x

    assert square(7) == 49
    module._once.cache_clear()
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err
