"""What recording costs a training job: wall time, CPU time, memory, and whether it changes the result.

On/off pairs of the same job with the same, fixed number of steps run side by side, each in a process of its own and
pinned to a core of its own; with every pair they change cores. So a machine whose speed drifts slows both alike, and
the recorder's thread finds no idle core to hide on. `--turns` runs the two of a pair one after another on all cores
instead, in turning order, as a machine with an accelerator or a single core has to. Reported is the median over pairs
of on / off - 1 with a bootstrap 95 % interval, for wall and for CPU time (user and system, children included), beside
the recorder's own account. A shared machine's cores are slowed down by its other guests for seconds at a time; a probe
every ten steps finds out when, and `undisturbed` is the same from the blocks of steps in which that did not happen.
`--null` compares the job without recorder with itself: the scatter of the arrangement.

    python benchmarks/overhead.py                        # 10 pairs of 60 s, JAX and PyTorch
    python benchmarks/overhead.py --null                 # off / off
    python benchmarks/overhead.py --within               # off and on in turns within one process
    python benchmarks/overhead.py --quick                # 3 pairs of 15 s
    python benchmarks/overhead.py --peers                # and the frameworks' own profilers left on
    python benchmarks/overhead.py --clock                # the step clock alone, µs a step
    python benchmarks/overhead.py --windows 1000         # host memory over so many windows
"""

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

JOBS = Path(__file__).with_name("overhead_jobs.py")
CALIBRATION_STEPS = 200
WITHIN_S = 5.0
DISTURBED = 1.2
"""From 1.2 × its least time on, the probe says that the core was disturbed: undisturbed it varies by 5 %."""
LAYOUT_BYTES = 4096
"""The environment of every job is padded by a random length up to this, because where a process's stack and buffers
come to lie changes its speed by some per cent (Mytkowicz et al., "Producing wrong data without doing anything
obviously wrong", ASPLOS 2009)."""


def run_job(framework: str, steps: int, mode: str, core: int | None = None) -> dict[str, Any]:
    """One job in a process of its own, pinned to a core or, with None, free."""
    folder = Path(tempfile.mkdtemp(prefix="phasepoint-overhead-"))
    command = [
        sys.executable,
        str(JOBS),
        framework,
        "--steps",
        str(steps),
        "--mode",
        mode,
        "--out",
        str(folder / "run"),
    ]
    if core is not None:
        command += ["--core", str(core)]
    layout = {"JAX_PLATFORMS": "cpu", "LAYOUT": "x" * random.randrange(LAYOUT_BYTES)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | layout, check=False)
        if done.returncode or "phasepoint:" in done.stderr:
            raise SystemExit(f"{framework} {mode}: exit code {done.returncode}\n{done.stderr[-3000:]}")
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return json.loads(done.stdout.splitlines()[-1]) | {"mode": mode, "run_bytes": size}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_pair(framework: str, steps: int, modes: tuple[str, str], index: int, *, turns: bool) -> list[dict[str, Any]]:
    """Two jobs, side by side on two cores that they exchange with every pair, or one after another in turning order."""
    flip = index % 2 == 1
    if turns:
        found = {place: run_job(framework, steps, modes[place]) for place in ((1, 0) if flip else (0, 1))}
        return [found[0], found[1]]
    cores = sorted(os.sched_getaffinity(0))[:2]
    with ThreadPoolExecutor(2) as both:
        jobs = [
            both.submit(run_job, framework, steps, mode, core)
            for mode, core in zip(modes, cores[::-1] if flip else cores, strict=True)
        ]
        return [job.result() for job in jobs]


def steps_for(framework: str, seconds: float, *, turns: bool) -> int:
    """The number of steps that takes about so long here, from the warm steps of a short pair."""
    pair = run_pair(framework, CALIBRATION_STEPS, ("off", "off"), 0, turns=turns)
    return max(CALIBRATION_STEPS, int(seconds / min(job["step_s"] for job in pair)))


def bootstrap(values: list[float]) -> tuple[float, float, float]:
    """Median and its 95 % interval, percentile bootstrap with 10,000 draws."""
    rng, sample = np.random.default_rng(0), np.array(values)
    medians = np.median(rng.choice(sample, (10_000, len(sample))), axis=1)
    return float(np.median(sample)), *(float(q) for q in np.quantile(medians, [0.025, 0.975]))


