"""A fleet: a real Ray cluster of two machines, one of which goes away half-way and comes back."""

import socket
import threading
import time

import pytest

from phasepoint.bench.suite.ask import ask_suite
from phasepoint.bench.suite.fleet import run_fleet
from phasepoint.bench.suite.result import PAIRS, read_suite

pytestmark = pytest.mark.torch

MODELS = """
import torch

def one():
    return torch.nn.Linear(64, 32), (torch.randn(1, 64),)

def two():
    return torch.nn.Linear(128, 32), (torch.randn(1, 128),)
"""


def results_of(folder):
    return sorted((folder / PAIRS).glob("*.json"))


# Starting a node forks this process, into which other tests have loaded JAX; what is started is another program.
@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")
def test_a_machine_that_goes_loses_nothing_but_what_it_was_at(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from ray_cluster import STORE_BYTES, ray_cluster

    (tmp_path / "mine.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    request = ask_suite(["mine:one", "mine:two"], devices=["cpu:1"], rounds=3, seconds=0.2)
    here = socket.gethostname()
    first, second = tmp_path / "out" / here, tmp_path / "out" / f"{here}-2"
    with ray_cluster(monkeypatch) as (cluster, nodes):
        gone = nodes[max(nodes)]  # by its id the second

        def end_it():
            while not results_of(second):
                time.sleep(0.05)
            cluster.remove_node(gone, allow_graceful=False)

        threading.Thread(target=end_it, daemon=True).start()
        machines = run_fleet(tmp_path / "out", request, cluster.address)
        assert [machine.folder for machine in machines] == [first, second]
        assert len(results_of(first)) == 6
        kept = results_of(second)
        assert machines[0].left == 0
        assert machines[1].left == 6 - len(kept) > 0
        assert kept
        before = {path: path.stat().st_mtime_ns for path in (*kept, *results_of(first))}
        cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        seen = []
        machines = run_fleet(tmp_path / "out", request, cluster.address, lambda *done: seen.append(done))
        assert seen[0] == (6 + len(kept), 12)
        assert seen[-1] == (12, 12)
        assert [machine.left for machine in machines] == [0, 0]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for folder in (first, second):
        asked, results = read_suite(folder)
        assert asked == request
        assert [one.status for one in results] == ["measured"] * 6
