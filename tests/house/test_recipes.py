"""The recipes of CONTRIBUTING.md, carried out as they are written there on a copy of the package, work."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from made_run import made_run

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "CONTRIBUTING.md").read_text().partition("## Five recipes")[2].partition("\n## ")[0]
RECIPES = dict(re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", SECTION, re.M | re.S))
BLOCK = re.compile(r"(?:row in `(\w+)` of )?`(src/phasepoint/\S+)`:\n\n```\w+\n(.*?)```", re.S)

TIMINGS = """# timings
step 0,0,1000
forward,0,600
step 1,1000,2000
forward,1000,1500
"""

HLO = """HloModule dense, is_scheduled=true
ENTRY main { x = f32[256,1024]{1,0} parameter(0)
  w = f32[1024,512]{1,0} parameter(1)
  ROOT y = f32[256,512]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""


def follow(recipe, folder):
    """Write the recipe's new file, add its row, or append to the file that is there."""
    assert len(BLOCK.findall(recipe)) == len(re.findall("```(?:python|toml)", recipe)), "a block names no file"
    assert len(BLOCK.findall(recipe)) == len(re.findall("```(?:python|toml)", recipe))
    for table, name, text in BLOCK.findall(recipe):
        path = folder / name
        if table:
            row = textwrap.indent(text, "    ")
            before, start, rest = re.split(rf"^({table}\b)", path.read_text(), maxsplit=1, flags=re.M)
            rows, end, after = re.split(r"^([)}])", rest, maxsplit=1, flags=re.M)
            path.write_text("".join((before, start, rows, row, end, after)))
        else:
            path.write_text((path.read_text() if path.exists() else "") + text)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A copy of the package in which all recipes were followed, and what their commands read."""
    folder = tmp_path_factory.mktemp("recipes")
    shutil.copytree(ROOT / "src" / "phasepoint", folder / "src" / "phasepoint")
    for recipe in RECIPES.values():
        follow(recipe, folder)
    made_run(folder / "runs" / "my-job")
    (folder / "timings.csv").write_text(TIMINGS)
    (folder / "dense.hlo").write_text(HLO)
    return folder


@pytest.fixture
def phasepoint(workplace):
    """The command line of that copy, as a process of its own: what it prints."""

    def call(*arguments, code=0):
        environment = os.environ | {"PYTHONPATH": str(workplace / "src"), "COLUMNS": "160"}
        command = [sys.executable, "-m", "phasepoint", *arguments]
        done = subprocess.run(command, cwd=workplace, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return call


def commands(title):
    """What the recipe says to run, without `phasepoint`."""
    (console,) = re.findall(r"```console\n(.*?)```", RECIPES[title], re.S)
    return [shlex.split(line.removeprefix("$ phasepoint ")) for line in console.splitlines()]


def test_a_trace_format(phasepoint, workplace):
    (command,) = commands("A trace format")
    (file,) = json.loads(phasepoint(*command, "--json"))["files"]
    assert (file["format"], file["steps"], file["spans"], file["dropped"]) == ("timings", 2, 4, 0)
    (workplace / "broken.csv").write_text("# timings\nforward,soon,later\n")
    assert "expected lines name,start_ns,end_ns" in phasepoint("import", "broken.csv", "--out", "runs/broken", code=7)
    (workplace / "notes.txt").write_text("no trace")
    assert "timings of stretches on the host (*.csv)" in phasepoint("import", "notes.txt", "--out", "runs/no", code=7)


def test_a_rule(phasepoint):
    explain, findings = commands("A rule")
    assert "Reported from 0.5% of the run's time on." in phasepoint(*explain)
    assert "The first step begins after 100 ms" in phasepoint(*findings)
    assert "LATE-START found" in phasepoint(*findings, "--fail-on", "late-start", code=14)


def test_an_analysis_of_the_stack(phasepoint):
    (stack,) = commands("An analysis of the stack")
    header, *rows = phasepoint(*stack, "--csv").splitlines()
    assert header == "host,level,spans,dur_ps"
    assert rows
    assert "Spans by level" in phasepoint("stack", "runs/my-job")


def test_a_phase_method(phasepoint):
    (phases,) = commands("A phase method")
    told = phasepoint(*phases)
    assert "eval" in told
    assert "hints" in phasepoint("phases", "runs/my-job", "--method", "none", code=2)


def test_a_device(phasepoint):
    devices, predict = commands("A device")
    told = phasepoint(*devices)
    assert "Example 9000 datasheet, table 2" in told
    assert "400 TFLOP/s" in told
    assert phasepoint(*predict).startswith("dense on Example 9000: ")
