"""Places that go wrong while a job is recorded: does the job come out the same, in the same time, and what is left?

    python benchmarks/bad_places.py                     # a quarter of an hour on two cores
    python benchmarks/bad_places.py --only slow-disk --turns 1

A PyTorch job of fixed work is run plain and recorded, in turns, and recorded with one thing wrong: a disk that takes a
second for every write, is full, becomes read-only or takes its permissions back half-way; a file system without hard
links or without `fsync`; a machine's clock that is set back or forth by an hour, or whose name changes when the job is
started again; an object store that fails three calls in ten (a real server of S3's interface on the loopback).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from phasepoint.core.errors import PhasepointError
from phasepoint.store import open_run

JOB = """
import errno, hashlib, os, sys, threading, time
from pathlib import Path
place, fault, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
began = time.perf_counter()
half_way = lambda: time.perf_counter() - began > 5
import torch
def refuse(code):
    raise OSError(code, os.strerror(code))
if place != "none":
    from phasepoint.store import filesystem
    real_sync, real_write, real_time, real_link = os.fsync, filesystem._write_temporary, time.time_ns, os.link
    codes = {"full": errno.ENOSPC, "read-only": errno.EROFS, "no-permission": errno.EACCES}
    def write(target, *args, **kwargs):
        if fault == "slow-disk":
            time.sleep(1)
        if fault in codes and half_way():
            refuse(codes[fault])
        return real_write(target, *args, **kwargs)
    filesystem._write_temporary = write
    if fault == "no-fsync":
        os.fsync = lambda fd: refuse(errno.EINVAL)
    if fault == "no-links":
        os.link = lambda *args, **kwargs: refuse(errno.EPERM)
    if fault.startswith("clock"):
        moved = 3600 * 10**9 * (1 if fault == "clock-forth" else -1)
        time.time_ns = lambda: real_time() + (moved if half_way() else 0)
    if fault == "other-host":
        import socket
        name = f"node-{os.getpid()}"
        socket.gethostname = lambda: name
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(net.parameters())
def train(loader):
    for _ in loader:
        optimizer.zero_grad()
        net(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
        time.sleep(0.009)
start = time.perf_counter()
if place == "none":
    train(range(steps))
else:
    from phasepoint.recorder import record
    with record(place) as run:
        train(run.steps(range(steps)))
wall = time.perf_counter() - start
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16]
print(digest, wall)
"""

FAULTS = (
    *("none", "slow-disk", "full", "read-only", "no-permission", "no-links", "no-fsync"),
    *("clock-forth", "clock-back", "other-host", "failing-store"),
)

SERVER = """
import random, sys
from moto.server import ThreadedMotoServer
from werkzeug.wrappers import Response
import moto.server
real = moto.server.DomainDispatcherApplication.__call__
chance = random.Random(0)
failing = [False]
def call(self, environ, start_response):
    if environ["PATH_INFO"] == "/fail-now":
        failing[0] = True
        return Response("")(environ, start_response)
    if failing[0] and chance.random() < 0.3:
        return Response("planted", status=500)(environ, start_response)
    return real(self, environ, start_response)
moto.server.DomainDispatcherApplication.__call__ = call
server = ThreadedMotoServer("127.0.0.1", 0)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Ran:
    """One run of the job."""

    fault: str
    digest: str
    wall_s: float
    said: str
    steps: int
    opened: str


def run_job(place: str, fault: str, steps: int) -> Ran:
    """Run it, and open what it left."""
    command = [sys.executable, "-c", JOB, place, fault, str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        return Ran(fault, "", 0.0, done.stderr[-1000:], 0, f"exit code {done.returncode}")
    digest, wall_s = done.stdout.split()
    read, opened = 0, "–"
    if place != "none":
        try:
            run = open_run(place)
            read = sum(run.table("steps", shard=s.name).num_rows for s in (*run.shards, *run.other_shards))
            opened = "; ".join(run.problems) or "whole"
        except PhasepointError as error:
            opened = f"{type(error).__name__}: {error}"
    return Ran(fault, digest, float(wall_s), done.stderr.strip(), read, opened)


def failing_store(folder: Path, steps: int) -> Ran:
    """The job, recorded into a bucket whose server fails three calls in ten once the run is made."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        port = next(line.split()[1] for line in server.stdout if line.startswith("port "))  # the server greets first
        address = f"127.0.0.1:{port}"
        import os
        import urllib.request

        keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
        os.environ.update(keys)
        urllib.request.urlopen(urllib.request.Request(f"http://{address}/bucket", method="PUT"))
        urllib.request.urlopen(f"http://{address}/fail-now")
        ran = run_job(f"s3://bucket/run?endpoint_override=http://{address}&scheme=http", "none", steps)
        server.terminate()
    return Ran("failing-store", *list(asdict(ran).values())[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=FAULTS)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000, help="of 10 ms each")
    parser.add_argument("--json", metavar="PATH")
    args = parser.parse_args()
    plain, rows = [], []
    print("| what is wrong | result | time | steps kept | run | said |\n|---|---|---|---|---|---|")
    for fault in args.only or FAULTS:
        mine = []
        for _ in range(args.turns):
            plain.append(run_job("none", "none", args.steps))
            with tempfile.TemporaryDirectory(prefix="phasepoint-places-") as folder:
                place = str(Path(folder) / "run")
                if fault == "failing-store":
                    mine.append(failing_store(Path(folder), args.steps))
                    continue
                if fault == "other-host":  # a first start on another machine, which is killed by nobody but ends
                    run_job(place, fault, 100)
                mine.append(run_job(place, fault, args.steps))
        usual_s = median(ran.wall_s for ran in plain)
        same = all(ran.digest == plain[0].digest for ran in (*plain, *mine))
        kept, said = " ".join(str(ran.steps) for ran in mine), mine[-1].said.replace("\n", " ")[:160]
        slower = median(ran.wall_s for ran in mine) / usual_s
        told = f"{'equal' if same else 'differs'} | {slower:.3f} × | {kept} of {args.steps}"
        print(f"| {fault} | {told} | {mine[-1].opened[:120]} | {said} |", flush=True)
        rows += [asdict(ran) for ran in mine]
    if args.json:
        Path(args.json).write_text(json.dumps({"plain": [asdict(ran) for ran in plain], "faults": rows}, indent=1))


if __name__ == "__main__":
    main()