def compare(framework: str, pairs: int, seconds: float, *, turns: bool, null: bool) -> dict[str, Any]:
    """Interleaved on/off pairs; with `null` off/off pairs."""
    steps = steps_for(framework, seconds, turns=turns)
    results: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for index in range(pairs):
        off, on = run_pair(framework, steps, ("off", "off" if null else "on"), index, turns=turns)
        on = {"own_ratio": 0.0, "windows": 0} | on
        results.append((off, on))
        sys.stderr.write(
            f"{framework} {index + 1}/{pairs}: off {off['wall_s']:.2f} s, {on['mode']} {on['wall_s']:.2f} s "
            f"({on['wall_s'] / off['wall_s'] - 1:+.2%}), CPU {on['cpu_s'] / off['cpu_s'] - 1:+.2%}, "
            f"undisturbed {gain(off, on)[0]:+.2%} ({undisturbed_share(off, on):.0%} of the time), "
            f"own account {on['own_ratio']:.2%}, {on['windows']} windows, "
            f"results {'equal' if off['digest'] == on['digest'] else 'DIFFER'}\n"
        )
    digests = {job["digest"] for pair in results for job in pair}
    return {
        "framework": framework,
        "steps": steps,
        "arrangement": "in turns" if turns else "side by side",
        "seconds": median(off["wall_s"] for off, _ in results),
        "wall": bootstrap([on["wall_s"] / off["wall_s"] - 1 for off, on in results]),
        "cpu": bootstrap([on["cpu_s"] / off["cpu_s"] - 1 for off, on in results]),
        "undisturbed": bootstrap([gain(off, on)[0] for off, on in results]),
        "undisturbed_cpu": bootstrap([gain(off, on)[1] for off, on in results]),
        "undisturbed_share": median(undisturbed_share(off, on) for off, on in results),
        "off_spread": float(
            np.std([off["wall_s"] for off, _ in results]) / np.mean([off["wall_s"] for off, _ in results])
        ),
        "own_ratio": median(on["own_ratio"] for _, on in results),
        "windows": median(on["windows"] for _, on in results),
        "run_bytes": median(on["run_bytes"] for _, on in results),
        "bit_identical": len(digests) == 1,
        "pairs": [{"off": off, "on": on} for off, on in results],
    }


def gain(off: dict[str, Any], on: dict[str, Any]) -> tuple[float, float]:
    """on / off - 1 of wall and CPU time, had the cores not been disturbed: see `overhead_jobs.probe_s`."""
    limit_s = _limit_s(off, on)
    compiling = np.array(off["blocks"][0][:2])  # taken to last as long in both: no probe tells how it was disturbed
    without, recorded = (_undisturbed(job, limit_s) + compiling for job in (off, on))
    wall, cpu = recorded / without - 1
    return float(wall), float(cpu)


def undisturbed_share(*jobs: dict[str, Any]) -> float:
    """Share of the jobs' blocks with an undisturbed core."""
    limit_s = _limit_s(*jobs)
    return float(np.mean(np.concatenate([_is_quiet(np.array(job["blocks"]), limit_s) for job in jobs])))


def _limit_s(*jobs: dict[str, Any]) -> float:
    """The probe's time up to which the core counts as undisturbed."""
    return DISTURBED * min(float(np.quantile(np.array(job["blocks"])[:, 2], 0.05)) for job in jobs)


def _is_quiet(blocks: Any, limit_s: float) -> Any:
    """Blocks with an undisturbed probe before and after."""
    quiet = blocks[:, 2] <= limit_s
    return quiet & np.concatenate(([True], quiet[:-1]))


def _undisturbed(job: dict[str, Any], limit_s: float) -> Any:
    """Wall and CPU time if every block but the first had taken what undisturbed ones take on average.

    What is before the first block and after the last one, entering and leaving the recorder, counts as it was.
    """
    blocks = np.array(job["blocks"])
    outside = np.array([job["wall_s"], job["cpu_s"]]) - blocks[:, :2].sum(axis=0) - blocks[:, 2].sum()
    return outside + _quiet_mean([job], limit_s) * (len(blocks) - 1)


