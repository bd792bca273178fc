"""Are latencies of `phasepoint bench` those that each library's own timing tool finds?

    python benchmarks/bench_peers.py                       # ten networks against each of four peers: half an hour
    python benchmarks/bench_peers.py --peer loadgen --models 3

For each model and peer, pairs of processes by turns: `bench`'s own child process, and one in which the peer times the
same network on the same inputs. Peers: `torch.utils.benchmark` (blocked_autorange), ONNX Runtime's own session
profiling (the time of `model_run`), MLPerf LoadGen's single stream (50th percentile), a loop by hand around a jitted
function.
Told is the median ratio over pairs, and how many models are within 3 %.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from phasepoint.bench.suite.ask import ask_suite
from phasepoint.bench.suite.result import PairResult
from phasepoint.bench.suite.run import measure_task, tasks_of

NEAR = 0.03
TORCH = (
    *("alexnet", "resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "densenet121"),
    *("vit_b_16", "dcgan", "pointnet", "dlrm"),
)
SECONDS = 4.0


def torch_benchmark(model, device):
    """`torch.utils.benchmark`, which warms up and repeats by itself."""
    import torch
    from torch.utils.benchmark import Timer

    from phasepoint.bench.suite.subject import open_subject

    threads = int(device.partition(":")[2])
    subject = open_subject(model, counts=False)
    network, inputs = subject.network, subject.inputs(1)
    with torch.inference_mode():
        timer = Timer("network(*inputs)", globals={"network": network, "inputs": inputs}, num_threads=threads)
        return timer.blocked_autorange(min_run_time=SECONDS).median


def ort_profile(model, device):
    """ONNX Runtime's own profile of a session: the middle of its `model_run` events."""
    import onnxruntime

    from phasepoint.bench.suite.subject import open_subject

    subject = open_subject(model, counts=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(device.partition(":")[2])
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = f"{folder}/profile"
        session = onnxruntime.InferenceSession(subject.network, options, providers=["CPUExecutionProvider"])
        inputs = subject.inputs(1)
        for _ in range(60):
            session.run(None, inputs)
        events = json.loads(Path(session.end_profiling()).read_text())
    runs = [event["dur"] for event in events if event.get("name") == "model_run"]
    return median(runs[10:]) / 1e6


def loadgen(model, device):
    """MLPerf LoadGen, single stream: the 50th percentile that it reports."""
    import mlperf_loadgen as lg
    import torch

    from phasepoint.bench.suite.subject import open_subject

    torch.set_num_threads(int(device.partition(":")[2]))
    subject = open_subject(model, counts=False)
    inputs = subject.inputs(1)

    def issue(samples):
        with torch.inference_mode():
            for sample in samples:
                subject.network(*inputs)
                lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0)])

    settings = lg.TestSettings()
    settings.scenario, settings.mode = lg.TestScenario.SingleStream, lg.TestMode.PerformanceOnly
    settings.min_duration_ms, settings.min_query_count = int(SECONDS * 1000), 64
    library = lg.ConstructQSL(1, 1, lambda _: None, lambda _: None)
    system = lg.ConstructSUT(issue, lambda: None)
    with tempfile.TemporaryDirectory() as folder:
        output = lg.LogOutputSettings()
        output.outdir, output.copy_summary_to_stdout = folder, False
        logs = lg.LogSettings()
        logs.log_output = output
        lg.StartTestWithLogSettings(system, library, settings, logs)
        text = (Path(folder) / "mlperf_log_summary.txt").read_text()
    line = next(line for line in text.splitlines() if "50.00 percentile latency (ns)" in line)
    return int(line.split(":")[1]) / 1e9


def jax_loop(model, device):
    """A loop by hand."""
    import time

    import jax

    from phasepoint.bench.suite.subject import open_subject

    subject = open_subject(model, counts=False)
    function, arguments = subject.network
    run, placed = jax.jit(function), jax.device_put(arguments)
    jax.block_until_ready(run(*placed))
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        jax.block_until_ready(run(*placed))
        times.append(time.perf_counter() - began)
    return median(times[len(times) // 10 :])


def models_of(peer):
    if peer == "ort":
        from phasepoint.zoo.graphs.packaged import packaged_graphs

        return list(packaged_graphs())
    if peer == "jax":
        from phasepoint.bench.suite.subject import zoo_program_names

        kinds = ("mlp.", "convnet.", "resnet.", "encoder.", "decoder.", "inception.", "unet.")
        names = sorted(name for name in zoo_program_names() if name.endswith(".forward") and name.startswith(kinds))
        return names[:: max(len(names) // 11, 1)]
    return list(TORCH)


PEERS = {"torch": torch_benchmark, "ort": ort_profile, "loadgen": loadgen, "jax": jax_loop}


def ours(model, device):
    (task,) = tasks_of(ask_suite([model], devices=[device], rounds=1, seconds=SECONDS))
    result: PairResult = measure_task(task)
    if result.status != "measured":
        raise SystemExit(f"{model}: {result.status}: {result.reason}")
    return float(np.median(result.latencies_ps)) / 1e12


def theirs(peer, model, device):
    command = [sys.executable, __file__, "--one", peer, model, device]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{peer}, {model}: {done.stderr[-800:]}")
    return float(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, metavar=("PEER", "MODEL", "DEVICE"), help=argparse.SUPPRESS)
    parser.add_argument("--peer", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--device", default="cpu:1")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.one:
        print(PEERS[args.one[0]](*args.one[1:]))
        return
    rows = []
    for peer in args.peer:
        for model in models_of(peer)[: args.models]:
            ratios = []
            for number in range(args.pairs):
                times = {}
                for side in ("ours", "theirs")[:: -1 if number % 2 else 1]:
                    times[side] = ours(model, args.device) if side == "ours" else theirs(peer, model, args.device)
                ratios.append(times["ours"] / times["theirs"])
            rows.append({"peer": peer, "model": model, "ratio": median(ratios), "ratios": ratios})
            print(f"{peer:8} {model:50} {median(ratios):.3f}  {[round(ratio, 3) for ratio in ratios]}", flush=True)
        mine = [row for row in rows if row["peer"] == peer]
        near = sum(abs(row["ratio"] - 1) <= NEAR for row in mine)
        print(
            f"{peer:8} within 3 %: {near} of {len(mine)}; median {median(row['ratio'] for row in mine):.3f}", flush=True
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
