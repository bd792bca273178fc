"""Tuning, models and analyses on this device; called by `child.py`."""

import gzip
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.child import run_command
from benchmarks.gpu.jobs import SMALL, torch_cnn

SCRIPT = Path(__file__).with_name("tuned.py")
LIMIT_S = 300.0
"""Of one command."""

SPACE = """\
trials = {trials}
[knobs.batch]
argument = "--batch"
values = [8, 16, 32]
as_written = 8
samples = true
[knobs.dtype]
argument = "--dtype"
values = ["float32", "bfloat16"]
as_written = "float32"
effect = "changes numerics"
[knobs.optimizer]
argument = "--optimizer"
values = ["loop", "foreach", "fused"]
as_written = "loop"
effect = "changes numerics"
"""
"""18 settings of a step; what `torch.compile` takes a run is more than such a machine is lent for."""

TRIALS, SMALL_TRIALS = 4, 2
STEPS, SMALL_STEPS = 40, 40
LOADER_STEPS, SMALL_LOADER_STEPS = 400, 30


def searched(*, folder: str, device: str, small: bool) -> dict[str, Any]:
    """Search settings of a job's step, then run it as written and as found.

    Returns:
        The search's document (`chosen`, `gain` with its interval, `trials`, `spent_s`); `before_s` and `after_s` of a
        sample.
    """
    space, run = Path(folder, "space.toml"), f"{folder}/search-run"
    space.write_text(SPACE.format(trials=SMALL_TRIALS if small else TRIALS))
    words = ["--device", device, *(["--small"] if small else [])]
    steps = SMALL_STEPS if small else STEPS
    _json([sys.executable, SCRIPT, "search", run, *words, "--capture", "--steps", str(steps + 20)])
    search = [sys.executable, "-m", "phasepoint", "tune", "search", space, "--run", run, "--from-start"]
    search += ["--steps", str(steps), "--out", f"{folder}/search-trials", "--json", "--"]
    found = _json([*search, sys.executable, SCRIPT, "search", run, *words])
    setting = [word for name, value in found["chosen"].items() for word in (f"--{name}", str(value))]
    times = {}
    for name, more in (("before_s", []), ("after_s", setting)):
        job = [sys.executable, SCRIPT, "search", f"{folder}/search-{name}", *words, "--steps", str(steps * 2), *more]
        times[name] = _json(job)["sample_s"]
    return {name: found[name] for name in ("verdict", "reason", "chosen", "gain", "gain_low", "gain_high")} | {
        "trials": len(found["trials"]),
        "spent_s": found["spent_s"],
        **times,
    }


def loaded(*, folder: str, device: str, small: bool) -> dict[str, Any]:
    """Run a job with the loader as it is and tuned while it runs.

    Returns:
        `off_s` and `on_s` of a sample in the last quarter, `off_whole_s` and `on_whole_s`; `same`, whether all losses
        are equal; `verdict` and `chosen` of `phasepoint tune`.
    """
    words = ["--device", device, "--steps", str(SMALL_LOADER_STEPS if small else LOADER_STEPS)]
    words += ["--small"] if small else []
    off = _json([sys.executable, SCRIPT, "loader", f"{folder}/loader-off", *words, "--off"])
    on = _json([sys.executable, SCRIPT, "loader", f"{folder}/loader-on", *words])
    told = _json([sys.executable, "-m", "phasepoint", "tune", f"{folder}/loader-on", "--json"])
    names = ("verdict", "reason", "chosen", "gain", "gain_low", "gain_high")
    return {name: told[name] for name in names if name in told} | {
        **{"off_s": off["sample_s"], "on_s": on["sample_s"]},
        **{"off_whole_s": off["whole_s"], "on_whole_s": on["whole_s"]},
        "same": off["losses"] == on["losses"],
    }


MODELS = ("resnet50", "vit_b_16", "mobilenet_v3_small", "gnmt", "dlrm", "ddpm-unet")
SMALL_MODELS = ("dlrm",)


