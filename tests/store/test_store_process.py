"""A writer is alive, dead, or cannot be told."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from phasepoint.store.session import ProcessIdentity, is_alive, this_process

_ASK = (
    "import sys, msgspec; from phasepoint.store.session import this_process;"
    "print(msgspec.json.encode(this_process()).decode(), flush=True); sys.stdin.read()"
)


def test_this_process_lives():
    assert is_alive(this_process())
    assert this_process() == this_process()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_killed_process_is_dead_even_before_its_parent_looks():
    with subprocess.Popen([sys.executable, "-c", _ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        identity = msgspec.json.decode(process.stdout.readline(), type=ProcessIdentity)
        assert identity.pid == process.pid
        assert is_alive(identity)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
        assert not is_alive(identity)
    assert is_alive(identity) is False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_pid_that_was_given_out_again_is_another_process():
    assert is_alive(msgspec.structs.replace(this_process(), start_ticks=1)) is False


def test_a_process_of_another_machine_cannot_be_told():
    assert is_alive(msgspec.structs.replace(this_process(), machine="elsewhere")) is None
