"""Every wrong input: a message that names the thing and the remedy, on stderr, and the documented exit code."""

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest

from phasepoint.cli.main import run as run_command_line
from phasepoint.store import create_run, open_shard

READERS = (
    ("summary", "{}"),
    ("phases", "{}"),
    ("findings", "{}"),
    ("sql", "{}", "select 1"),
    ("export", "{}", "--format", "chrome"),
    ("export", "{}", "--format", "csv"),
    ("report", "{}"),
    ("compact", "{}"),
    ("convert", "{}"),
)


def _call(phasepoint, command, path, *more):
    return phasepoint(*(word.format(path) for word in command), *more)


def _fails(done, code, *words):
    assert done.code == code, done.err
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_missing_run(phasepoint, tmp_path, command):
    path = tmp_path / "nowhere"
    _fails(_call(phasepoint, command, path), 4, str(path), "no such directory", "phasepoint record")
    assert not path.exists()


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_folder_that_is_no_run(phasepoint, tmp_path, command):
    (tmp_path / "notes.txt").write_text("x")
    _fails(_call(phasepoint, command, tmp_path), 4, str(tmp_path), "run.json is missing", "notes.txt")


def test_file_in_place_of_a_run(phasepoint, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("{}")
    _fails(phasepoint("summary", path), 4, str(path), "this is a file")


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_run_of_a_newer_format(phasepoint, fresh_run, command):
    manifest = json.loads((fresh_run / "run.json").read_text())
    (fresh_run / "run.json").write_text(json.dumps({**manifest, "format_version": "9.0"}))
    _fails(_call(phasepoint, command, fresh_run), 5, "run.json", "9.0", "pip install --upgrade phasepoint")


def test_broken_manifest(phasepoint, fresh_run):
    (fresh_run / "run.json").write_text('{"format_version": ')
    _fails(phasepoint("summary", fresh_run), 3, str(fresh_run / "run.json"), "broken manifest")


def test_run_with_nothing_in_it_is_no_error(phasepoint, tmp_path):
    path = create_run(tmp_path / "empty")
    done = phasepoint("summary", path)
    assert done.code == 0
    assert "no process has written anything yet" in done.out
    assert phasepoint("report", path).code == 0
    assert phasepoint("export", path, "--format", "perfetto").code == 0
    assert phasepoint("export", path, "--format", "csv").code == 0


def test_zero_steps_are_said_and_a_remedy_named(phasepoint, tmp_path):
    path = create_run(tmp_path / "idle")
    start_ns = 1_700_000_000_000_000_000
    open_shard(path, 0, epoch_unix_ns=start_ns, clock=lambda: start_ns + 10**9).close()
    done = phasepoint("summary", path)
    assert done.code == 0
    assert "no training step was recorded in 1.00 s" in done.out
    assert "run.steps(loader)" in done.out
    assert phasepoint("phases", path).code == 0
    assert phasepoint("report", path).code == 0


def test_unreadable_part_is_named_and_the_rest_is_read(phasepoint, fresh_run):
    part = next((fresh_run / "host=00000" / "steps").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:100])
    done = phasepoint("summary", fresh_run)
    assert done.code == 0
    assert part.name in done.out
    assert part.name in phasepoint("sql", fresh_run, "select count(*) from steps").err


def test_unknown_method(phasepoint, run_path):
    done = phasepoint("phases", run_path, "--method", "magic")
    _fails(done, 2, "no phase method named 'magic'", "recurrent, ols, kmeans, dbscan")


def test_unknown_format(phasepoint, run_path):
    _fails(phasepoint("export", run_path, "--format", "svg"), 2, "'svg'", "chrome, perfetto, csv")
    _fails(phasepoint("tables", "--format", "html"), 2, "'html'", "text, md")


def test_unknown_table(phasepoint):
    _fails(phasepoint("tables", "stepz"), 8, "no table named 'stepz'", "steps, windows")


def test_unknown_command_suggests_one(phasepoint):
    _fails(phasepoint("sumary"), 2, "no command named 'sumary'", "Did you mean 'summary'?")


def test_unknown_option_and_missing_argument(phasepoint, run_path):
    _fails(phasepoint("summary", run_path, "--jsn"), 2, "--jsn", "--json", "--help")
    _fails(phasepoint("summary"), 2, "RUN")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select nothing from steps", ("nothing",)),
        ("select * from stepz", ("stepz", "The tables are steps")),
        ("selct 1", ("selct",)),
        ("select 1; select 2", ("one SQL statement",)),
        ("drop table steps", ("not allowed",)),
        ("select * from read_csv('/etc/passwd')", ("disabled",)),
    ],
)
def test_wrong_queries(phasepoint, run_path, query, words):
    _fails(phasepoint("sql", run_path, query), 11, *words)


