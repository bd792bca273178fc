import os
import signal
import subprocess
import sys
import time

import pytest
from recorder_fakes import FakeClock, FakeSession, StillFlusher, fake_record

from phasepoint.core.units import PS_PER_S
from phasepoint.recorder.process import idle_converter
from phasepoint.recorder.process.idle_converter import (
    LEAST_WINDOWS,
    SAVINGS,
    START_PRIOR_PS,
    WINDOW_PRIOR_PS,
    IdleConverter,
)

EXPECTED_PS = START_PRIOR_PS + LEAST_WINDOWS * WINDOW_PRIOR_PS


def converter_running(monkeypatch, code, **pipes):
    """A converter whose process runs this code."""
    converter = IdleConverter("run")
    started = []

    def start():
        process = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, **pipes)
        started.append(process)
        return process

    monkeypatch.setattr(converter, "_start", start)
    return converter, started


def wait_for_end(process):
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    process.stdin.close()


def fill(converter):
    for _ in range(LEAST_WINDOWS):
        converter.add_window()


def test_it_waits_for_savings_and_for_windows(monkeypatch):
    converter, started = converter_running(monkeypatch, "pass")
    fill(converter)
    assert converter.tend(SAVINGS * EXPECTED_PS - 1) == 0
    assert started == []
    converter.tend(SAVINGS * EXPECTED_PS)
    assert len(started) == 1
    wait_for_end(started[0])
    cost_ps = converter.tend(0)
    assert 0 < cost_ps < 5 * PS_PER_S
    converter.tend(1 << 60)  # no new windows: nothing to convert
    assert len(started) == 1


def test_one_at_a_time_and_it_is_ended_with_the_recording(monkeypatch):
    converter, started = converter_running(monkeypatch, "input()")
    fill(converter)
    converter.tend(1 << 60)
    fill(converter)
    assert converter.tend(1 << 60) == 0
    assert len(started) == 1
    converter.stop()
    assert started[0].returncode == -signal.SIGKILL
    started[0].stdin.close()
    assert converter.stop() == 0


def test_what_it_took_is_told_when_it_is_ended(monkeypatch):
    code = "print(flush=True)\nwhile True: pass"
    converter, started = converter_running(monkeypatch, code, stdout=subprocess.PIPE)
    fill(converter)
    converter.tend(1 << 60)
    started[0].stdout.readline()
    time.sleep(0.2)
    assert 0.05 * PS_PER_S < converter.stop() < 5 * PS_PER_S
    assert started[0].returncode == -signal.SIGKILL
    for pipe in (started[0].stdin, started[0].stdout):
        pipe.close()


def test_one_that_fails_is_not_tried_again(monkeypatch):
    converter, started = converter_running(monkeypatch, "raise SystemExit(3)")
    fill(converter)
    converter.tend(1 << 60)
    wait_for_end(started[0])
    converter.tend(1 << 60)
    fill(converter)
    converter.tend(1 << 60)
    assert len(started) == 1


def test_it_leaves_at_once_where_its_parent_is_gone(monkeypatch):
    monkeypatch.setattr(
        "ctypes.CDLL", lambda _name: pytest.fail("not on this system")
    ) if sys.platform != "linux" else None
    assert idle_converter.main(["run", str(os.getpid())]) == 0  # our parent is not ourselves


@pytest.mark.usefixtures("still")
def test_its_cost_is_in_the_account(tmp_path, monkeypatch):
    monkeypatch.setattr(IdleConverter, "tend", lambda _self, _allowance_ps: 7)
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock, FakeSession(clock)) as run:
        for _ in run.steps(range(10)):
            clock.tick(1000)
            StillFlusher.made.round()
    assert run.cost.convert_ps == 7 * 5  # flushes after 1, 2, 4, and then every 3 s


def test_a_real_one_converts_a_run(tmp_path):
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, os; raise SystemExit(subprocess.run([sys.executable, '-m', "
            "'phasepoint.recorder.process.idle_converter', sys.argv[1], str(os.getpid())]).returncode)",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 4  # reached the converter, which says that there is no run
    assert str(tmp_path) in process.stderr
