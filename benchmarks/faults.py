"""Kill recorded training jobs at random moments: does the run open, and how much is lost?

    python benchmarks/faults.py --kills 1000                  # some two hours on two cores
    python benchmarks/faults.py --kills 20 --job torch

Real jobs train under the recorder and print the number of each finished step. They are ended with SIGKILL at a random
moment: somewhere in training, after they began to save a checkpoint, or after their loop ended, while the recording is
closed. Then the run is opened and read. Lost is the time from the last step that the run holds to the last step that
the job printed before it died. Every run is then recorded into again, as a restarted job does, and read once more.
"""

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue
from statistics import median

from phasepoint.core.errors import PhasepointError
from phasepoint.store import Run, open_run

JAX = """
import sys
import jax, jax.numpy as jnp
from phasepoint.recorder import record

@jax.jit
def step(w, x):
    grad = jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)
    return w - 1e-3 * grad

w, x = jnp.ones((256, 256)), jnp.ones((128, 256))
with record(sys.argv[1], budget=float(sys.argv[3]) or None) as run:
    for i in run.steps(range(int(sys.argv[2]))):
        w = step(w, x)
        w.block_until_ready()
        print(i, flush=True)
    print("ends", flush=True)
"""

TORCH = """
import sys
import torch
from phasepoint.recorder import record

torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.Adam(net.parameters())
x, y = torch.randn(128, 256), torch.randint(10, (128,))
with record(sys.argv[1], budget=float(sys.argv[3]) or None) as run:
    for i in run.steps(range(int(sys.argv[2]))):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        print(i, flush=True)
        if i % 200 == 199:
            print("saves", flush=True)
            torch.save({"net": net.state_dict(), "ballast": torch.zeros(2_000_000)}, sys.argv[4])
    print("ends", flush=True)
"""

ENDLESS, SHORT = 10**9, 1500


@dataclass(frozen=True)
class Job:
    """A job that is killed.

    Attributes:
        script: its program.
        moment: "training", or the word that it prints before the moment in question.
        budget: of the recorder; 0 for capture without a pause.
        steps: how many it makes, unless it is killed.
        ranks: processes; all of them are killed, or some.
    """

    script: str
    moment: str = "training"
    budget: float = 0.05
    steps: int = ENDLESS
    ranks: int = 1


JOBS = {
    "jax": Job(JAX),
    "torch": Job(TORCH),
    "jax-captured": Job(JAX, budget=0.0),
    "torch-captured": Job(TORCH, budget=0.0),
    "torch-saving": Job(TORCH, "saves"),
    "jax-closing": Job(JAX, "ends", steps=SHORT),
    "torch-closing": Job(TORCH, "ends", steps=SHORT),
    "torch-4-ranks": Job(TORCH, ranks=4),
}


@dataclass(frozen=True)
class Trial:
    """One job that was killed."""

    job: str
    after_s: float
    opened: bool
    steps_done: int
    steps_read: int
    lost_s: float
    problems: int
    again: bool
    error: str


