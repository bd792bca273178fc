"""A fault in every hook of the recorder, one by one, found by reflection: the job is unharmed, and is told.

A new guarded method is in this test by itself: a job must reach it, or `UNREACHED` must say why none here does.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hook_faults import FRAMEWORK, JOBS, every_hook

_FEW = "ends a job with too few steps to open a recording"
_PLACED = "needs a loader whose place can be saved: test_resume.py"
_OFF = "called by a fault: test_recorder_faults.py"

UNREACHED = {
    "autosteps.sources.jax.annotation:StepAnnotations.finish": _FEW,
    "autosteps.sources.jax.clock:JaxClock._exit": _FEW,
    "autosteps.sources.jax.clock:JaxClock._remember_compiled": "needs a program that is compiled ahead of time",
    "autosteps.sources.jax.optax:OptaxUpdates.finish": _FEW,
    "autosteps.sources.keras:KerasLoop._batch_ended": "needs Keras",
    "autosteps.sources.lightning:LightningLoop._after": "needs Lightning",
    "autosteps.sources.lightning:LightningLoop._before": "needs Lightning",
    "autosteps.sources.torch.clock:TorchClock._exit": _FEW,
    "autosteps.sources.torch.updates:ParameterUpdates.finish": _FEW,
    "autosteps.unrecorded:UnrecordedSteps.open": "of `phasepoint stack measure`, which records nothing",
    "background:Background.cost": "read by who asks a recording what it cost",
    "profilers.late:_LateSession._adopt": "needs a framework that is imported after the recording has begun",
    "recorder:Recorder.abandon": _OFF,
    "recorder:Recorder.before_placed": _PLACED,
    "recorder:Recorder.begin_placed": _PLACED,
    "recorder:Recorder.end_placed": _PLACED,
    "recorder:Recorder.on_compile": "needs a program that is compiled while its steps are recorded",
    "windows.runner:WindowRunner.stop_abandoned": _OFF,
}
"""By hook (`module:Class.method`, without the package's name), why no job here reaches it."""

BY_CHANCE = {"windows.runner:WindowRunner.interrupted"}
"""Reached where a busy machine makes a step longer than its window; by purpose in test_torch_interrupts.py."""


def run_jobs(job, folder, *more):
    command = [sys.executable, str(Path(__file__).with_name("hook_faults.py")), job, str(folder), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert not done.returncode, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def short(hook):
    return hook.removeprefix("phasepoint.recorder.")


def with_marks(job):
    return pytest.param(job, marks=getattr(pytest.mark, FRAMEWORK.get(job, "jax")))


@pytest.mark.parametrize("job", [with_marks(job) for job in JOBS])
def test_a_fault_in_any_hook_harms_no_job_and_is_told(tmp_path, job):
    plain, counted, *faults = run_jobs(job, tmp_path)
    assert plain["digest"]
    assert counted["digest"] == plain["digest"]
    assert len(faults) > 3
    for fault in faults:
        assert fault["status"] == 0, fault
        assert fault["digest"] == plain["digest"], fault
        if not fault["reached"] and short(fault["hook"]) in BY_CHANCE:
            continue
        assert fault["reached"] == [fault["hook"]], fault
        assert "planted" in fault["stderr"] + "".join(fault["told"]), fault
        assert "Traceback" not in fault["stderr"], fault


@pytest.mark.jax
@pytest.mark.torch
def test_every_hook_is_reached_by_some_job(tmp_path):
    reached = {hook for job in JOBS for hook in run_jobs(job, tmp_path / job, "count")[1]["reached"]}
    left = {short(hook) for hook in set(every_hook()) - reached}
    assert left - BY_CHANCE == set(UNREACHED)
