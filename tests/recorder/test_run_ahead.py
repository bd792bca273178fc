"""What windows cost a job whose host runs ahead of its device: the account against the delay of a simulated device."""

from collections import deque

import pytest
from recorder_fakes import MS, FakeClock, FakeSession, fake_record

from phasepoint.recorder import assembly

STEPS, DEVICE_MS = 3000, 20.0


class Device:
    """Works through what it was given, one step after another."""

    def __init__(self, clock, lead, every):
        self.clock, self.lead, self.every = clock, lead, every
        self.free_ns = clock.ns
        self.ends = deque()
        self.issued = 0

    def train(self, host_ms):
        """The host issues a step, then waits for the one so many before it, or for all of them every so often."""
        self.clock.tick(host_ms)
        self.free_ns = max(self.free_ns, self.clock.ns) + int(DEVICE_MS * MS)
        self.ends.append(self.free_ns)
        self.issued += 1
        if self.every and self.issued % self.every == 0:
            self.drain()
        while not self.every and len(self.ends) > self.lead:
            self.clock.ns = max(self.clock.ns, self.ends.popleft())

    def drain(self):
        self.clock.ns = max(self.clock.ns, self.free_ns)
        self.ends.clear()


def trained(tmp_path, host_ms, lead, every, budget):
    """How long the steps took, and the account."""
    clock = FakeClock()
    device, session = Device(clock, lead, every), FakeSession(clock)
    session.drain = device.drain
    with fake_record(tmp_path / str(budget), clock, session, budget=budget) as run:
        began_ns = clock.ns
        for step in run.steps(range(STEPS)):
            device.train(host_ms)
            if step % 20 == 0:
                run.recorder._background.round(False)
        took_ns = clock.ns - began_ns
    return took_ns, run.cost


@pytest.mark.parametrize("host_ms", [0.5, 5.0, 15.0])
@pytest.mark.parametrize(("lead", "every"), [(0, 0), (1, 0), (2, 0), (4, 0), (0, 10), (0, 50)])
def test_the_account_tells_what_windows_delay_the_job_by(tmp_path, still, monkeypatch, host_ms, lead, every):
    monkeypatch.setattr(assembly, "calibrate", lambda clock: 0)  # what was measured here would move the windows
    monkeypatch.setattr(assembly.import_cost, "spent_ns", 0)
    alone_ns, _ = trained(tmp_path, host_ms, lead, every, 0)
    took_ns, cost = trained(tmp_path, host_ms, lead, every, 0.02)
    delay_ns = took_ns - alone_ns
    told_ns = (cost.start_ps + cost.slowdown_ps + cost.stop_ps) // 1000
    assert cost.windows >= 10
    assert 0.85 * delay_ns <= told_ns <= 2 * delay_ns + 2.1 * cost.windows * host_ms * MS
    assert delay_ns <= 0.02 * alone_ns
