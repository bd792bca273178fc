"""kill -9 at any moment: the run opens, and holds everything that was flushed."""

import random
import subprocess
import sys
from pathlib import Path

from store_builders import new_run

from phasepoint.store import open_run

_WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from store_builders import steps, gap
from phasepoint.store import open_shard
writer = open_shard(sys.argv[1], 0, epoch_unix_ns=0)
step = 0
while True:
    writer.append("steps", steps(step, 3))
    writer.append("gaps", gap(step))
    writer.write_raw(f"raw/window-{step:06d}.zst", b"capture" * 10_000)
    writer.flush()
    step += 3
    print(step, flush=True)
"""


def test_everything_flushed_before_the_kill_is_there(tmp_path: Path):
    """The same run is killed and started again eight times, each time after a random number of flushes."""
    path = new_run(tmp_path)
    for attempt in range(8):
        flushed = write_until_killed(path, flushes=random.Random(attempt).randrange(1, 20))
        run = open_run(path)
        shard = run.shards[-1]
        assert [s.attempt for s in run.shards] == list(range(attempt + 1))
        assert shard.state == "killed"
        table = run.table("steps", shard=shard.name)["step"].to_pylist()
        assert len(table) in {flushed, flushed + 3}
        assert table == list(range(len(table)))
        gaps = run.table("gaps", shard=shard.name)
        assert flushed <= 3 * gaps.num_rows <= flushed + 3
        assert set(gaps["why"].to_pylist()) == {"outside-steps"}
        assert run.read_raw(shard.name, f"raw/window-{flushed - 3:06d}.zst") == b"capture" * 10_000
        assert run.problems == ()


def write_until_killed(path: str, *, flushes: int) -> int:
    """Kill a writer after at least so many flushes; returns how many steps it said it had flushed."""
    command = [sys.executable, "-c", _WRITER, path, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(flushes):
            flushed = int(process.stdout.readline())
        assert open_run(path).shards[-1].state == "live"
        process.kill()
        return max([flushed, *(int(line) for line in process.stdout.read().split())])
