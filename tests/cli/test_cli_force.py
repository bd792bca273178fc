"""`--force` removes a run and nothing else, wherever it is given."""

import json
import shutil
import sys
from pathlib import Path

import pytest

TRACE = {"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}


def commands(tmp_path, run):
    """Every command that replaces a run, for one at `run`."""
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(TRACE))
    return {
        "record": ("record", "--force", "--out", run, "--", sys.executable, "-c", "print()"),
        "import": ("import", trace, "--out", run, "--force"),
        "demo": ("demo", "--out", run, "--force", "--seconds", "20"),
    }


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Times and bytes of all files."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


OTHERS = {
    "a checkpoint": "checkpoints/step-100/model.safetensors",
    "a log": "train.log",
    "a page of their own": "report.html",
    "a file in a shard": "host=00000/notes.txt",
    "a folder in a shard": "host=00000/mine/notes.txt",
    "a file in a table": "host=00000/steps/notes.txt",
    "a hidden file": ".git/config",
}


@pytest.mark.parametrize("command", ["record", "import", "demo"])
@pytest.mark.parametrize("name", OTHERS.values(), ids=OTHERS)
def test_a_run_beside_something_else_is_left_alone(phasepoint, fresh_run, tmp_path, command, name):
    other = fresh_run / name
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_text("the job's own")
    before = everything(fresh_run)
    done = phasepoint(*commands(tmp_path, fresh_run)[command])
    assert done.code == 12
    named = "host=00000/" if name.startswith("host") else name.split("/")[0]
    assert f"{fresh_run}: holds what is no part of a run ({named}" in done.err
    assert "--out" in done.err
    assert everything(fresh_run) == before


def test_links_are_not_followed(phasepoint, fresh_run, tmp_path):
    """A shard that is a link to another disk, and a link in place of the run itself."""
    elsewhere = tmp_path / "elsewhere"
    shutil.move(fresh_run / "host=00000", elsewhere)
    (fresh_run / "host=00000").symlink_to(elsewhere)
    before = everything(elsewhere)
    refused = phasepoint(*commands(tmp_path, fresh_run)["record"])
    assert (refused.code, "no part of a run (host=00000)" in refused.err) == (12, True)
    assert everything(elsewhere) == before

    (fresh_run / "host=00000").unlink()
    link = tmp_path / "link"
    link.symlink_to(fresh_run)
    assert phasepoint(*commands(tmp_path, link)["record"]).code == 0
    assert link.is_symlink()
    assert (fresh_run / "run.json").is_file()


@pytest.mark.parametrize("command", ["record", "import"])
def test_what_phasepoint_wrote_there_goes_with_the_run(phasepoint, fresh_run, tmp_path, command):
    assert phasepoint("report", fresh_run).code == 0
    for name in ("csv", "chrome"):
        assert phasepoint("export", fresh_run, "--format", name).code == 0
    (fresh_run / ".tmp-run.json-1-2").touch()
    (fresh_run / "host=00000" / "steps" / ".tmp-part-1-2").touch()
    (fresh_run / ".staging" / "00001-ab").mkdir(parents=True)
    before = {path.name for path in fresh_run.iterdir()}
    assert {"report.html", "export"} <= before
    done = phasepoint(*commands(tmp_path, fresh_run)[command])
    assert done.code == 0, done.err
    assert {path.name for path in fresh_run.iterdir()} <= {"run.json", "host=00000"}


def test_many_names_are_counted(phasepoint, fresh_run, tmp_path):
    for number in range(9):
        (fresh_run / f"step-{number}.pt").touch()
    done = phasepoint(*commands(tmp_path, fresh_run)["record"])
    assert "(step-0.pt, step-1.pt, step-2.pt, step-3.pt, step-4.pt and 4 more)" in done.err
