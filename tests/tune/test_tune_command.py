"""`phasepoint tune`: what came of it, the next run with it, and what it says where there is nothing to say."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import phasepoint as pp
from phasepoint.tune.apply import VARIABLE, Applied, this_machine

JOB = """
import json, sys, time
import phasepoint as pp
from phasepoint.tune.live import trial, tuner
tuner.OBSERVED_S, trial.COUNTED_S, trial.READY_S = 0.2, 0.04, 0.02
class Numbers:
    def __iter__(self):
        for number in range(int(sys.argv[2])):
            time.sleep(0.004)
            yield number
class NoRun:
    def steps(self, loader):
        return loader
def train(run):
    loader = pp.tune.loader(lambda **knobs: Numbers(), run=None if isinstance(run, NoRun) else run)
    for number in run.steps(loader):
        time.sleep(0.004)
        if number == 30:
            print("begins with", json.dumps(loader.state and dict(loader.state.chosen)), flush=True)
    print("ends with", loader.verdict, json.dumps(loader.state and dict(loader.state.chosen)), flush=True)
if sys.argv[1] == "-":
    train(NoRun())
else:
    with pp.record(sys.argv[1]) as run:
        train(run)
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "train.py"
    path.write_text(JOB)
    return str(path)


@pytest.fixture(scope="module")
def tuned(job, tmp_path_factory):
    run = str(tmp_path_factory.mktemp("runs") / "tuned")
    done = command(sys.executable, job, run, "500")
    assert "ends with tuned" in done.stdout, done.stdout + done.stderr
    return run


def command(*words, **variables):
    environment = {**os.environ, "COLUMNS": "200", **variables}
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)


def phasepoint(*words, **variables):
    return command(sys.executable, "-m", "phasepoint", *words, **variables)


def test_the_answer_names_what_was_won_and_how_to_use_it(tuned):
    said = phasepoint("tune", tuned)
    assert said.returncode == 0, said.stderr
    first, *rest = said.stdout.splitlines()
    assert first.startswith("tuned: prefetch ")
    assert "in place of prefetch 0 makes" in first
    assert "more steps a second" in first
    assert any(line.startswith("1 trial cost") for line in rest)
    assert f"phasepoint tune --apply {tuned} -- python train.py" in said.stdout


def test_the_document_holds_each_trial_with_what_was_said_before(tuned):
    found = json.loads(phasepoint("tune", tuned, "--json").stdout)
    assert (found["version"], found["kind"], found["verdict"]) == (1, "tune", "tuned")
    assert found["chosen"]["prefetch"] > 0 == found["as_written"]["prefetch"]
    assert 0 < found["gain_low"] <= found["gain"]
    assert found["gain_high"] is None or found["gain"] <= found["gain_high"]
    assert found["ceiling_steps_per_s"] > 0
    assert found["limited_by"] in {"input", "loop", "cpu"}
    assert found["won_s"] > 0 <= found["spent_s"]
    trial = found["trials"][0]
    assert {"knobs", "predicted_gain", "gain", "low", "high", "accepted", "reason", "first_step", "last_step"} <= set(
        trial
    )
    assert trial["accepted"]
    assert 0 <= trial["first_step"] < trial["last_step"] < 500
    # The run's own step clock saw it, too.
    steps = pp.open_run(tuned).table("steps")
    durations = steps["dur_ps"].to_numpy()
    before = np.median(durations[6 : trial["first_step"]])
    after = np.median(durations[trial["last_step"] + 10 :])
    assert before / after > 1.2