def _quiet_mean(jobs: list[dict[str, Any]], limit_s: float) -> Any:
    """Mean wall and CPU time of the undisturbed blocks of several jobs, the first block of each left out."""
    quiet = [(blocks := np.array(job["blocks"]))[1:][_is_quiet(blocks, limit_s)[1:], :2] for job in jobs]
    return np.concatenate(quiet).mean(axis=0)


def compare_peer(framework: str, repeats: int, seconds: float, *, turns: bool) -> dict[str, Any]:
    """The framework's own profiler left on for the whole job, against the job without."""
    steps = steps_for(framework, seconds, turns=turns)
    pairs = [run_pair(framework, steps, ("off", "peer"), index, turns=turns) for index in range(repeats)]
    return {
        "framework": framework,
        "steps": steps,
        "wall": median(on["wall_s"] / off["wall_s"] - 1 for off, on in pairs),
        "cpu": median(on["cpu_s"] / off["cpu_s"] - 1 for off, on in pairs),
    }


def within(framework: str) -> dict[str, Any]:
    """Off and on in turns within one process, pinned to a core, WITHIN_S a turn."""
    core = min(os.sched_getaffinity(0))
    step_s = run_job(framework, CALIBRATION_STEPS, "off", core)["step_s"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(JOBS), framework, "--mode", "within", "--out", folder, "--core", str(core)]
        command += ["--steps", str(int(WITHIN_S / step_s))]
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"}, check=False
        )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    found = json.loads(done.stdout.splitlines()[-1])
    turns = [{mode: {"blocks": blocks} for mode, blocks in turn.items()} for turn in found.pop("turns")]
    sums = [{mode: np.array(job["blocks"])[:, :2].sum(axis=0) for mode, job in turn.items()} for turn in turns]
    wall, cpu = (bootstrap([float(turn["on"][i] / turn["off"][i] - 1) for turn in sums]) for i in (0, 1))
    limit_s = _limit_s(*(job for turn in turns for job in turn.values()))
    means = {mode: _quiet_mean([turn[mode] for turn in turns], limit_s) for mode in ("off", "on")}
    undisturbed = [float(means["on"][i] / means["off"][i] - 1) for i in (0, 1)]
    return {**found, "rounds": len(turns), "wall": wall, "cpu": cpu, "undisturbed": undisturbed}


def clock_us() -> dict[str, float]:
    """What `run.steps` adds to an empty loop's body, in microseconds a step: the median of nine runs."""
    from phasepoint.recorder import record

    def burn() -> None:
        for _ in range(200):
            pass

    def timed(loader: Any, count: int) -> float:
        began = time.perf_counter()
        for _ in loader:
            burn()
        return (time.perf_counter() - began) / count * 1e6

    count, added = 20_000, []
    for _ in range(9):
        with tempfile.TemporaryDirectory() as folder, record(Path(folder) / "run", budget=0) as run:
            list(run.steps(range(10)))
            added.append(timed(run.steps(range(count)), count) - timed(range(count), count))
    return {"us_per_step": median(added), "us_per_step_max": max(added)}


