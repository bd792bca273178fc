"""Where little can be written: another user, no home, a small disk, a run and a package that can only be read."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from made_run import made_run
from unconverted_run import unconverted_run

import phasepoint

NOBODY = 54321
"""A user of whom the system knows nothing, as in a container that is started with `--user`."""

_READS_ALL = "-all,+dac_read_search"
"""The other user may read everything, as Python itself may lie in somebody's home, and write nothing of others."""


class Place(NamedTuple):
    folder: Path
    run: Path
    converted: Path
    temporary: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    """A package and two runs that cannot be written, and a folder for temporary files that can."""
    folder = tmp_path_factory.mktemp("container")
    source, package = Path(phasepoint.__file__).parent, folder / "package"
    # With the interpreter's own compiled files, as an image holds them, but no machine code.
    shutil.copytree(source, package / "phasepoint", ignore=shutil.ignore_patterns("*.nbi", "*.nbc"))
    unconverted_run(folder / "run")
    made_run(folder / "converted")
    for path in (package, folder / "run", folder / "converted"):
        for one in (path, *path.rglob("*")):
            one.chmod(0o555 if one.is_dir() else 0o444)
    (folder / "temporary").mkdir()
    (folder / "temporary").chmod(0o777)
    yield Place(folder, folder / "run", folder / "converted", folder / "temporary")
    for one in (folder, *folder.rglob("*")):
        if one.is_dir():
            one.chmod(0o700)


def as_nobody() -> list[str]:
    """The words before a command that make it another user's; none where we cannot become one."""
    if os.getuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv (util-linux) to become another user")
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*words, *(f"--{name}={_READS_ALL}" for name in ("inh-caps", "ambient-caps", "bounding-set"))]


def call(place, *arguments, **more):
    """The command line as that user, where nothing but the temporary folder can be written."""
    return start(place, ["-m", "phasepoint", *map(str, arguments)], **more)


def start(place, words, *, home="/nonexistent", file_bytes=None, more=None):
    """Python as that user."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(place.folder / "package"), "TMPDIR": str(place.temporary)}
    environ |= {"PYTHONDONTWRITEBYTECODE": "1", **({"HOME": home} if home else {}), **(more or {})}
    # Another program sets the limit: other tests have loaded JAX into this process, which must run no code in a fork.
    limit = [] if file_bytes is None else ["prlimit", f"--fsize={file_bytes}:{file_bytes}"]
    command = [*limit, *as_nobody(), sys.executable, *words]
    return subprocess.run(
        command, env=environ, cwd=place.folder, capture_output=True, text=True, check=False, timeout=300
    )


READS = [
    ("summary", "./run"),
    ("phases", "./run"),
    ("findings", "./run"),
    ("stack", "./run"),
    ("stack", "./run", "--analysis", "device-time"),
    ("replay", "./run"),
    ("replay", "plan", "./run"),
    ("replay", "compact", "./run"),
    ("replay", "estimate", "./run"),
    ("diff", "./run", "./run"),
    ("sql", "./run", "select count(*) as n from ops"),
    ("report", "./run", "--format", "md"),
    ("convert", "./run"),
    ("tables",),
    ("devices",),
    ("explain", "DRIFT"),
    ("learn",),
    ("version",),
]


_EACH_COMMAND = """
import contextlib, io, json, sys
from phasepoint.cli.main import run
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    print(json.dumps([words, code, out.getvalue(), err.getvalue()]))
"""


def test_commands_that_read_work_without_home_on_a_run_that_cannot_be_written(place):
    done = start(place, ["-c", _EACH_COMMAND, json.dumps(READS)])
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [words for words, *_ in answers] == [list(words) for words in READS]
    for words, code, out, err in answers:
        assert (code, "error" in err) == (0, False), (words, err)
        assert out, words
        assert "cannot be kept" not in err


@pytest.mark.parametrize("home", [None, "relative/home"])
def test_a_home_that_is_unset_or_no_folder_gets_no_folder(place, home):
    done = call(place, "summary", "run", home=home)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in place.folder.iterdir()) == ["converted", "package", "run", "temporary"]


def test_the_waiting_window_is_converted_in_memory(place):
    done = call(place, "summary", "run", "--json")
    seen = json.loads(done.stdout)["not_seen"]
    assert (seen["windows"], seen["pending_windows"], seen["captured_steps"]) == (7, 0, 35)
    assert (place.run / "host=00000" / "raw").is_dir()
    assert "cannot be written" in call(place, "convert", "run").stdout


@pytest.mark.parametrize("words", [("report", "run"), ("export", "run", "--format", "chrome"), ("compact", "run")])
def test_a_command_that_writes_into_the_run_says_where_it_cannot_and_what_to_do(place, words):
    done = call(place, *words)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: run")
    assert "ermission" in done.stderr
    assert ("--output" in done.stderr) is (words[0] != "compact")


@pytest.mark.parametrize(
    "words",
    [
        ("report", "run", "--output", "temporary/report.html"),
        ("export", "run", "--format", "chrome", "--output", "temporary/trace.json"),
        ("export", "run", "--format", "csv", "--output", "temporary/tables"),
    ],
    ids=" ".join,
)
def test_a_result_goes_where_there_is_room(place, words):
    done = call(place, *words)
    assert done.returncode == 0, done.stderr
    assert (place.folder / words[-1]).exists()


def test_recording_says_where_it_cannot_write_and_works_where_it_can(place):
    refused = call(place, "record", "--out", "run", "--", "true")
    assert refused.returncode == 10
    assert refused.stderr == "error: run: no permission to write; choose another place with --out\n"
    done = call(place, "record", "--out", "temporary/recorded", "--", sys.executable, "-c", "print('done')")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert call(place, "summary", "temporary/recorded").returncode == 0


def test_traces_are_imported_where_there_is_room(place):
    trace = place.temporary / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}))
    refused = call(place, "import", trace, "--out", "imported")
    assert refused.returncode == 3
    assert refused.stderr.startswith("error: ")
    assert "ermission" in refused.stderr
    assert call(place, "import", trace, "--out", "temporary/imported").returncode == 0


def test_a_command_that_only_reads_needs_no_room_at_all(place):
    """No file takes a byte: machine code is kept nowhere, which is said once."""
    done = call(place, "summary", "run", file_bytes=0, more={"TMPDIR": "/nonexistent"})
    assert done.returncode == 0, done.stderr
    assert "captured in full: 35 of 200 steps" in done.stdout.lower()
    assert done.stderr.count("compiled functions cannot be kept") == 1
    assert "NUMBA_CACHE_DIR" in done.stderr


def test_a_disk_that_is_full_is_said_with_the_file_and_what_to_do(place):
    target = place.temporary / "full.html"
    done = call(place, "report", "run", "--output", target, file_bytes=20_000)
    assert done.returncode == 3
    assert f"error: {target}: cannot be written: File too large" in done.stderr
    assert not target.exists()


def test_the_users_own_cache_of_machine_code_is_used(place):
    kept = place.temporary / "kept"
    assert call(place, "phases", "converted", more={"NUMBA_CACHE_DIR": str(kept)}).returncode == 0
    assert list(kept.rglob("*.nbi"))