def test_the_report_draws_the_trials_over_the_speed_of_the_loop(tuned, tmp_path):
    page = tmp_path / "report.html"
    said = phasepoint("report", tuned, "-o", str(page), "--json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["tuning"]["verdict"] == "tuned"
    section = page.read_text().partition('id="tuning"')[2].partition("</section>")[0]
    assert "more steps a second" in section
    assert section.count("<polyline") == 1
    points = section.partition('points="')[2].partition('"')[0].split()
    assert len(points) == 160
    assert section.count('fill-opacity="0.18"') >= 1
    assert "expected" in section


def test_the_next_run_begins_with_it(tuned, job, tmp_path):
    chosen = json.dumps(json.loads(phasepoint("tune", tuned, "--json").stdout)["chosen"])
    done = phasepoint("tune", "--apply", tuned, "--", sys.executable, job, str(tmp_path / "next"), "60")
    assert f"begins with {chosen}" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
    assert "note: loader: prefetch" in done.stderr


def test_on_another_machine_it_is_tried_first(job, tmp_path):
    applied = Applied(settings={"loader": {"prefetch": 8}}, machine="another machine").to_environ()
    done = command(sys.executable, job, str(tmp_path / "run"), "400", **{VARIABLE: applied})
    assert 'begins with {"prefetch": 0}' in done.stdout, done.stderr
    trials = json.loads(phasepoint("tune", str(tmp_path / "run"), "--json").stdout)["trials"]
    assert trials[0]["knobs"] == {"prefetch": 8}


def test_the_commands_exit_code_is_its_own(tuned):
    assert phasepoint("tune", "--apply", tuned, "--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7


def test_switched_off_the_loader_is_as_written(job, tmp_path):
    done = command(sys.executable, job, str(tmp_path / "run"), "60", **{VARIABLE: "off"})
    assert "ends with nothing to tune null" in done.stdout, done.stderr


def test_a_job_recorded_without_a_line_keeps_what_was_tuned(job, tmp_path):
    """`phasepoint record` finds no steps in such a loop; without a recording the loader is tuned all the same."""
    done = command(sys.executable, job, "-", "400")
    assert "ends with tuned" in done.stdout, done.stderr


def test_a_killed_run_keeps_what_was_tuned(job, tmp_path):
    run = str(tmp_path / "killed")
    process = subprocess.Popen([sys.executable, job, run, "5000"], stdout=subprocess.PIPE)
    try:
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            time.sleep(0.5)
            shown = phasepoint("tune", run, "--json")
            if shown.returncode == 0 and json.loads(shown.stdout)["trials"]:
                break
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    found = json.loads(phasepoint("tune", run, "--json").stdout)
    assert found["verdict"] == "tuned"
    assert found["trials"][0]["accepted"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "no run was given"),
        (["RUN", "--", "python"], 2, "'python' is one word too many"),
        (["RUN", "--out", "x"], 2, "--out and --force go with --apply"),
        (["--apply", "RUN"], 2, "no command was given: phasepoint tune --apply"),
        (["--apply", "RUN", "--", "./no-such-program"], 10, "./no-such-program: cannot be started: No such file"),
        (["nowhere"], 4, "nowhere"),
    ],
)
def test_what_cannot_be_done_is_said(words, code, message, tuned):
    said = phasepoint("tune", *[tuned if word == "RUN" else word for word in words])
    assert said.returncode == code, said.stderr
    assert message in said.stderr


def test_a_run_in_which_nothing_was_tuned_says_how_to(tmp_path):
    with pp.record(str(tmp_path / "plain")) as run:
        for _ in run.steps(range(5)):
            pass
    said = phasepoint("tune", str(tmp_path / "plain"))
    assert said.returncode == 9
    assert "no loader was tuned in it; make the job's loader with phasepoint.tune.loader" in said.stderr


def test_a_variable_that_is_neither_is_refused():
    from phasepoint.core.errors import UsageError

    with pytest.raises(UsageError, match="PHASEPOINT_TUNE is 'fast'; expected 'off'"):
        Applied.from_environ("fast")
    assert Applied.from_environ("") == Applied()
    assert Applied.from_environ(" OFF ").is_off
    there = Applied(settings={"a": {"x": 1}}, machine=this_machine())
    assert Applied.from_environ(there.to_environ()) == there