def benched(*, folder: str, keep: str, device: str, small: bool) -> dict[str, Any]:
    """`phasepoint bench run` on this device, and one model beside PyTorch's own timer.

    Returns:
        `rows`, of the suite's document; `own_s` and `peer_s` of a latency of the first model, in this process;
        `energy_j` of an inference of it, and why not.
    """
    out = Path(folder, "bench")
    where = ["--devices", "cuda:0" if device == "cuda" else "cpu:1", "--rounds", "1", "--json"]
    bench = [sys.executable, "-m", "phasepoint", "bench", "run", *where]
    models = SMALL_MODELS if small else MODELS
    named = [word for name in models for word in ("--model", name)]
    precisions = "f32" if small else "f32,bf16"
    told = _json([*bench, *named, "--precision", precisions, "--seconds", "0.3" if small else "1", "--out", out])
    Path(keep, "bench.json").write_text(json.dumps(told))
    more = {} if small else _json([*bench, "--model", models[0], "--seconds", "5", "--why", "--out", f"{out}-energy"])
    return {"document": told, "longer": more, **_beside_timer(models[0], device)}


def _beside_timer(model: str, device: str) -> dict[str, float]:
    """A model's median latency by the suite's own loop and by `torch.utils.benchmark`, in turns."""
    import torch
    from torch.utils.benchmark import Timer

    from phasepoint.bench.runtimes.runtimes import RUNTIMES
    from phasepoint.bench.suite.subject import open_subject
    from phasepoint.bench.suite.timing import measure_latencies, warm_up

    subject = open_subject(model, counts=False)
    prepared = RUNTIMES["eager"].prepare(subject.network, "cuda:0" if device == "cuda" else "cpu:1", "f32")
    inputs = prepared.place(subject.inputs(1))
    warm_up(lambda: prepared.run(inputs))
    own_s, peer_s = [], []
    torch.set_num_threads(1)
    for _ in range(3):
        own_s.append(median(measure_latencies(lambda: prepared.run(inputs), seconds=1.0)) / 1e12)
        timer = Timer("run(inputs)", globals={"run": prepared.run, "inputs": inputs})
        peer_s.append(timer.blocked_autorange(min_run_time=1.0).median)
    return {"own_s": median(own_s), "peer_s": median(peer_s)}


BATCH, SMALL_BATCH = 64, 2
RUNS = 6


def analysed(*, folder: str, keep: str, device: str, small: bool) -> dict[str, Any]:
    """XSP's fifteen analyses of a network's inference, from a trace of PyTorch's profiler with all that it can tell.

    Returns:
        `rows` and `notes` by an analysis' code; `name` of the network, `trace_bytes`.
    """
    import torch
    from torch.profiler import profile, schedule

    from phasepoint.report.documents import stack_document
    from phasepoint.sources.ingest.opened import open_run
    from phasepoint.stack.analyses.table import ANALYSES, analyse
    from phasepoint.zoo.architectures.catalogue import all_architectures

    name = "a small network" if small else "resnet50"
    network = (torch_cnn(SMALL) if small else all_architectures()[name].build()).to(device).eval()
    rows, side = (SMALL_BATCH, 32) if small else (BATCH, 224)
    x = torch.randn(rows, 3, side, side, device=device)
    more = {"record_shapes": True, "profile_memory": True, "with_stack": True}
    trace = Path(keep, "resnet50.json.gz")
    plan = schedule(wait=1, warmup=2, active=RUNS)
    with torch.inference_mode(), profile(schedule=plan, on_trace_ready=lambda p: _export(p, trace), **more) as profiler:
        for _ in range(RUNS + 3):
            network(x)
            if device == "cuda":
                torch.cuda.synchronize()
            profiler.step()
    _json([sys.executable, "-m", "phasepoint", "import", trace, "--out", f"{folder}/infer", "--json"])
    opened = open_run(f"{folder}/infer")
    found: dict[str, Any] = {"name": name, "trace_bytes": trace.stat().st_size, "rows": {}, "notes": {}}
    documents = {}
    for one in ANALYSES:
        table = analyse(opened, one.name)
        documents[one.name] = stack_document(table)
        if one.code:
            found["rows"][one.code] = len(table.rows)
            found["notes"][one.code] = [str(note) for note in table.notes]
    with gzip.open(Path(keep, "analyses.json.gz"), "wt") as file:
        json.dump(documents, file, default=str)
    return found


def _export(profiler: Any, trace: Path) -> None:
    profiler.export_chrome_trace(str(trace))


def _json(words: list[Any]) -> Any:
    return json.loads(run_command([str(word) for word in words], LIMIT_S))
