"""No gate passes on a run that says nothing; and every command says what is missing and what to do."""

import json
import sys

import pytest
from made_run import START_NS, run_tables, step_rows

from phasepoint.core.tables import table_from_rows
from phasepoint.core.units import PS_PER_MS, PS_PER_S
from phasepoint.store import create_run, open_shard

LOOP = '`with phasepoint.record("RUN") as run:` around it, and `for batch in run.steps(loader):`'


def some_run(path, n_steps, *, wall_s=12, rows=None, notes=None, close=True, step_ms=40, command=("train.py",)):
    """A run of steps back to back from 100 ms on."""
    create_run(path, command=command)
    writer = open_shard(path, 0, epoch_unix_ns=START_NS, clock=lambda: START_NS + wall_s * 10**9, notes=notes or {})
    dur_ps = step_ms * PS_PER_MS
    steps = [{"step": i, "start_ps": PS_PER_S // 10 + i * dur_ps, "dur_ps": dur_ps} for i in range(n_steps)]
    for name, found in {"steps": steps, **(rows or {})}.items():
        if found:
            writer.append(name, table_from_rows(name, found))
    if close:
        writer.close()
    else:
        writer.flush()
        _leave(path)
    return str(path)


def _leave(path):
    """As if the writer had been killed: its process is no longer there."""
    file = path / "host=00000" / "session.json"
    session = json.loads(file.read_text())
    session["owner"]["pid"], session["owner"]["start_ticks"] = 2**22 + 1, 1
    file.write_text(json.dumps(session))


def off(what):
    gap = {"start_ps": 0, "dur_ps": None, "first_step": None, "last_step": None}
    return {"gaps": [{"why": "recorder-off", **gap, "unknown": f"the recorder switched itself off: {what}"}]}


CASES = {
    "no-steps": (0, {}, "no training step was recorded in 12.0 s", LOOP),
    "steps-missed": (30, {}, "most time passed outside steps: steps were probably missed (89.9 %", LOOP),
    "too-short": (19, {"wall_s": 1}, "19 steps recorded, and at least 20 are needed", "Record a job of more steps"),
    "killed": (100, {"close": False}, "the run has no end: the job was killed", "Let the job end by itself"),
    "not-written": (100, {"wall_s": 4, "rows": off("No space left on device")}, "No space left on device", "Make room"),
}


@pytest.mark.parametrize("code", CASES)
def test_a_gate_on_findings_fails_with_its_own_code(phasepoint, tmp_path, code):
    n_steps, more, text, remedy = CASES[code]
    path = some_run(tmp_path / "run", n_steps, **more)
    done = phasepoint("findings", path, "--fail-on", "RECOMPILE")
    assert done.code == 19
    assert f"error: --fail-on RECOMPILE: cannot be judged: {path}: " in done.err
    assert text in done.err
    assert remedy in done.err
    assert phasepoint("findings", path, "--fail-on", "any").code == 19
    plain = phasepoint("findings", path)
    assert plain.code == 0
    first = "NOT KNOWN: " if code in ("no-steps", "steps-missed") else "Not enough to judge: "
    assert first in plain.out
    assert text in " ".join(plain.out.split())
    assert plain.out.startswith("NOT KNOWN: ")
    told = json.loads(phasepoint("findings", path, "--json").out)["not_enough"]
    assert told["code"] == code
    assert text in told["text"]


@pytest.mark.parametrize("code", CASES)
def test_the_summary_says_so_too(phasepoint, tmp_path, code):
    n_steps, more, text, _ = CASES[code]
    path = some_run(tmp_path / "run", n_steps, **more)
    summary = json.loads(phasepoint("summary", path, "--json").out)
    assert summary["not_enough"]["code"] == code
    assert (text in summary["verdict"]) is (code in {"no-steps", "steps-missed"})
    done = phasepoint("summary", path)
    assert done.code == 0
    assert ("killed" if code == "killed" else text) in " ".join(done.out.split())


@pytest.mark.parametrize("code", CASES)
def test_a_gate_on_a_diff_fails_with_its_own_code(phasepoint, run_path, tmp_path, code):
    n_steps, more, *_ = CASES[code]
    path = some_run(tmp_path / "run", n_steps, **more)
    done = phasepoint("diff", run_path, path, "--fail-over", "3%")
    assert done.code == 19
    assert "--fail-over 3%: cannot be judged: " in done.err


def test_a_gate_passes_and_fails_as_before_on_a_run_that_can_be_judged(phasepoint, run_path):
    assert phasepoint("findings", run_path, "--fail-on", "RECOMPILE").code == 0
    assert phasepoint("findings", run_path, "--fail-on", "INPUT-STALL").code == 14
    assert phasepoint("diff", run_path, run_path, "--fail-over", "3%").code == 0
    assert json.loads(phasepoint("findings", run_path, "--json").out)["not_enough"] is None


def test_any_means_findings_about_the_job(phasepoint, tmp_path):
    """Nothing was captured, which THIN-PROFILE says; that is no fault of the job."""
    path = some_run(tmp_path / "run", 280)
    codes = [one["code"] for one in json.loads(phasepoint("findings", path, "--json").out)["findings"]]
    assert codes == ["THIN-PROFILE"]
    assert phasepoint("findings", path, "--fail-on", "any").code == 0
    assert phasepoint("findings", path, "--fail-on", "any", "--fail-on", "THIN-PROFILE").code == 14


EMPTY = [
    (("summary",), 0),
    (("phases",), 0),
    (("findings",), 0),
    (("stack", "--analysis", "device-time"), 0),
    (("report",), 0),
    (("export", "--format", "csv"), 0),
    (("sql", "select count(*) from steps"), 0),
    (("replay compact",), 9),
    (("replay plan",), 9),
    (("replay estimate",), 9),
]


@pytest.mark.parametrize(
    ("words", "code"), EMPTY, ids=lambda words: " ".join(words) if isinstance(words, tuple) else ""
)
def test_every_command_on_an_empty_run_says_so_and_what_to_do(phasepoint, tmp_path, words, code):
    path = some_run(tmp_path / "run", 0, notes={"steps_unfollowed": "a loop in C++ makes the steps"})
    done = phasepoint(*words[0].split(), path, *words[1:])
    said = " ".join((done.out + done.err).split())
    assert done.code == code, done.err
    assert said.count("no training step was recorded in 12.0 s: a loop in C++ makes the steps") >= 1
    assert "run.steps(loader)" in said


def test_what_steps_are_is_shown(phasepoint, tmp_path):
    notes = {
        "steps_from": "optimizer steps (torch.optim)",
        "steps_per_call": "10",
        "steps_unfollowed": "eval is not seen",
    }
    path = some_run(tmp_path / "run", 280, notes=notes)
    said = "Steps are optimizer steps (torch.optim). Each recorded step is a call of 10 training steps."
    done = phasepoint("summary", path)
    assert said in " ".join(done.out.split())  # a narrow terminal breaks lines
    assert "! eval is not seen" in done.out
    assert said in phasepoint("report", path, "--format", "md").out
    summary = json.loads(phasepoint("summary", path, "--json").out)
    assert (summary["steps_from"], summary["steps_per_call"]) == ("optimizer steps (torch.optim)", 10)
    assert "eval is not seen" in summary["notes"]
    assert phasepoint("report", path).code == 0
    assert said in (tmp_path / "run" / "report.html").read_text()


def test_a_killed_run_claims_no_budget_that_nobody_counted(phasepoint, tmp_path):
    path = some_run(tmp_path / "run", 280, notes={"budget": "0.01"}, close=False)
    out = phasepoint("summary", path).out
    assert "within the budget" not in out
    assert "What recording cost is not known." in out
    assert "killed, or lost its writer (1 process)" in out


def test_a_killed_run_with_its_account_is_held_against_its_budget(phasepoint, tmp_path):
    cost = {
        "name": "recorder.cost.clock",
        "unit": "ps",
        "device": "host",
        "time_ps": PS_PER_S,
        "value": float(PS_PER_MS),
    }
    path = some_run(tmp_path / "run", 280, notes={"budget": "0.01"}, close=False, rows={"counters": [cost]})
    assert "within the budget of 1.0 %" in " ".join(phasepoint("summary", path).out.split())


def test_diff_says_that_the_jobs_are_different_ones(phasepoint, run_path, tmp_path):
    tables = run_tables(step_rows())
    other = [{**row, "op": f"other_{row['op'][:4]}", "layer": "Other"} for row in tables["ops"]]
    path = tmp_path / "other"
    create_run(path, command=("python", "serve.py"))
    writer = open_shard(path, 0, epoch_unix_ns=START_NS, clock=lambda: START_NS + 12 * 10**9)
    for name, rows in (tables | {"ops": other}).items():
        writer.append(name, table_from_rows(name, rows))
    writer.close()
    done = phasepoint("diff", run_path, path)
    assert done.code == 0
    told = " ".join(done.out.split())  # a narrow terminal breaks lines
    assert told.startswith("These are probably different jobs: 100 % of the base's op time and 100 % of the run's")
    assert "commands differ: python train.py in the base, python serve.py in the run" in done.err
    told = json.loads(phasepoint("diff", run_path, path, "--json").out)["unrelated"]
    assert "base: python train.py; run: python serve.py" in told
    assert json.loads(phasepoint("diff", run_path, run_path, "--json").out)["unrelated"] is None


@pytest.mark.parametrize("text", ["1%", "1 %", "0.01", " 1.0% "])
def test_all_options_take_a_ratio_in_every_spelling(phasepoint, run_path, tmp_path, text):
    assert phasepoint("diff", run_path, run_path, "--fail-over", text).code == 0
    assert phasepoint("replay", "compact", run_path, "--budget", text.replace("1", "5")).code in {0, 2}
    script = [sys.executable, "-c", "import os; print(os.environ['PHASEPOINT_AUTORECORD'])"]
    assert phasepoint("record", "--out", tmp_path / "run", "--budget", text, "--", *script).code == 0


@pytest.mark.parametrize("text", ["3", "a lot", "-1%", "%", "nan"])
def test_what_is_no_ratio_is_refused_alike(phasepoint, run_path, tmp_path, text):
    for words in (
        ("diff", run_path, run_path, f"--fail-over={text}"),
        ("replay", "compact", run_path, f"--budget={text}"),
        ("record", "--out", tmp_path / "run", f"--budget={text}", "--", "true"),
        ("demo", "--out", tmp_path / "demo", f"--budget={text}"),
    ):
        done = phasepoint(*words)
        assert done.code == 2, words
        assert f"{text}: expected a share such as 1% or 0.01" in done.err
        assert ("3 percent is written 3%" in done.err) is (text == "3")


def test_a_recording_ends_with_one_line_whatever_stderr_is(phasepoint, tmp_path):
    path = tmp_path / "run"
    done = phasepoint("record", "--out", path, "--", "true")
    line, note = done.err.splitlines()
    assert line.startswith("recorded: 0 steps, 0 windows, cost not known, in ")
    assert line.endswith(f", into {path}; next: phasepoint summary {path}")
    assert note.startswith(f"note: {path}: no training step was recorded: no process of the job made one")
    assert "run.steps(loader)" in note
    assert phasepoint("record", "--out", path, "--quiet", "--", "true").err == ""
    again = phasepoint("record", "--out", path, "--json", "--", "true")
    document = json.loads(again.out)
    assert (document["steps"], document["not_enough"]["code"], document["cost_ratio"]) == (0, "no-steps", None)
    assert again.err.startswith("recorded: 0 steps")


def test_results_in_the_run_are_made_again_and_other_files_are_left(phasepoint, fresh_run, tmp_path):
    """One rule: what Phasepoint wrote into the run's folder is its own; anything else needs --force."""
    report = fresh_run / "report.html"
    for words in (("report",), ("export", "--format", "csv"), ("export", "--format", "chrome")):
        for _ in range(2):
            assert phasepoint(words[0], fresh_run, *words[1:]).code == 0
    report.write_text("<p>my own page</p>")
    assert phasepoint("report", fresh_run).code == 12
    assert report.read_text() == "<p>my own page</p>"
    assert phasepoint("report", fresh_run, "--force").code == 0
    elsewhere = tmp_path / "page.html"
    assert phasepoint("report", fresh_run, "--output", elsewhere).code == 0
    assert phasepoint("report", fresh_run, "--output", elsewhere).code == 12