def memory(framework: str, windows: int) -> dict[str, Any]:
    """Resident memory while so many windows of two steps are captured back to back, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--memory-job", framework, "--windows", str(windows)],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def memory_job(framework: str, windows: int) -> dict[str, Any]:
    """Samples resident memory every tenth of the windows; growth is counted from the second tenth on."""
    sys.path.insert(0, str(JOBS.parent))
    from overhead_jobs import JOBS as jobs
    from overhead_jobs import batches
    from phasepoint.recorder import record
    from phasepoint.recorder.clock.epoch import resident_bytes

    step, _, shape = jobs[framework]()
    loader = list(batches(4, (4, *shape[1:]), 10))
    samples: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        with record(Path(folder) / "run", budget=None, window_steps=2, framework=framework) as run:
            for index in run.steps(range(2 * windows)):
                step(loader[index % 4])
                if index % max(1, windows // 5) == 0:
                    samples.append(resident_bytes() or 0)
        captured = run.cost.windows
    samples_mib = [size / 2**20 for size in samples]
    return {
        "framework": framework,
        "windows": captured,
        "rss_mib": samples_mib,
        "growth_mib": samples_mib[-1] - samples_mib[len(samples_mib) // 5],
    }


def print_report(figures: dict[str, Any]) -> None:
    print(f"{figures['date']}  {figures['machine']}")
    if "clock" in figures:
        print(f"step clock: {figures['clock']['us_per_step']:.2f} µs a step")
    for row in figures.get("pairs", []):
        (wall, low, high), (cpu, cpu_low, cpu_high) = row["wall"], row["cpu"]
        (alone, alone_low, alone_high), (alone_cpu, *_) = row["undisturbed"], row["undisturbed_cpu"]
        print(
            f"{row['framework']:5s}  {len(row['pairs'])} pairs × {row['seconds']:.0f} s {row['arrangement']} "
            f"({row['steps']} steps)\n"
            f"       wall {wall:+.2%} [{low:+.2%}, {high:+.2%}]   CPU {cpu:+.2%} [{cpu_low:+.2%}, {cpu_high:+.2%}]\n"
            f"       undisturbed cores ({row['undisturbed_share']:.0%} of the time): wall {alone:+.2%} "
            f"[{alone_low:+.2%}, {alone_high:+.2%}]   CPU {alone_cpu:+.2%}\n"
            f"       own account {row['own_ratio']:.2%}   windows {row['windows']:.0f}  "
            f" run {row['run_bytes'] / 1e6:.1f} MB\n"
            f"       spread of the job without recorder {row['off_spread']:.2%}   "
            f"bit-identical {'yes' if row['bit_identical'] else 'NO'}"
        )
    for row in figures.get("within", []):
        (wall, low, high), (cpu, cpu_low, cpu_high) = row["wall"], row["cpu"]
        print(
            f"{row['framework']:5s}  within one process, {row['rounds']} × {row['steps']} steps, "
            f"{row['windows']} windows: wall {wall:+.2%} [{low:+.2%}, {high:+.2%}]   "
            f"CPU {cpu:+.2%} [{cpu_low:+.2%}, {cpu_high:+.2%}]   undisturbed {row['undisturbed'][0]:+.2%}"
        )
    for row in figures.get("peers", []):
        name = "jax.profiler.trace" if row["framework"] == "jax" else "torch.profiler"
        print(f"{row['framework']:5s}  {name} left on: wall {row['wall']:+.1%}   CPU {row['cpu']:+.1%}")
    for row in figures.get("memory", []):
        print(
            f"{row['framework']:5s}  {row['windows']} windows: resident memory {row['rss_mib'][0]:.0f} → "
            f"{row['rss_mib'][-1]:.0f} MiB, {row['growth_mib']:+.1f} MiB since the first fifth"
        )


def measure(args: argparse.Namespace) -> dict[str, Any]:
    frameworks = ["jax", "torch"] if args.framework == "both" else [args.framework]
    pairs, seconds = (3, 15.0) if args.quick else (args.pairs, args.seconds)
    figures: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    if args.clock:
        return figures | {"clock": clock_us()}
    if args.within:
        return figures | {"within": [within(framework) for framework in frameworks]}
    if args.windows:
        return figures | {"memory": [memory(framework, args.windows) for framework in frameworks]}
    figures["clock"] = clock_us()
    turns = args.turns or len(os.sched_getaffinity(0)) < 2
    figures["pairs"] = [compare(name, pairs, seconds, turns=turns, null=args.null) for name in frameworks]
    if args.peers:
        repeats = 1 if args.quick else args.peer_repeats
        figures["peers"] = [compare_peer(name, repeats, args.peer_seconds, turns=turns) for name in frameworks]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=["jax", "torch", "both"], default="both")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a job without recorder")
    parser.add_argument("--turns", action="store_true", help="one after another on all cores, not side by side")
    parser.add_argument("--null", action="store_true", help="off / off: the scatter of the arrangement itself")
    parser.add_argument("--within", action="store_true", help="only off and on in turns within one process")
    parser.add_argument("--peers", action="store_true", help="also the frameworks' own profilers, left on")
    parser.add_argument("--peer-repeats", type=int, default=3)
    parser.add_argument("--peer-seconds", type=float, default=20.0)
    parser.add_argument("--clock", action="store_true", help="only the step clock")
    parser.add_argument("--windows", type=int, help="only host memory, over so many windows")
    parser.add_argument("--quick", action="store_true", help="3 pairs of 15 s")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory-job", choices=["jax", "torch"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_job:
        print(json.dumps(memory_job(args.memory_job, args.windows)))
        return
    figures = measure(args)
    print_report(figures)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