class Rank:
    """One process of a job, and when it finished which step; a thread of ours reads what it prints."""

    def __init__(self, job: Job, run: Path, number: int) -> None:
        ranks = {"RANK": str(number), "WORLD_SIZE": str(job.ranks)} if job.ranks > 1 else {}
        told = [str(run), str(job.steps), str(job.budget), str(run.parent / f"checkpoint-{number}.pt")]
        environ = os.environ | {"OMP_NUM_THREADS": "1"} | ranks
        errors = (run.parent / f"stderr-{number}").open("w")
        command = [sys.executable, "-c", job.script, *told]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environ)
        self.finished_at: list[float] = []
        self.said: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip().isdigit():
                self.finished_at.append(time.monotonic())
            if not line.strip().isdigit() or len(self.finished_at) == 1:
                self.said.put(line.strip())
        self.said.put("")

    def wait_for(self, word: str) -> None:
        """Wait until it has said this, or has ended."""
        while self.said.get(timeout=120) not in (word, ""):
            pass

    def kill(self) -> None:
        """End it, and read what it had still printed."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join()


def run_trial(name: str, folder: Path, rng: random.Random, longest_s: float) -> Trial:
    """Start the job, kill it, open what it left, and record into it again."""
    job, run_path = JOBS[name], folder / "run"
    ranks = [Rank(job, run_path, number) for number in range(job.ranks)]
    for rank in ranks:
        rank.wait_for("0")
    for _ in range(0 if job.moment == "training" else rng.randint(1, 3) if job.moment == "saves" else 1):
        ranks[0].wait_for(job.moment)
    after_s = rng.uniform(0.0, {"training": longest_s, "saves": 0.1, "ends": 0.15}[job.moment])
    time.sleep(after_s)
    for rank in ranks:
        rank.kill()
    done = sum(len(rank.finished_at) for rank in ranks)
    try:
        run = open_run(str(run_path))
        read, lost_s = read_steps(run), lost_of(run, ranks)
        problems = len(run.problems)
        again = record_again(job, run_path)
    except PhasepointError as error:
        return Trial(name, after_s, False, done, 0, float("nan"), 0, False, str(error))
    return Trial(name, after_s, True, done, read, lost_s, problems, again, "")


def read_steps(run: Run, host: int | None = None) -> int:
    """Steps of all ranks, or of one, of all recordings into the run."""
    shards = [shard for shard in (*run.shards, *run.other_shards) if host in (None, shard.host)]
    return sum(run.table("steps", columns=["step"], shard=shard.name).num_rows for shard in shards)


def lost_of(run: Run, ranks: Sequence[Rank]) -> float:
    """The longest time that a rank lost."""
    lost_s = 0.0
    for number, rank in enumerate(ranks):
        read = read_steps(run, number)
        last_read_at = rank.finished_at[min(read, len(rank.finished_at)) - 1] if read else rank.finished_at[0]
        lost_s = max(lost_s, rank.finished_at[-1] - last_read_at)
    return lost_s


def record_again(job: Job, path: Path) -> bool:
    """Whether a restarted job records into the run, and the run holds both."""
    before = read_steps(open_run(str(path)))
    command = [sys.executable, "-c", job.script, str(path), "20", "0.05", str(path.parent / "again.pt")]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=120)
    return read_steps(open_run(str(path))) == before + 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=80)
    parser.add_argument("--job", action="append", choices=JOBS, help="one job only; may be repeated")
    parser.add_argument("--longest-s", type=float, default=6.0, help="latest kill, seconds after the first step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one kill of every job")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    names = args.job or list(JOBS)
    rng, trials = random.Random(args.seed), []
    kills = len(names) if args.quick else args.kills
    for index in range(kills):
        folder = Path(tempfile.mkdtemp(prefix="phasepoint-faults-"))
        trials.append(run_trial(names[index % len(names)], folder, rng, args.longest_s))
        if trials[-1].opened and trials[-1].again and not trials[-1].problems:
            shutil.rmtree(folder)
        print(f"{index + 1:3d}/{kills} {trials[-1]}", file=sys.stderr)
    report(trials, args.json)


def report(trials: list[Trial], path: Path | None) -> None:
    print(f"{datetime.now(UTC).date().isoformat()}  {platform.machine()}, {platform.python_version()}")
    print(
        "| job | kills | opened | recorded again | lost, median | at most | unreadable parts |\n"
        "|---|---|---|---|---|---|---|"
    )
    for name in [*dict.fromkeys(trial.job for trial in trials), "all"]:
        mine = [trial for trial in trials if name in ("all", trial.job)]
        opened = [trial for trial in mine if trial.opened]
        lost = [trial.lost_s for trial in opened] or [float("nan")]
        print(
            f"| {name} | {len(mine)} | {len(opened)} | {sum(trial.again for trial in mine)} | {median(lost):.2f} s | "
            f"{max(lost):.2f} s | {sum(trial.problems for trial in opened)} |"
        )
    if path:
        path.write_text(json.dumps([asdict(t) for t in trials], indent=1))


if __name__ == "__main__":
    main()
