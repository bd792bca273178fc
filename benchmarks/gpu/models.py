"""What the card does at most, and predicted times beside measured ones; called by `child.py`."""

import json
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from itertools import islice, repeat
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

REPEATS, SMALL_REPEATS = 10, 3
GRAPH_CALLS, GRAPH_S = 20, 0.02
"""Calls of an operator in one CUDA graph, and for how long together, at most: what starting it costs the host is not
measured."""

MOST_FLOP, MOST_BYTES = 1e12, 4e9
"""Of an operator: larger ones take too long to be measured by the hundred."""

COPY_BYTES = 4 << 30
PCIE_BYTES = 1 << 30


def peaks(*, device: str, small: bool) -> dict[str, Any]:
    """Largest rates of products by element type, and of copies.

    Returns:
        `flop_per_s` by type and `bytes_per_s` by kind of copy, a list of repeats each.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    side, repeats = (128, SMALL_REPEATS) if small else (8192, REPEATS)
    flop: dict[str, list[float]] = {}
    types = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
    for name, dtype in types.items():
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        flop[name] = [2 * side**3 / t for t in _times_s(lambda a=a, b=b: a @ b, device, repeats)]
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        a, b = (torch.randn(side, side, device=device) for _ in range(2))
        flop["tf32"] = [2 * side**3 / t for t in _times_s(lambda: a @ b, device, repeats)]
        whole = torch.randint(-8, 8, (side, side), device=device, dtype=torch.int8)
        flop["s8"] = [2 * side**3 / t for t in _times_s(lambda: torch._int_mm(whole, whole.t()), device, repeats)]
    size = COPY_BYTES >> 10 if small else COPY_BYTES
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    copies = {"memory": [2 * size / t for t in _times_s(lambda: target.copy_(source), device, repeats)]}
    if device == "cuda":
        host = torch.ones(PCIE_BYTES // 4).pin_memory()
        there = torch.empty(PCIE_BYTES // 4, device=device)
        copies["pcie, to the device"] = [PCIE_BYTES / t for t in _times_s(lambda: there.copy_(host), device, repeats)]
    return {"flop_per_s": flop, "bytes_per_s": copies}


def _times_s(run: Callable[[], Any], device: str, repeats: int) -> list[float]:
    """Times of single runs after three that warm up, by the device's own clock where it has one."""
    import torch

    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        else:
            began_s = time.perf_counter()
            run()
            times.append(time.perf_counter() - began_s)
    return times


def operators(*, device: str, small: bool, count: int, seed: int, card: str) -> dict[str, Any]:
    """Random operators, measured here and predicted for a card.

    Returns:
        One row each: `op`, `dtype`, `time_s`, `told_s`, `low_s`, `high_s`, `distance`, and `failed`, how many could not
        be run.
    """
    from phasepoint.devices import device_spec
    from phasepoint.learn.models.model_file import read_model
    from phasepoint.learn.operators.task import OperatorModel

    spec = device_spec(card)
    if spec is None:
        raise RuntimeError(f"{card} is not in devices/specs.toml")
    model, rng = OperatorModel.from_model(read_model("builtin:gpu-ops")), np.random.default_rng(seed)
    drawn = list(islice(filter(_is_small_enough, (_draw(rng, small) for _ in repeat(None))), count))
    told, rows, failed = model.predict(drawn, spec, dispatch=False), [], 0
    for place, operator in enumerate(drawn):
        try:
            time_s = _operator_s(operator, device, SMALL_REPEATS if small else REPEATS)
        except RuntimeError:  # out of memory, or no kernel for it
            failed += 1
            continue
        ends = {f"{end}_s": float(getattr(told, f"{end}_ps")[place]) / 1e12 for end in ("low", "high")}
        ends |= {"told_s": float(told.time_ps[place]) / 1e12, "distance": float(told.distance[place])}
        rows.append({"op": operator.op, "dtype": operator.dtype, "time_s": time_s, **ends})
    return {"rows": rows, "failed": failed}


def _draw(rng: np.random.Generator, small: bool) -> Any:
    """An operator of random class and size: its dimensions uniform in the logarithm."""
    from phasepoint.learn.operators.work import Operator

    def size(low: int, high: int) -> int:
        top = min(high, 4 * low) if small else high
        return int(2 ** rng.uniform(np.log2(low), np.log2(top)))

    dtype = ("f32", "bf16")[int(rng.integers(2))]
    op = str(rng.choice(("linear", "linear", "bmm", "bmm", "conv", "add", "mul", "gelu", "tanh", "softmax", "ln")))
    if op in ("linear", "bmm"):
        dims = {"B": size(1, 64), "M": size(16, 2048), "N": size(16, 8192), "K": size(16, 8192)}
    elif op == "conv":
        dims = {"B": size(1, 64), "input_channel": size(3, 512), "input_size": size(8, 224), "kernel_size": 3}
        dims |= {"output_channel": size(8, 512), "padding": 1, "stride": int(rng.integers(1, 3))}
    else:
        dims = {"B": size(16, 65536), "H": size(16, 8192)}
    return Operator(op, dims, dtype)


