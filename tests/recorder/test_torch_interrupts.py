"""Windows that begin and end inside steps of PyTorch, while ops, backward passes and other threads run.

Each job runs in a process of its own: what goes wrong here is a segmentation fault. They are forked from one that has
imported PyTorch.
"""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

STOPS = 40
"""With `profile_all_threads` a job beside two threads that ran ops lived through 34 stops; thousands were tried so."""

JOB = """
import os, sys, threading
import torch, torch._dynamo  # every optimizer imports it
from phasepoint.recorder.profilers.torch.session import TorchSession

torch.set_num_threads(1)
torch.manual_seed(0)
stops = int(sys.argv[1])


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * sum(1 for _ in range(200)) / 100

    @staticmethod
    def backward(ctx, gradient):
        return gradient * sum(1 for _ in range(200)) / 100


class Windows:
    def __init__(self):
        self.session, self.is_on, self.step, self.stopped_in, self.stops = TorchSession(), False, 0, -1, 0

    def change(self):
        if self.is_on:
            capture, self.is_on, self.stopped_in = self.session.stop(), False, self.step
            self.stops += 1
            if self.stops % 20 == 0:
                assert b"traceEvents" in capture()
        elif self.stopped_in < self.step:
            self.session.start(with_programs=False)
            self.is_on = True


def watch(windows, ended):
    while not ended.wait(0.0007):
        windows.session.interrupt(windows.change)


def work(network, ended):
    while not ended.is_set():
        network(torch.ones(4, 8)).sum().backward()


def train(windows, more):
    torch.manual_seed(0)
    network = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(6)])
    optimizer = torch.optim.SGD(network.parameters(), 0.01)
    losses = []
    while more(len(losses)):
        with torch.profiler.record_function("theirs"):
            loss = Twice.apply(network(torch.randn(4, 8))).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        windows.step += 1
    return losses


def job(workers):
    windows, ended = Windows(), threading.Event()
    threads = [threading.Thread(target=watch, args=(windows, ended), daemon=True)]
    for _ in range(workers):
        threads.append(threading.Thread(target=work, args=(torch.nn.Linear(8, 8), ended), daemon=True))
    assert windows.session.interrupts()
    for thread in threads:
        thread.start()
    losses = train(windows, lambda step: windows.stops < stops)
    ended.set()
    for thread in threads:
        thread.join()
    if windows.is_on:
        windows.session.stop()
    plain = train(Windows(), lambda step: step < len(losses))
    print("same" if plain == losses else "other", windows.stops, flush=True)


for name, workers in (("alone", 0), ("beside", 2)):
    child = os.fork()
    if not child:
        job(workers)
        sys.exit()
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def jobs():
    """What each job printed, with its exit code, by its name; none wrote to stderr."""
    command = [sys.executable, "-c", JOB, str(STOPS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    lines = done.stdout.splitlines()
    return {end.split()[0]: (told, int(end.split()[1])) for told, end in zip(lines[::2], lines[1::2], strict=True)}


@pytest.mark.parametrize("name", ["alone", "beside"])
def test_windows_inside_steps_neither_crash_the_job_nor_change_it(jobs, name):
    told, exit_code = jobs[name]
    same, stops = told.split()
    assert (same, exit_code) == ("same", 0)
    assert int(stops) >= STOPS
