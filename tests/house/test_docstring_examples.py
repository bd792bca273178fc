"""Every `>>>` in a docstring runs and gives what it says; names that users import have such an example."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest
from made_run import made_run

import phasepoint

PACKAGE = Path(phasepoint.__file__).parent


def modules_with_examples():
    """Dotted names of the files with an example; only these are imported."""
    for file in sorted(PACKAGE.rglob("*.py")):
        if ">>> " in file.read_text():
            yield ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in modules_with_examples():
        yield from (example for example in finder.find(import_module(name)) if example.examples)


@pytest.fixture(scope="module")
def folder_with_run(tmp_path_factory):
    """What the examples call runs/my-job, in the folder that they run in."""
    folder = tmp_path_factory.mktemp("examples")
    made_run(folder / "runs" / "my-job")
    return folder


def each_example():
    """One that times something runs alone, as the tests of the same do."""
    for example in examples():
        marks = pytest.mark.alone if example.name == "phasepoint.tune.offline.kernel.kernel" else ()
        yield pytest.param(example, marks=marks, id=example.name)


@pytest.mark.parametrize("example", list(each_example()))
def test_the_example_gives_what_it_says(example, folder_with_run, monkeypatch):
    monkeypatch.chdir(folder_with_run)
    told = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    failures, _ = runner.run(example, out=told.append)
    assert not failures, "".join(told)


def test_every_name_at_the_root_has_an_example():
    names = [name for name in phasepoint.__all__ if not name.startswith("__")]
    assert [name for name in names if ">>> " not in getattr(phasepoint, name).__doc__] == []