def _is_small_enough(operator: Any) -> bool:
    from phasepoint.learn.operators.work import work_of_operators

    work = work_of_operators([operator])
    return float(work.flop[0]) <= MOST_FLOP and float(work.bytes[0]) <= MOST_BYTES


def _operator_s(operator: Any, device: str, repeats: int) -> float:
    """Time of one execution."""
    import torch
    from torch.nn import functional

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[operator.dtype]

    def randn(*shape: int) -> Any:
        return torch.randn(shape, device=device, dtype=dtype)

    d = operator.dims
    if operator.op == "linear":
        x, weight = randn(d["B"], d["M"], d["K"]), randn(d["N"], d["K"])
        run = lambda: functional.linear(x, weight)  # noqa: E731
    elif operator.op == "bmm":
        x, y = randn(d["B"], d["M"], d["K"]), randn(d["B"], d["K"], d["N"])
        run = lambda: torch.bmm(x, y)  # noqa: E731
    elif operator.op == "conv":
        x = randn(d["B"], d["input_channel"], d["input_size"], d["input_size"])
        weight = randn(d["output_channel"], d["input_channel"], d["kernel_size"], d["kernel_size"])
        run = lambda: functional.conv2d(x, weight, stride=d["stride"], padding=d["padding"])  # noqa: E731
    else:
        x, y = randn(d["B"], d["H"]), randn(d["B"], d["H"])
        of = {
            "add": lambda: x + y,
            "mul": lambda: x * y,
            "gelu": lambda: functional.gelu(x),
            "tanh": lambda: torch.tanh(x),
            "softmax": lambda: torch.softmax(x, -1),
            "ln": lambda: functional.layer_norm(x, (d["H"],)),
        }
        run = of[operator.op]
    with torch.no_grad():
        return _in_graph_s(run, repeats) if device == "cuda" else median(_times_s(run, device, repeats))


def _in_graph_s(run: Callable[[], Any], repeats: int) -> float:
    import torch

    calls = max(1, min(GRAPH_CALLS, int(GRAPH_S / min(_times_s(run, "cuda", 3)))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    return median(_times_s(graph.replay, "cuda", repeats)) / calls


def whole_models(*, device: str, small: bool, count: int, card: str) -> dict[str, Any]:
    """Programs of the zoo, compiled and run here, and predicted for this device.

    Returns:
        One row each: `name`, `time_s` (of one of many runs issued back to back), `told_s`, `low_s`, `high_s`,
        `in_range`; and `failed`, by name.
    """
    import jax

    from phasepoint.learn.predict.predict import predict_function
    from phasepoint.zoo.catalogue import FAMILIES, zoo_programs
    from phasepoint.zoo.specs import make_inputs

    by_family = {name: [spec for spec in zoo_programs() if spec.family == name] for name in FAMILIES}
    chosen = [specs[0] if small else specs[len(specs) // 2] for specs in by_family.values() if specs][:count]
    rows, failed = [], {}
    for spec in chosen:
        try:
            function, shapes = spec.build()
            compiled = jax.jit(function).lower(*shapes).compile()
            inputs = jax.device_put(make_inputs(shapes, integer_bound=spec.integer_bound))
            told = predict_function(compiled, device=card)
            times = [_issued_s(compiled, inputs, SMALL_REPEATS if small else 50) for _ in range(3)]
        except Exception as error:  # noqa: BLE001 - a program that does not run here is told
            failed[spec.name] = f"{type(error).__name__}: {str(error)[:200]}"
            continue
        if told.time_ps is None or told.low_ps is None or told.high_ps is None:
            failed[spec.name] = "a loop's trip count is not known"
            continue
        ends = {"told_s": told.time_ps / 1e12, "low_s": told.low_ps / 1e12, "high_s": told.high_ps / 1e12}
        rows.append({"name": spec.name, "time_s": min(times), **ends, "in_range": told.in_range_ratio})
    return {"rows": rows, "failed": failed}


def _issued_s(compiled: Any, inputs: Any, runs: int) -> float:
    """Time of one of many runs that are issued back to back."""
    import jax

    jax.block_until_ready(compiled(*inputs))
    began_s = time.perf_counter()
    for _ in range(runs):
        last = compiled(*inputs)
    jax.block_until_ready(last)
    return (time.perf_counter() - began_s) / runs


def collected(*, device: str, small: bool, keep: str, limit_s: float) -> dict[str, Any]:
    """The first programs of the zoo measured into a corpus, which is packed into `keep`."""
    from benchmarks.gpu.child import run_command

    with tempfile.TemporaryDirectory(prefix="phasepoint-gpu-") as folder:
        out = Path(folder) / "corpus"
        few = ("1", "1") if small else ("24", "2")
        words = ("learn", "collect", "--out", str(out), "--programs", "zoo", "--limit", few[0], "--rounds", few[1])
        command = [sys.executable, "-m", "phasepoint", *words, "--json"]
        found = json.loads(run_command(command, limit_s))
        packed = Path(keep) / "corpus.tar.gz"
        with tarfile.open(packed, "w:gz") as archive:
            archive.add(out, "corpus")
        return {
            "measured": found["measured"],
            "device": found["device"],
            "failed": [one["name"] + ": " + one["reason"][:200] for one in found["failed"]],
            "bytes": packed.stat().st_size,
        }