def test_json_and_csv_exclude_each_other(phasepoint, run_path):
    _fails(phasepoint("sql", run_path, "select 1", "--json", "--csv"), 2, "--json and --csv")


def test_outputs_are_not_replaced_without_force(phasepoint, run_path, tmp_path):
    for words in (("report", run_path), ("export", run_path, "-f", "chrome"), ("export", run_path, "-f", "csv")):
        target = tmp_path / "-".join(words[2:] or words[:1])
        file = target / "phases.csv" if words[-1] == "csv" else target
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
        _fails(phasepoint(*words, "--output", target), 12, str(file), "exists already", "--force")
        assert file.read_text() == "mine"
        assert phasepoint(*words, "--output", target, "--force").code == 0
        assert file.read_text() != "mine"


def test_folder_in_place_of_an_output_file(phasepoint, run_path, tmp_path):
    _fails(phasepoint("report", run_path, "--output", tmp_path, "--force"), 3, str(tmp_path), "is a folder")


def test_output_below_a_file(phasepoint, run_path, tmp_path):
    (tmp_path / "file").write_text("x")
    _fails(phasepoint("report", run_path, "-o", tmp_path / "file" / "r.html"), 3, "cannot be written", "--output")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_full_disk_and_no_permission_leave_nothing(phasepoint, run_path, tmp_path, monkeypatch, number):
    def refuse(path, *_, **__):
        raise OSError(number, "refused", str(path))

    monkeypatch.setattr("phasepoint.cli.console._write_chunks", refuse)
    _fails(phasepoint("report", run_path, "-o", tmp_path / "r.html"), 3, str(tmp_path / "r.html"), "--output")
    assert list(tmp_path.iterdir()) == []


def test_old_output_stays_when_the_new_one_fails(phasepoint, run_path, tmp_path, monkeypatch):
    target = tmp_path / "r.html"
    target.write_text("old")

    def half(path, chunks):
        Path(path).write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("phasepoint.cli.console._write_chunks", half)
    _fails(phasepoint("report", run_path, "-o", target, "--force"), 3, "No space left on device")
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    assert target.read_text() == "old"


def test_too_little_memory_is_told(run_path, monkeypatch, capsys):
    def fail(*args, **kwargs):
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr("phasepoint.cli.opening.convert_with_progress", fail)
    assert run_command_line(["summary", str(run_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: not enough memory for this input (Unable to allocate 9 GiB); take a machine")
    assert "fault in Phasepoint" not in said


@pytest.mark.parametrize("words", [("import", "IN", "--out", "OUT"), ("predict", "IN", "--device", "tpu-v4")])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(phasepoint, tmp_path, words):
    os.mkfifo(tmp_path / "pipe")
    done = phasepoint(*({"IN": tmp_path / "pipe", "OUT": tmp_path / "out"}.get(word, word) for word in words))
    assert done.code == 7
    assert "pipe: a pipe or a device, no file; write what it gives to a file" in done.err


def test_our_own_fault_is_called_one(phasepoint, run_path, monkeypatch):
    def fail(path, method, **_):
        raise KeyError("surprise")

    monkeypatch.setattr("phasepoint.cli.answers.summary.open_analysis", fail)
    done = phasepoint("summary", run_path)
    _fails(done, 70, "unexpected KeyError", "surprise", "PHASEPOINT_DEBUG=1")
    monkeypatch.setenv("PHASEPOINT_DEBUG", "1")
    assert "Traceback" in phasepoint("summary", run_path).err


def test_interrupt(phasepoint, run_path, monkeypatch):
    def interrupt(path, method, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr("phasepoint.cli.answers.summary.open_analysis", interrupt)
    assert phasepoint("summary", run_path) == (130, "", "")


def test_messages_cannot_steer_the_terminal(phasepoint, tmp_path):
    done = phasepoint("summary", f"{tmp_path}/\x1b[31mred")
    assert done.code == 4
    assert "\x1b" not in done.err


@pytest.mark.parametrize(
    ("words", "code"), [(("summary", "/nowhere/at/all"), 4), (("bogus",), 2), (("tables", "steps"), 0)]
)
def test_exit_codes_of_the_process(python_m, words, code):
    done = subprocess.run([*python_m, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert done.stderr.startswith("error: ") == (code != 0)


def test_run_returns_instead_of_exiting():
    assert run_command_line(["version"]) == 0
