"""Folders of per-rank traces, and an import that stops half-way in one of them until somebody kills it."""

import json
import os
import signal
import sys
from pathlib import Path

from phasepoint.sources.ingest.import_run import import_shard
from phasepoint.store.writer import ShardWriter

STOPPED_HOST = 1


def rank_trace(rank, *, n_steps=3, says_rank=True):
    """Kineto's JSON of a GPU job; every rank's kernels last a little longer."""
    events = []
    for step in range(n_steps):
        at = 1000 * step
        events += [
            _event(f"ProfilerStep#{step}", "user_annotation", at, 1000),
            _event("cudaLaunchKernel", "cuda_runtime", at + 20, 10, correlation=step + 1),
            _event("gemm", "kernel", at + 100, 600 + rank, correlation=step + 1, device=0, stream=7),
        ]
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H100"}]}
    if says_rank:
        head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 4}
    return json.dumps({**head, "traceEvents": events}).encode()


def _event(name, cat, ts, dur, **args):
    tid = args.get("stream", 1)
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def rank_folder(folder: Path, n_ranks: int) -> Path:
    folder.mkdir()
    for rank in range(n_ranks):
        (folder / f"job.{rank}.json").write_bytes(rank_trace(rank))
    return folder


def stopping_import_shard(task):
    """As `import_shard`; the first to import `STOPPED_HOST` writes half of its shard, says so, and waits."""
    place = Path(task.out).parent
    if task.host == STOPPED_HOST and _is_first(place / "stopped"):
        ShardWriter.close = lambda writer, status="ok": _stop(writer, place / "fifo")
    return import_shard(task)


def _is_first(marker: Path) -> bool:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _stop(writer: ShardWriter, fifo: Path) -> None:
    writer.flush()
    with fifo.open("w") as opened:
        opened.write(json.dumps({"pid": os.getpid(), "node": _ray_node()}))
    signal.pause()


def _ray_node() -> str | None:
    """Id of the cluster's machine that this process works on."""
    ray = sys.modules.get("ray")
    return ray.get_runtime_context().get_node_id() if ray is not None and ray.is_initialized() else None
