"""Are latencies of `phasepoint bench` those that each library's own timing tool finds?

    python benchmarks/bench_peers.py                       # ten networks against each of four peers: half an hour
    python benchmarks/bench_peers.py --peer loadgen --models 3

For each model and peer one process: the network is made and prepared as `bench` does it, and by turns `bench`'s own
timing and the peer time it on the same inputs. (In processes of their own, by turns too, single pairs scattered from
0.89 to 1.15 on two shared cores, 2026-11-28: memory lies elsewhere.) Peers: `torch.utils.benchmark`
(blocked_autorange), ONNX Runtime's own session profiling (the time of `model_run`), MLPerf LoadGen's single stream
(50th percentile), a loop by hand around a jitted function.
Told is the median ratio over turns, and how many models are within 3 %.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from phasepoint.bench.runtimes.onnx_runtime import make_session
from phasepoint.bench.runtimes.runtimes import RUNTIMES, usual_runtime
from phasepoint.bench.suite.subject import open_subject
from phasepoint.bench.suite.timing import measure_latencies, warm_up

NEAR = 0.03
TORCH = (
    *("alexnet", "resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "densenet121"),
    *("vit_b_16", "dcgan", "pointnet", "dlrm"),
)
SECONDS = 0.5  # of a turn of either side: neighbours come and go within seconds, so many short turns see them alike


def torch_benchmark(subject, threads):
    """`torch.utils.benchmark`, which warms up and repeats by itself."""
    import torch
    from torch.utils.benchmark import Timer

    names = {"network": subject.network, "inputs": subject.inputs(1)}
    timer = Timer("network(*inputs)", globals=names, num_threads=threads)

    def turn():
        with torch.inference_mode():
            return timer.blocked_autorange(min_run_time=SECONDS).median

    return turn


def ort_profile(subject, threads):
    """ONNX Runtime's own profile of a session: the middle of its `model_run` events.

    Profiling makes a graph of many small nodes up to 1.6 times slower, so both time the same runs, and a turn gives the
    ratio.
    """
    inputs = subject.inputs(1)

    def turn():
        with tempfile.TemporaryDirectory() as folder:
            session = make_session(subject.network, f"cpu:{threads}", "f32", Path(folder) / "profile")
            warm_up(lambda: session.run(None, inputs))
            times_ps = measure_latencies(lambda: session.run(None, inputs), seconds=SECONDS)
            events = json.loads(Path(session.end_profiling()).read_text())
        runs = [event["dur"] for event in events if event.get("name") == "model_run"]
        return median(times_ps) / 1e12 / (median(runs[-len(times_ps) :]) / 1e6)

    return turn


def loadgen(subject, threads):
    """MLPerf LoadGen, single stream: the 50th percentile that it reports."""
    import mlperf_loadgen as lg
    import torch

    torch.set_num_threads(threads)
    inputs = subject.inputs(1)

    def issue(samples):
        with torch.inference_mode():
            for sample in samples:
                subject.network(*inputs)
                lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0)])

    settings = lg.TestSettings()
    settings.scenario, settings.mode = lg.TestScenario.SingleStream, lg.TestMode.PerformanceOnly
    settings.min_duration_ms, settings.min_query_count = int(SECONDS * 1000), 5

    def turn():
        library = lg.ConstructQSL(1, 1, lambda _: None, lambda _: None)
        system = lg.ConstructSUT(issue, lambda: None)
        with tempfile.TemporaryDirectory() as folder:
            output = lg.LogOutputSettings()
            output.outdir, output.copy_summary_to_stdout = folder, False
            logs = lg.LogSettings()
            logs.log_output = output
            lg.StartTestWithLogSettings(system, library, settings, logs)
            text = (Path(folder) / "mlperf_log_summary.txt").read_text()
        lg.DestroySUT(system)
        lg.DestroyQSL(library)
        line = next(line for line in text.splitlines() if "50.00 percentile latency (ns)" in line)
        return int(line.split(":")[1]) / 1e9

    return turn


def jax_loop(subject, threads):
    """A loop by hand."""
    import jax

    function, arguments = subject.network
    run, placed = jax.jit(function), jax.device_put(arguments)
    jax.block_until_ready(run(*placed))

    def turn():
        times, end = [], time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            began = time.perf_counter()
            jax.block_until_ready(run(*placed))
            times.append(time.perf_counter() - began)
        return median(times)

    return turn


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


def compare(peer, model, device, turns):
    """Ratios of `bench`'s median latency to the peer's, `[turns]`, in this process."""
    threads = int(device.partition(":")[2])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    subject = open_subject(model, counts=False)
    theirs, ratios = PEERS[peer](subject, threads), []
    theirs()
    if peer == "ort":
        return [theirs() for _ in range(turns)]
    prepared = RUNTIMES[usual_runtime(subject.form)].prepare(subject.network, device, "f32")
    inputs = prepared.place(subject.inputs(1))

    def ours():
        return median(measure_latencies(lambda: prepared.run(inputs), seconds=SECONDS)) / 1e12

    warm_up(lambda: prepared.run(inputs))
    for number in range(turns):
        sides = {side: side() for side in (ours, theirs)[:: -1 if number % 2 else 1]}
        ratios.append(sides[ours] / sides[theirs])
    return ratios


def measured(peer, model, device, turns):
    """`compare` in a process of its own."""
    threads = device.partition(":")[2]
    done = subprocess.run(
        [sys.executable, __file__, "--one", peer, model, device, "--turns", str(turns)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
    )
    if done.returncode:
        raise SystemExit(f"{peer}, {model}: {done.stderr[-800:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, metavar=("PEER", "MODEL", "DEVICE"), help=argparse.SUPPRESS)
    parser.add_argument("--peer", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--device", default="cpu:1")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(compare(*args.one, args.turns)))
        return
    rows = []
    for peer in args.peer:
        for model in models_of(peer)[: args.models]:
            ratios = measured(peer, model, args.device, args.turns)
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
