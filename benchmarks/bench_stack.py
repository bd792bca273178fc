"""XSP's fifteen analyses of every network of the zoo on this CPU, and which of XSP's findings hold here.

    python benchmarks/bench_stack.py --out runs/zoo-stack                    # some 20 minutes on two cores
    python benchmarks/bench_stack.py --out runs/zoo-stack --models resnet50 vit_b_16

Each network runs in a process of its own: six inferences of one sample, the last three under PyTorch's profiler with
all that it can tell. The trace is imported, and `phasepoint.stack` analyses it. What a network comes to is a file, so
the same command goes on where it was cut off. Printed are a line for each network and, over all, what XSP asked of 65
models on GPUs (C. Li et al., IPDPS 2020, section IV): how much of the latency convolutions have, which networks memory
bounds, in which third of its layers a network spends most, how much of the layers' time the device works.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median

RUNS, LIMIT_S = 3, 600
CONVOLUTIONS, NORMS, PRODUCTS = ("Conv",), ("Norm",), ("Linear", "Conv1D", "Attention", "LSTM", "GRU")
THIRDS = ("first", "middle", "last")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; the same again goes on with it")
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        print(json.dumps(analysed(options.one)))
        return
    from phasepoint.zoo.architectures.catalogue import all_architectures

    names = options.models or list(all_architectures())
    found, failed = {}, {}
    for number, name in enumerate(names, 1):
        path = options.out / f"{name.replace('/', '.')}.json"
        if not path.exists():
            print(f"{number}/{len(names)} {name}", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, "--out", str(options.out), "--one", name]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
                words = (done.stderr.strip().splitlines() or ["nothing"])[-1]
                text = done.stdout.splitlines()[-1] if done.returncode == 0 else json.dumps({"failed": words})
            except subprocess.TimeoutExpired:
                text = json.dumps({"failed": f"no answer within {LIMIT_S} s"})
            path.write_text(text)
        row = json.loads(path.read_text())
        (failed if "failed" in row else found)[name] = row
    report(found, failed)


def analysed(name: str) -> dict[str, object]:
    """What the fifteen say of a network: how many rows each has, and the figures that XSP compares networks by."""
    import torch
    from torch.profiler import profile, schedule

    from phasepoint.bench.suite.subject import open_subject
    from phasepoint.devices.cpu_peaks import measured_cpu_spec
    from phasepoint.sources.ingest.opened import open_run
    from phasepoint.stack.analyses.table import ANALYSES, analyse
    from phasepoint.zoo.architectures.weights import call

    subject = open_subject(name, counts=True)
    inputs = subject.inputs(1)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json.gz")
        plan = schedule(wait=1, warmup=2, active=RUNS)
        more = {"record_shapes": True, "profile_memory": True, "with_stack": True}
        with (
            torch.inference_mode(),
            profile(schedule=plan, on_trace_ready=lambda p: p.export_chrome_trace(str(trace)), **more) as profiler,
        ):
            for _ in range(RUNS + 3):
                call(subject.network, inputs)
                profiler.step()
        command = [sys.executable, "-m", "phasepoint", "import", str(trace), "--out", f"{folder}/run", "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        run = open_run(f"{folder}/run")
        tables = {one.code: analyse(run, one.name).rows.to_pylist() for one in ANALYSES if one.code}
    spec = measured_cpu_spec()
    ridge = spec.flop_per_s["f32"].value / spec.memory_bytes_per_s.value
    return {
        "task": subject.facts.task,
        "rows": {code: len(rows) for code, rows in tables.items()},
        **figures(tables, ridge, subject.facts.macs),
    }


def figures(tables: dict[str, list[dict]], ridge: float, macs: int | None) -> dict[str, object]:
    """Of the tables by code.

    Args:
        tables: rows of each analysis.
        ridge: flop for each byte from which the CPU's products bound a kernel.
        macs: of an inference, counted; the analyses know no flop of some operations, as transposed convolutions.
    """
    (model,), (whole, *_) = tables["A1"], tables["A15"]
    layers = [row for row in tables["A3"] if row["layer"] is not None]
    share = Counter()
    for row in tables["A6"]:
        for kind, words in (("convolutions", CONVOLUTIONS), ("norms", NORMS), ("products", PRODUCTS)):
            if any(word in (row["type"] or "") for word in words) and not (
                kind == "convolutions" and row["type"] == "Conv1D"  # of transformers: a product
            ):
                share[kind] += row["share_ratio"]
                break
    total = sum(row["latency_ps"] for row in layers) or 1
    thirds = [0.0, 0.0, 0.0]
    for place, row in enumerate(layers):
        thirds[min(3 * place // len(layers), 2)] += row["latency_ps"] / total
    points = [row for row in tables["A14"] if row["flop_per_byte"] is not None]
    below = sum(row["device_ps"] for row in points if row["flop_per_byte"] < ridge)
    worked = sum(row["device_ps"] for row in tables["A13"]) / max(sum(row["latency_ps"] for row in tables["A13"]), 1)
    top = max(layers, key=lambda row: row["latency_ps"], default=None)
    flop = whole["flop"] if macs is None else 2 * macs * RUNS
    intensity = flop / whole["bytes"] if flop and whole["bytes"] else None
    return {
        "latency_ps": model["latency_ps"],
        "layers": len(layers),
        "convolutions": share["convolutions"],
        "norms": share["norms"],
        "products": share["products"],
        "memory_of_convolutions": sum(r["share_ratio"] or 0 for r in tables["A7"] if "Conv" in (r["type"] or "")),
        "kernels": whole["kernels"] // RUNS,
        "flop_per_byte": intensity,
        "is_memory_bound": None if intensity is None else intensity < ridge,
        "layers_below_ridge": below / max(sum(row["device_ps"] for row in points), 1) if points else None,
        "third": THIRDS[thirds.index(max(thirds))],
        "device_ratio": worked,
        "top_layer": top and top["type"],
        "top_share": top and top["latency_ps"] / total,
        "ridge": ridge,
    }


def report(found: dict[str, dict], failed: dict[str, dict]) -> None:
    print("| model | task | latency, ms | layers | kernels | convolutions | products | norms | flop/byte | bound by "
          "| most in | device |")  # fmt: skip
    print("|" + "---|" * 12)
    for name, row in sorted(found.items(), key=lambda item: (item[1]["task"], item[1]["latency_ps"])):
        bound = {True: "memory", False: "compute", None: "–"}[row["is_memory_bound"]]
        intensity = "–" if row["flop_per_byte"] is None else f"{row['flop_per_byte']:.1f}"
        print(
            f"| {name} | {row['task']} | {row['latency_ps'] / 1e9:.1f} | {row['layers']} | {row['kernels']} | "
            f"{row['convolutions']:.0%} | {row['products']:.0%} | {row['norms']:.0%} | {intensity} | {bound} | "
            f"{row['third']} third | {row['device_ratio']:.0%} |"
        )
    ridge = median(row["ridge"] for row in found.values())
    print(f"\n{len(found)} networks; the CPU's ridge is at {ridge:.1f} flop/byte")
    for task in sorted({row["task"] for row in found.values()}):
        rows = [row for row in found.values() if row["task"] == task]
        shares = sorted(row["convolutions"] for row in rows)
        bound = sum(bool(row["is_memory_bound"]) for row in rows)
        thirds = Counter(row["third"] for row in rows)
        print(
            f"{task}: {len(rows)} networks, convolutions {shares[0]:.0%} to {shares[-1]:.0%} of the layers' latency "
            f"(median {median(shares):.0%}), norms {median(row['norms'] for row in rows):.0%}; memory bounds {bound}; "
            f"most in the {', '.join(f'{third} third {count}' for third, count in thirds.most_common())}; the device "
            f"works for {median(row['device_ratio'] for row in rows):.0%}"
        )
    for code in (f"A{number}" for number in range(1, 16)):
        empty = [name for name, row in found.items() if not row["rows"][code]]
        if empty:
            print(f"{code} has no rows for {', '.join(empty)}")
    for name, row in failed.items():
        print(f"{name}: {row['failed']}")


if __name__ == "__main__":
    main()
