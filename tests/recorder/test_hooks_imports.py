"""A module is reported once its code has run, and looks afterwards as if nobody had watched."""

import importlib
import importlib.util
import sys

import pytest

from phasepoint.recorder.seam.import_watch import when_imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "watched_pkg").mkdir()
    (tmp_path / "watched_pkg" / "__init__.py").write_text("from watched_pkg import part\nready = True\n")
    (tmp_path / "watched_pkg" / "part.py").write_text("value = 7\n")
    (tmp_path / "watched_broken.py").write_text("raise ImportError('on purpose')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("watched_pkg", "watched_pkg.part", "watched_broken"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def watchers():
    return [finder for finder in sys.meta_path if type(finder).__module__ == "phasepoint.recorder.seam.import_watch"]


def test_called_after_the_modules_own_code(package):
    seen = []
    when_imported("watched_pkg", lambda: seen.append(sys.modules["watched_pkg"].ready))
    when_imported("watched_pkg.part", lambda: seen.append(sys.modules["watched_pkg.part"].value))
    assert len(watchers()) == 1
    module = importlib.import_module("watched_pkg")
    assert seen == [7, True]
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert module.__loader__ is module.__spec__.loader


def test_called_at_once_if_it_is_there(package):
    importlib.import_module("watched_pkg")
    seen = []
    when_imported("watched_pkg", lambda: seen.append(1))
    assert seen == [1]


def test_the_finder_leaves_with_the_last_name(package):
    seen = []
    removes = [when_imported(name, lambda: seen.append(1)) for name in ("watched_pkg", "watched_never")]
    removes[0]()
    assert len(watchers()) == 1
    removes[1]()
    removes[1]()
    assert watchers() == []
    importlib.import_module("watched_pkg")
    assert seen == []


def test_an_import_that_fails_fails_as_before(package):
    seen = []
    remove = when_imported("watched_broken", lambda: seen.append(1))
    with pytest.raises(ImportError, match="on purpose"):
        importlib.import_module("watched_broken")
    assert seen == []
    remove()
    assert watchers() == []


def test_a_module_that_does_not_exist_is_not_found_as_before(package):
    remove = when_imported("watched_missing", lambda: None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'watched_missing'"):
        importlib.import_module("watched_missing")
    assert importlib.util.find_spec("watched_missing") is None
    remove()


def test_a_finder_that_asks_all_others_is_answered(package):
    """Two finders that ask each other would ask for ever."""

    class AsksOthers:
        def find_spec(self, fullname, path=None, target=None):
            others = (finder for finder in sys.meta_path if finder is not self)
            return next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)

    seen, other = [], AsksOthers()
    sys.meta_path.insert(0, other)
    try:
        when_imported("watched_pkg.part", lambda: seen.append("part"))
        importlib.import_module("watched_pkg")
    finally:
        sys.meta_path.remove(other)
    assert seen == ["part"]
