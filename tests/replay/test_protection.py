"""Whatever a replayed program does to the original's files, they stay as they are: bytes, names and times."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import destroyers
import pytest

from phasepoint.core.errors import ReplayError
from phasepoint.replay.protection import view
from phasepoint.replay.protection.protect import WAYS, Job, protected

PLACES = ("protected", "parent", "outside")

DRIVER = """
import json, subprocess, sys
answers = {}
for name, folder in json.load(sys.stdin):
    done = subprocess.run([sys.executable, sys.argv[1], name, folder], capture_output=True, text=True)
    answers[f"{name} {folder}"] = [done.returncode, done.stderr[-300:]]
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    """The ways that this machine has."""
    found = []
    for way in WAYS:
        out = tmp_path_factory.mktemp(way)
        with suppress(ReplayError), protected(Job(("true",), (), out, out / "saves"), ways=[way]):
            found.append(way)
    return found


def need(way, ways):
    if way not in ways:
        pytest.skip(f"the kernel offers no {way} here")


def everything(folder: Path) -> dict[str, tuple]:
    """Kind, mode, time of modification and content of all that a folder holds, and of itself."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        state = path.lstat()
        content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (oct(state.st_mode), state.st_mtime_ns, content)
    return found


def planted(root: Path):
    """For every program and place a folder to destroy: a checkpoint's, the one above it, and one elsewhere."""
    rows = []
    for name in destroyers.PROGRAMS:
        for place in PLACES:
            base = root / ("elsewhere" if place == "outside" else "job") / name / place
            folder = base / "checkpoints" if place == "protected" else base
            destroyers.make(base)
            if place != "outside":
                destroyers.make(base / "checkpoints")
            rows.append((name, place, str(folder)))
    return rows


@pytest.fixture(scope="module")
def unprotected(tmp_path_factory):
    """What the programs do where nothing protects: which of them fail by themselves."""
    root = tmp_path_factory.mktemp("unprotected")
    return answers_of([sys.executable, "-c", DRIVER, destroyers.__file__], planted(root), root)


def answers_of(command, rows, root):
    asked = json.dumps([(name, folder) for name, _, folder in rows])
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, cwd=root / "job")
    answers = json.loads(done.stdout)
    return {(name, place): answers[f"{name} {folder}"] for name, place, folder in rows}


def test_the_programs_destroy_and_work(unprotected):
    assert len(destroyers.PROGRAMS) >= 40
    assert {key: answer for key, answer in unprotected.items() if answer[0]} == {}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_the_original_changes_and_the_programs_work(tmp_path, unprotected, way, ways, monkeypatch):
    need(way, ways)
    rows = planted(tmp_path)
    out = tmp_path / "replay"
    out.mkdir()
    folders = tuple(folder for _, place, folder in rows if place == "protected")
    monkeypatch.chdir(tmp_path / "job")
    job = Job((sys.executable, "-c", DRIVER, destroyers.__file__), folders, out, out / "saves")
    if way != "view":  # what lies elsewhere is out of a copy's reach
        before = everything(tmp_path / "job")
    else:
        before = everything(tmp_path / "job"), everything(tmp_path / "elsewhere")
    with protected(job, ways=[way]) as protection:
        answers = answers_of(protection.command, rows, tmp_path)
        notes = protection.finish()
    if way != "view":
        assert everything(tmp_path / "job") == before
    else:
        assert (everything(tmp_path / "job"), everything(tmp_path / "elsewhere")) == before
    failed = {key: answer[1] for key, answer in answers.items() if answer[0]}
    if way == "landlock":
        assert {place for _, place in failed} <= {"outside"}
    else:
        assert failed == {}
    assert notes
    assert [path.name for path in out.iterdir()] in (["saves"], [])


def test_what_is_written_where_the_originals_are_goes_to_the_replays_folder(tmp_path, ways, monkeypatch):
    folder, out = tmp_path / "job" / "checkpoints", tmp_path / "replay"
    destroyers.make(folder)
    out.mkdir()
    monkeypatch.chdir(tmp_path / "job")
    script = (
        "mkdir checkpoints/9 && echo new > checkpoints/9/model && echo old > checkpoints/a.bin && cat checkpoints/a.bin"
    )
    for way in ways:
        saves = out / way
        with protected(Job(("sh", "-ec", script), (str(folder),), out, saves), ways=[way]) as protection:
            done = subprocess.run(protection.command, capture_output=True, text=True, check=True)
            protection.finish()
        assert done.stdout == "old\n"  # the program sees what it wrote
        assert (saves / str(folder).lstrip("/") / "9" / "model").read_text() == "new\n"
        assert (folder / "a.bin").read_bytes() == b"a" * 64


def test_the_replays_own_folder_is_the_disks_own(tmp_path, ways, monkeypatch):
    out = tmp_path / "job" / "replay"
    out.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "job")
    for way in ways:
        job = Job(("sh", "-c", f"echo {way} > replay/{way} && pwd"), (), out, out / "saves")
        with protected(job, ways=[way]) as protection:
            done = subprocess.run(protection.command, capture_output=True, text=True, check=True)
            protection.finish()
        assert (out / way).read_text() == f"{way}\n"
        assert done.stdout == f"{tmp_path / 'job'}\n"


def test_another_user_has_a_view_too(ways):
    """In a user namespace; PLACE, the job and the replay lie where others may look."""
    need("view", ways)
    python = "/usr/bin/python3"
    if os.getuid() != 0 or shutil.which("setpriv") is None or not Path(python).exists():
        pytest.skip("needs to become another user, with a Python that is everybody's")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base, tempfile.TemporaryDirectory(dir="/tmp") as job:
        folder, place, out = Path(job) / "job", Path(base) / "place", Path(job) / "out"
        shutil.copy(view.__file__, base)
        destroyers.make(folder)
        for path in (place, out):
            path.mkdir()
        for path in (Path(base), Path(job), *Path(base).rglob("*"), *Path(job).rglob("*")):
            os.chown(path, 54321, 54321, follow_symlinks=False)
        before = everything(folder)
        viewed = [python, "-I", "-S", f"{base}/view.py", str(place), str(out), "--", "sh", "-ec"]
        words = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", *viewed]
        script = f"rm -rf {folder}; test ! -e {folder}; id -u; echo x > {out}/f"
        done = subprocess.run([*words, script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "54321\n"), done.stderr
        assert json.loads((place / view.RECORD_NAME).read_text())["options"] == "userxattr"
        assert everything(folder) == before
        assert (out / "f").read_text() == "x\n"


def test_a_command_that_is_not_there_is_said_as_without_a_view(tmp_path, ways, monkeypatch):
    need("view", ways)
    monkeypatch.chdir(tmp_path)
    with protected(Job(("no-such-command",), (), tmp_path, tmp_path / "saves"), ways=["view"]) as protection:
        done = subprocess.run(protection.command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (127, "no-such-command: No such file or directory\n")


def test_where_nothing_protects_the_program_does_not_run_unless_asked_for(tmp_path):
    job = Job(("true",), (), tmp_path, tmp_path / "saves")
    with pytest.raises(ReplayError, match="give --unsafe"), protected(job, ways=[]):
        pass
    with protected(job, ways=[], unsafe=True) as protection:
        assert protection.command == job.command
        assert "--unsafe" in protection.words
