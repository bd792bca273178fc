"""Measures the graphs of a pack where it runs: `python3 board.pyz`. The standard library, NumPy, and a runtime.

One process for each round of each pair. The results are one file, written again after each; the same command goes on
where it was cut off. `pack.py` beside this puts it into the pack, with the modules of Phasepoint that it imports.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from phasepoint.bench.runtimes.runtimes import RUNTIMES, NotHereError
from phasepoint.bench.suite.timing import BATCH_PART, MOST_WORDS, measure_latencies, measure_speed, peak_bytes, warm_up
from phasepoint.core.units import PS_PER_NS
from phasepoint.devices.cpu_now import cpu_celsius, cpu_mhz, cpu_model
from phasepoint.zoo.graphs.inputs import GraphInput, make_graph_inputs

ASKED = "asked.json"
"""In the pack: what is measured, and of each graph its file, inputs and facts."""

Json = dict[str, Any]


def main() -> None:
    """Measure what is left, or one pair in this process."""
    parser = argparse.ArgumentParser(description="Measures graphs on this machine, and writes one file of results.")
    parser.add_argument("--out", type=Path, default=Path(f"bench-{platform.node() or 'here'}.json"), help="%(default)s")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    archive = Path(sys.argv[0])
    with zipfile.ZipFile(archive) as pack:
        asked: Json = json.loads(pack.read(ASKED))
    if chosen.one is not None:
        print(json.dumps(_measure_one(asked["tasks"][chosen.one], asked, archive)))  # noqa: T201
        return
    done = _done_before(chosen.out, asked["request"])
    for number, task in enumerate(asked["tasks"]):
        key = _key(task)
        if key in done:
            continue
        words = f"{number + 1}/{len(asked['tasks'])} {task['pair']['model']} on {task['pair']['device']}"
        print(words, file=sys.stderr, flush=True)  # noqa: T201
        done[key] = _measure_apart(number, task, asked["request"]["limit_s"], archive)
        beside = chosen.out.with_name(f".{chosen.out.name}.{os.getpid()}")
        beside.write_text(json.dumps({"request": asked["request"], "results": list(done.values())}))
        beside.replace(chosen.out)
    failed = [one for one in done.values() if one["status"] != "measured"]
    for one in failed:
        print(f"{one['pair']['model']}: {one['status']}: {one['reason']}", file=sys.stderr)  # noqa: T201
    words = f"{len(done) - len(failed)} of {len(done)} measured; read it with: phasepoint bench report {chosen.out}"
    print(words, file=sys.stderr)  # noqa: T201


def _key(task: Mapping[str, Any]) -> str:
    return json.dumps([task["pair"], task["round"]], sort_keys=True)


def _done_before(path: Path, request: Json) -> dict[str, Json]:
    """Results of an earlier, cut-off call of the same pack."""
    if not path.exists():
        return {}
    try:
        before = json.loads(path.read_bytes())
        same = before["request"] == request
    except (ValueError, KeyError, TypeError):
        same = False
    if not same:
        sys.exit(f"{path}: is no file of this benchmark; give another --out")
    return {_key(one): one for one in before["results"]}


def _measure_apart(number: int, task: Json, limit_s: float, archive: Path) -> Json:
    """In a process of its own; whatever becomes of it is a result."""
    environ = os.environ | {"OMP_NUM_THREADS": str(_threads_of(task["pair"]["device"]))}
    command = [sys.executable, str(archive), "--one", str(number)]
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=limit_s, env=environ, check=False)
    except subprocess.TimeoutExpired:
        return _failed(task, f"no answer within {limit_s:.0f} s")
    if ended.returncode != 0 or not ended.stdout:
        return _failed(task, f"the process ended with {ended.returncode}")
    result: Json = json.loads(ended.stdout.splitlines()[-1])
    return result


def _threads_of(device: str) -> int:
    """Of `cpu:N`; else one for each core that this process may use."""
    kind, _, threads = device.partition(":")
    if kind == "cpu" and threads:
        return int(threads)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _failed(task: Json, reason: str, status: str = "failed") -> Json:
    return {"pair": task["pair"], "round": task["round"], "status": status, "reason": reason[:MOST_WORDS]}


def _measure_one(task: Json, asked: Json, archive: Path) -> Json:
    try:
        return _measure(task, asked, archive)
    except NotHereError as error:
        return _failed(task, str(error), "not here")
    except ImportError as error:
        return _failed(task, f"{error.name or error} is not installed", "not here")
    except Exception as error:  # noqa: BLE001 - whatever a runtime raises is the pair's result
        return _failed(task, " ".join(f"{type(error).__name__}: {error}".split()))


def _measure(task: Json, asked: Json, archive: Path) -> Json:
    pair, request, model = task["pair"], asked["request"], asked["models"][task["pair"]["model"]]
    runtime = RUNTIMES[pair["runtime"]]
    runtime.check(model["form"], pair["precision"])
    is_cpu, threads = pair["device"].startswith("cpu"), _threads_of(pair["device"])
    device = f"cpu:{threads}" if is_cpu else pair["device"]
    began_s, before_bytes = time.time(), peak_bytes()
    with zipfile.ZipFile(archive) as pack:
        source = pack.read(model["file"])
    inputs_of = [GraphInput(**one) for one in model["inputs"]]
    prepared = runtime.prepare(source, device, pair["precision"])
    inputs = prepared.place(make_graph_inputs(inputs_of, 1))
    began_ns = time.perf_counter_ns()
    prepared.run(inputs)
    first_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS
    warm_up(lambda: prepared.run(inputs))
    latencies_ps = measure_latencies(lambda: prepared.run(inputs), seconds=request["seconds"])
    speeds = []
    for size in request["batches"] if any(one.has_batch for one in inputs_of) else [1]:
        batch = prepared.place(make_graph_inputs(inputs_of, size))
        try:
            speed = measure_speed(partial(prepared.run, batch), size, BATCH_PART * request["seconds"])
            speeds.append({"batch": size, "samples_per_s": speed})
        except Exception as error:  # noqa: BLE001 - whatever a runtime raises at this size, the others stand
            speeds.append({"batch": size, "samples_per_s": None, "reason": str(error)[:MOST_WORDS]})
    return {
        "pair": pair,
        "round": task["round"],
        "status": "measured",
        "reason": model["note"],
        "began_s": began_s,
        "model": model["facts"],
        "compile_ps": prepared.compile_ps,
        "first_ps": first_ps,
        "latencies_ps": latencies_ps,
        "throughput": speeds,
        "before_bytes": before_bytes,
        "peak_bytes": peak_bytes(),
        "device_bytes": prepared.device_bytes(),
        "energy": {"joules": None, "reason": "a packed benchmark does not read it"},
        "conditions": {
            "device": cpu_model() if is_cpu else prepared.device,
            "threads": threads,
            "others_ratio": None,
            "waited_ratio": None,
            "steal_ratio": None,
            "throttled_ps": None,
            "probe_before_ps": None,
            "probe_after_ps": None,
            "mhz": cpu_mhz(),
            "celsius": cpu_celsius(),
            "versions": {**prepared.versions, "python": platform.python_version()},
        },
        "version": asked["version"],
    }
