"""A folder of per-rank traces: wall time by workers, and the memory of each worker as there are more ranks.

    python benchmarks/import_ranks.py --ranks 4 8 --megabytes 40 --workers 1 2

Writes the ranks' traces (Kineto's JSON: operators with shapes, launches, kernels), imports the folder in fresh
processes and runs one analysis over it, shard by shard. Memory is the peak of each process as the kernel counts it:
with one worker that of the importing process, else the largest of its workers.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from phasepoint.sources.ingest import import_run as import_shards
from phasepoint.stack.analyses import table as analyses
from phasepoint.store import open_run

PEAKS = "PHASEPOINT_BENCHMARK_PEAKS"
ANALYSIS = "device-time"


def write_trace(path, rank, n_bytes):
    """One rank's trace of at least so many bytes."""
    head = {"schemaVersion": 1, "deviceProperties": [{"id": rank, "name": "H100"}], "distributedInfo": {"rank": rank}}
    with path.open("w") as file:
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        op = 0
        while file.tell() < n_bytes:
            file.write("".join(_events(rank, op + i) for i in range(1000)))
            op += 1000
        file.write('{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]}')


def _events(rank, op):
    at = 100 * op
    shape = '"Input Dims": [[64, 1024], [1024, 4096]], "Input type": ["float", "float"]'
    return (
        f'{{"ph": "X", "cat": "cpu_op", "name": "aten::op{op % 50}", "pid": 1, "tid": 1, "ts": {at}.125, "dur": 60.5, '
        f'"args": {{"External id": {op}, {shape}}}}},\n'
        f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {at + 10}, '
        f'"dur": 8.25, "args": {{"correlation": {op + 1}, "External id": {op}}}}},\n'
        f'{{"ph": "X", "cat": "kernel", "name": "kernel{op % 80}", "pid": {rank}, "tid": 7, "ts": {at + 30}.5, '
        f'"dur": 55.75, "args": {{"correlation": {op + 1}, "device": {rank}, "stream": 7, "grid": [32, 1, 1]}}}},\n'
    )


_import_shard, _analyse_shard = import_shards.import_shard, analyses.analyse_shard


def import_and_note(task):
    done = _import_shard(task)
    _note_peak("import")
    return done


def analyse_and_note(task):
    done = _analyse_shard(task)
    _note_peak("analyse")
    return done


def _note_peak(what):
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (Path(os.environ[PEAKS]) / f"{what}-{os.getpid()}").write_text(str(peak_kb))


def measure(what, source, run, workers):
    """In a process of its own: import the folder or analyse the run; prints the seconds that it took."""
    begin = time.perf_counter()
    if what == "import":
        import_shards.import_shard = import_and_note
        import_shards.import_traces([source], run, workers=workers)
    else:
        analyses.analyse_shard = analyse_and_note
        assert analyses.analyse(open_run(run), ANALYSIS, workers=workers).rows.num_rows
    print(time.perf_counter() - begin)


def run_once(what, source, run, workers):
    """Seconds, CPU seconds of all processes, and the largest process in MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as peaks:
        words = [sys.executable, __file__, "--measure", what, str(source), str(run), str(workers)]
        done = subprocess.run(words, env=os.environ | {PEAKS: peaks}, check=True, capture_output=True, text=True)
        peak_kb = max(int(file.read_text()) for file in Path(peaks).iterdir())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(done.stdout), cpu_s, peak_kb / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--megabytes", type=float, default=40, help="of each rank's trace")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2], help="the first is what the others are set against"
    )
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder where left out")
    chosen = parser.parse_args()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}; {chosen.megabytes:g} MB a rank"
    )
    print(f"{'':8} {'ranks':>5} {'workers':>7} {'s':>7} {'ratio':>6} {'CPU s':>7} {'peak of a process':>18}")
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        for n_ranks in chosen.ranks:
            source = Path(folder) / f"ranks-{n_ranks}"
            source.mkdir()
            for rank in range(n_ranks):
                write_trace(source / f"{rank}.json", rank, chosen.megabytes * 1e6)
            for what in ("import", "analyse"):
                base_s = None
                for workers in chosen.workers:
                    run = Path(folder) / "run"
                    if what == "import":
                        shutil.rmtree(run, ignore_errors=True)
                    taken_s, cpu_s, peak_mb = run_once(what, source, run, workers)
                    base_s = base_s or taken_s
                    row = f"{what:8} {n_ranks:5} {workers:7} {taken_s:7.2f} {taken_s / base_s:6.2f} {cpu_s:7.2f}"
                    print(f"{row} {peak_mb:15.0f} MB")
            shutil.rmtree(source)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main()
