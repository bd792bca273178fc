"""A real Ray cluster on this machine: a head that takes no work, and two workers of one CPU each."""

import os
from contextlib import contextmanager
from pathlib import Path

STORE_BYTES = 80 << 20
"""The least that Ray takes for its object store."""


@contextmanager
def ray_cluster(monkeypatch):
    """Gives the cluster and its workers by their ids."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parent / "sources"), os.environ.get("PYTHONPATH", "")])
    )
    head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        workers = [cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES) for _ in range(2)]
        yield cluster, {worker.node_id: worker for worker in workers}
    finally:
        cluster.shutdown()
