"""Leveled measurement against the run that nobody watched: does profiling inflate layers, and is the correction right?

    python benchmarks/leveled.py

Every model is a chain of stages. The truth is a stopwatch: the plain chain with one reading of the clock between stages
(50 ns each) and no hook or profiler anywhere; for JAX each stage compiled by itself, less the call of an empty program.
`phasepoint.stack.measure` sees the chain as one model. Compared are

    model   wall time at L less the hooks' calibrated time, before anything is made to add up, with the wall time at M
    stage   corrected latency of each stage (its layers' sum) with the stopwatch's

One thread each, short models, runs made again while other processes are in the way. In each round the stopwatch runs
before and after the measurement; figures are medians over rounds.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from leveled_models import jax_models, torch_models

ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "NPROC": "1",
    "OMP_NUM_THREADS": "1",
}

CLOCKS = {
    "wall": {"torch": time.perf_counter_ns, "jax": time.perf_counter_ns},
    "cpu": {"torch": time.thread_time_ns, "jax": time.process_time_ns},
}

Laps = Callable[[], list[int]]
"""One run of the chain: nanoseconds of each stage."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=10, help="of each level and of the stopwatch's halves, a round")
    parser.add_argument("--patience", type=int, default=6)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: processor time, on a machine in use")
    parser.add_argument("--only", help="part of a model's name")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})
    rows = []
    for framework, models in (("torch", torch_models()), ("jax", jax_models())):
        for name, make in models.items():
            if options.only is None or options.only in name:
                rows.append(judge(framework, name, make, options))
                print_row(rows[-1])
    print_summary(rows, options)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def judge(framework: str, name: str, make: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Medians over the rounds, in each of which stopwatch and measurement take turns."""
    from phasepoint.measure.instrument import LevelClocks
    from phasepoint.measure.jax import JaxInstrument
    from phasepoint.measure.torch import TorchInstrument

    clock_ns = CLOCKS[options.clock][framework]
    prepare, instrument = (
        (prepare_torch, TorchInstrument(clock_ns=clock_ns)) if framework == "torch" else (prepare_jax, JaxInstrument())
    )
    prepared = prepare(*make(), clock_ns)
    how = {"instrument": instrument, "clocks": LevelClocks(wall_ns=clock_ns)}
    rounds = [judge_once(*prepared, how, options) for _ in range(options.rounds)]
    row: dict[str, Any] = {"framework": framework, "model": name}
    for figure, value in rounds[0].items():
        values = [one[figure] for one in rounds]
        if isinstance(value, list):
            row[figure] = [statistics.median(column) for column in zip(*values, strict=True)]
        else:
            row[figure] = statistics.median(values)
    big = [share >= 0.03 for share in row.pop("stage_shares")]
    for figure in ("stage_errors", "stage_profiled_errors"):
        row[figure] = [one for one, counts in zip(row[figure], big, strict=True) if counts]
    return row


def judge_once(fn: Any, args: Any, laps: Laps, stage_of: Any, how: Any, options: argparse.Namespace) -> dict[str, Any]:
    from phasepoint.stack import measure

    before = undisturbed(laps, options.repeats, options.patience)
    found = measure(fn, args, repeats=options.repeats, warmups=3, patience=options.patience, **how)
    after = undisturbed(laps, options.repeats, options.patience)
    truth_ps = [1000 * trimmed(column) for column in zip(*before, *after, strict=True)]
    stages_ps, profiled_ps = [0] * len(truth_ps), [0] * len(truth_ps)
    for layer in found.layers:
        stage = stage_of(layer.layer)
        if stage is not None:
            stages_ps[stage] += layer.latency_ps
            profiled_ps[stage] += layer.profiled_ps or 0
    inflation = [layer.inflation_ratio for layer in found.layers if layer.latency_ps >= 0.005 * found.model_ps]
    return {
        "layers": len(found.layers),
        "model_ms": found.model_ps / 1e9,
        "stopwatch_ms": sum(truth_ps) / 1e9,
        "overhead_l": found.level("L").overhead_ps / found.model_ps,
        "overhead_k": found.level("K").wall_ps / found.model_ps - 1,
        "layer_inflation": statistics.median(inflation),
        "model_error": found.closure_ratio - 1,
        "stage_shares": [one / sum(truth_ps) for one in truth_ps],
        "stage_errors": [ours / one - 1 for ours, one in zip(stages_ps, truth_ps, strict=True)],
        "stage_profiled_errors": [ours / one - 1 for ours, one in zip(profiled_ps, truth_ps, strict=True)],
        "disturbed": sum("took a processor" in note for note in found.notes),
    }


def prepare_torch(stages: list[Any], x: Any, clock_ns: Any) -> tuple[Any, list[Any], Laps, Any]:
    import torch

    torch.set_num_threads(1)
    net = torch.nn.Sequential(*stages).eval()

    @torch.no_grad()
    def infer(x: Any) -> Any:
        return net(x)

    @torch.no_grad()
    def laps() -> list[int]:
        times, value = [clock_ns()], x
        for stage in net:
            value = stage(value)
            times.append(clock_ns())
        return [end - begin for begin, end in pairwise(times)]

    def stage_of(layer: str) -> int | None:
        parts = layer.split("/")
        return int(parts[1]) if len(parts) > 1 else None

    return infer, [x], laps, stage_of


def prepare_jax(stages: list[Any], x: Any, clock_ns: Any) -> tuple[Any, list[Any], Laps, Any]:
    import jax

    params, inputs, value = [], [], x
    for stage in stages:
        params.append(stage.init(jax.random.key(1), value))
        inputs.append(value)
        value = jax.block_until_ready(stage.apply(params[-1], value))

    def chain(params: Any, x: Any) -> Any:
        for number, (stage, weights) in enumerate(zip(stages, params, strict=True)):
            with jax.named_scope(f"stage{number}"):
                x = stage.apply(weights, x)
        return x

    alone = [jax.jit(stage.apply) for stage in stages]
    empty = jax.jit(lambda weights, x: x.ravel()[:1])

    def laps() -> list[int]:
        taken, value = [], x
        for program, weights in zip(alone, params, strict=True):
            begin = clock_ns()
            empty(weights, value).block_until_ready()
            middle = clock_ns()
            value = program(weights, value).block_until_ready()
            taken.append(clock_ns() - middle - (middle - begin))
        return taken

    def stage_of(layer: str) -> int | None:
        first = layer.split("/", maxsplit=1)[0]
        return int(first.removeprefix("stage")) if first.startswith("stage") else None

    return jax.jit(chain), [params, x], laps, stage_of


def undisturbed(laps: Laps, repeats: int, patience: int) -> list[list[int]]:
    """Runs in which no other process was in the way, as `measure` makes them."""
    for _ in range(5):
        laps()
    kept = []
    for _ in range(repeats):
        tried = []
        while len(tried) <= patience:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
            taken = laps()
            tried.append((resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before, taken))
            if not tried[-1][0]:
                break
        kept.append(min(tried)[1])
    return kept


def trimmed(values: Any) -> int:
    from phasepoint.measure.levels import trimmed_mean_ps

    return trimmed_mean_ps(list(values))


def print_row(row: dict[str, Any]) -> None:
    stages = " ".join(f"{100 * one:+5.1f}" for one in row["stage_errors"])
    print(
        f"{row['framework']:5} {row['model']:17} {row['layers']:3.0f} layers {row['model_ms']:7.2f} ms (stopwatch "
        f"{row['stopwatch_ms']:7.2f})  overhead L {percent(row['overhead_l'])} K {percent(row['overhead_k'])}  "
        f"layers at K {percent(row['layer_inflation'])}  model {percent(row['model_error'])}  stages {stages} %",
        "(machine in use)" if row["disturbed"] else "",
        flush=True,
    )


def print_summary(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    model = statistics.median(abs(row["model_error"]) for row in rows)
    stage = statistics.median(statistics.median(map(abs, row["stage_errors"])) for row in rows)
    profiled = statistics.median(statistics.median(map(abs, row["stage_profiled_errors"])) for row in rows)
    print(
        f"\n{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {datetime.now(UTC):%Y-%m-%d}"
    )
    print(f"medians over {len(rows)} models, {options.rounds} rounds of {options.repeats} repeats:")
    print(
        f"  layers inflated by kernel-level profiling  {percent(statistics.median(r['layer_inflation'] for r in rows))}"
    )
    print(f"  |model: L corrected − M|                   {percent(model)}   (3 % asked)")
    print(f"  |stage: corrected − stopwatch|             {percent(stage)}   (3 % asked)")
    print(f"  |stage: kernel-level profile − stopwatch|  {percent(profiled)}   without leveling")


def percent(ratio: float) -> str:
    return f"{100 * ratio:+6.1f} %"


if __name__ == "__main__":
    main()
