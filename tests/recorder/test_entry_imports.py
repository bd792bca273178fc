"""What a recording may import into the job: everything it imports is paid from the job's budget."""

import os
import subprocess
import sys

import pytest

from phasepoint.recorder import record
from phasepoint.recorder.clock import importing
from phasepoint.recorder.process import launch
from phasepoint.store import open_run

DEAR = (
    "numba",
    "duckdb",
    "sklearn",
    "ruptures",
    "pandas",
    "scipy",
    "matplotlib",
    "tensorflow",
    "polars",
    "typer",
    "rich",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "phasepoint.store.reader",
    "phasepoint.phases",
    "phasepoint.sources",
)
"""Packages that a job may have installed and a recording has no use for."""

JOB = """
import sys
from phasepoint.recorder import record
with record(sys.argv[1], framework=None) as run:
    for number in run.steps(range(300)):
        with run.phase("train"):
            run.log(loss=number / 3, epoch=1)
    run.checkpoint("ckpt/300")
print("\\n".join(sys.modules))
"""


@pytest.fixture
def fakes(tmp_path):
    """A folder with a package of each dear name, which says on stderr that it was imported."""
    folder = tmp_path / "packages"
    for name in DEAR:
        if "." not in name:
            (folder / name).mkdir(parents=True)
            code = f"import sys\nsys.stderr.write('imported {name}\\n')\n__version__ = '99.0.0'\n"
            (folder / name / "__init__.py").write_text(code)
    return folder


def run_job(code, *arguments, packages):
    before = os.environ.get("PYTHONPATH")
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(packages), *([before] if before else [])])}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environ)


def test_a_recording_imports_nothing_dear(tmp_path, fakes):
    done = run_job(JOB, str(tmp_path / "run"), packages=fakes)
    found = set(done.stdout.split())
    assert "phasepoint.store.writer" in found
    assert not [name for name in DEAR if name in found]
    assert not done.stderr
    run = open_run(tmp_path / "run")
    assert run.table("steps").num_rows == 300
    assert run.table("scalars").num_rows == 600
    assert run.table("hints").num_rows == 300


def test_the_fakes_are_found(fakes):
    """What the test above would see if a column were made by way of pandas."""
    done = run_job("import pyarrow\ntry: pyarrow.array([1])\nexcept AttributeError: pass", packages=fakes)
    assert done.stderr == "imported pandas\n"


def test_what_looking_for_steps_imports_is_in_the_account(fakes):
    """Before there is a recording: `sitecustomize` imports the recorder when a framework is imported."""
    (fakes / "torch").mkdir()
    (fakes / "torch" / "__init__.py").touch()
    code = "import torch, sys; print(sys.modules['phasepoint.recorder.clock.importing'].spent_ns > 0)"
    inject = os.path.join(os.path.dirname(launch.__file__), "inject")  # noqa: PTH118, PTH120
    assert run_job(code, packages=f"{inject}{os.pathsep}{fakes}").stdout == "True\n"


def test_imports_are_in_the_account_of_the_first_recording_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "spent_ns", 5 * 10**9)
    entries_ps = []
    for name in ("first", "second"):
        with record(tmp_path / name, budget=0) as run:
            list(run.steps(range(3)))
        entries_ps.append(run.cost.entry_ps)
    assert entries_ps[0] >= 5 * 10**12 > entries_ps[1]
