"""Reads damaged traces and runs without end: no crash but `PhasepointError`, no hang, no unbounded memory.

    python tests/fuzz/fuzz.py --format kineto xplane --seconds 600 --jobs 2 --out findings/
    NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=/tmp/checked python tests/fuzz/fuzz.py …      # compiled loops check indices

Each format is read in a process of its own with a memory limit; a process that dies or does not answer is a finding,
and another goes on with the next input. A finding is made smaller and written with its traceback.
"""

import argparse
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzz_target import FORMATS, Inputs, check

INPUT_LIMIT_S = 20
"""For one input. One that takes longer is tried again with `START_LIMIT_S`: it may have needed something compiled."""
START_LIMIT_S = 400
MEMORY_LIMIT_BYTES = 3 << 29
"""What a process may take beyond what it has before its first input."""
REDUCE_LIMIT_S = 20

_NO_ANSWER = "no answer"


def run_format(format, *, seed, first, seconds, out):
    """Fuzz one format for some time of a processor; returns its row of the report."""
    row = {"format": format, "inputs": 0, "read": 0, "slowest_ms": 0, "peak_mb": 0, "cpu_s": 0.0, "findings": {}}
    number, patient = first, None
    while row["cpu_s"] < seconds:
        words = (format, seed, number, seconds - row["cpu_s"], out)
        command = [sys.executable, __file__, "--serve", *map(str, words)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
            number, failure = _follow(process, row, number, patient)
        if failure is None:
            break
        row["cpu_s"] += 1  # so that a process that dies at once is not started for ever
        if failure.startswith(_NO_ANSWER) and number != patient:
            patient = number
            continue
        name = f"{format}-{seed}-{number}"
        (out / name).write_bytes(Inputs(format, seed).make(number))
        row["findings"].setdefault(failure, name)
        number += 1
    return row


def _follow(process, row, number, patient):
    """Read a process' lines; returns the input that it stood at, and how it died, None where it ended well."""
    limit_s, before_s = START_LIMIT_S, row["cpu_s"]
    descriptor, rest = process.stdout.fileno(), b""
    while True:
        if not select.select([descriptor], [], [], limit_s)[0]:
            process.kill()
            return number, f"{_NO_ANSWER} within {limit_s} s"
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            code = process.wait()
            return number, None if code == 0 else f"died: {code}"
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            word = json.loads(line)
            number = word.get("next", number)
            limit_s = START_LIMIT_S if number == patient else INPUT_LIMIT_S
            if "next" in word:
                continue
            if "finding" in word:
                limit_s += REDUCE_LIMIT_S
                row["findings"].setdefault(word["finding"], word["name"])
            else:
                row["inputs"] += 1
                row["cpu_s"] = before_s + word["cpu_s"]
                row["read"] += word["read"]
                row["slowest_ms"] = max(row["slowest_ms"], word["ms"])
                row["peak_mb"] = max(row["peak_mb"], word["mb"])


def serve(format, seed, first, seconds, out):
    """The process that reads: says which input comes next before it does, so that its death can be blamed on one."""
    inputs = Inputs(format, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input"
        for number in range(inputs.n_seeds):  # what is compiled and loaded once is no input's memory
            path.write_bytes(inputs.make(number))
            attempt(path, format)
        _limit_memory()
        began_s = time.process_time()
        known = set()
        number = first
        while time.process_time() < began_s + seconds:
            _say({"next": number})
            path.write_bytes(inputs.make(number))
            begin = time.perf_counter()
            read, failure = attempt(path, format)
            taken_ms = round(1000 * (time.perf_counter() - begin))
            if failure is not None and failure[0] not in known:
                known.add(failure[0])
                name = f"{format}-{seed}-{number}"
                _say({"finding": failure[0], "name": name})
                _write_finding(path, format, failure, Path(out) / name)
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            _say({"read": read, "ms": taken_ms, "mb": peak_mb, "cpu_s": time.process_time() - began_s})
            number += 1


def attempt(path, format):
    """Whether anything was read, and what went wrong: its key and its traceback, None where nothing did."""
    try:
        return check(path, format), None
    except Exception as error:  # noqa: BLE001 - what it is looking for
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "phasepoint" in frame.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        words = str(error)[:60] if isinstance(error, AssertionError) else ""
        return False, (f"{type(error).__name__} at {place} {words}".strip(), traceback.format_exc())


def _write_finding(path, format, failure, target):
    target.write_bytes(path.read_bytes())
    target.with_name(f"{target.name}.txt").write_text(f"{failure[0]}\n\n{failure[1]}")
    end = time.monotonic() + REDUCE_LIMIT_S / 2
    data = path.read_bytes()
    piece = len(data) // 2
    while piece and time.monotonic() < end:
        begin = 0
        while begin < len(data) and time.monotonic() < end:
            path.write_bytes(data[:begin] + data[begin + piece :])
            smaller = attempt(path, format)[1]
            if smaller is not None and smaller[0] == failure[0]:
                data = data[:begin] + data[begin + piece :]
            else:
                begin += piece
        piece //= 2
    target.with_name(f"{target.name}.small").write_bytes(data)


def _limit_memory():
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY_LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _say(word):
    sys.stdout.write(json.dumps(word) + "\n")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", nargs="+", default=FORMATS, choices=FORMATS)
    parser.add_argument("--seconds", type=float, default=600, help="of a processor, a format")
    parser.add_argument("--jobs", type=int, default=1, help="formats at a time")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    checked = "on" if os.environ.get("NUMBA_BOUNDSCHECK") == "1" else "off"
    print(
        f"seed {chosen.seed}, {chosen.seconds:g} s of a processor for each format, bounds checks {checked}", flush=True
    )
    with ThreadPoolExecutor(chosen.jobs) as pool:
        options = {"seed": chosen.seed, "first": chosen.first, "seconds": chosen.seconds, "out": chosen.out}
        for row in pool.map(lambda format: run_format(format, **options), chosen.format):
            print(
                f"{row['format']:8} {row['inputs']:8} inputs, {row['read']} with content, "
                f"{row['cpu_s']:.0f} s of a processor, slowest {row['slowest_ms']} ms, "
                f"peak {row['peak_mb']} MB, {len(row['findings'])} findings",
                flush=True,
            )
            for failure, name in sorted(row["findings"].items()):
                print(f"    {name}: {failure}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if sys.argv[1:2] == ["--serve"]:
        _, _, format, seed, first, seconds, out = sys.argv
        serve(format, int(seed), int(first), float(seconds), out)
    else:
        main()
