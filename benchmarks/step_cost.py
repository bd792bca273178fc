"""What the recorder's hooks take of each step of a short-stepped job, and what the account charges for them.

    python benchmarks/step_cost.py [--rounds 600] [--json PATH]

One PyTorch job of steps of some 0.4 ms runs under `phasepoint record --budget 0`. In the process itself the hooks are
taken out and put back in turns, some steps each, in random order, so that a machine whose speed drifts slows both
alike. Compared are the quartiles of the steps' times; beside them stands what the account charges for each step.

JAX is not measured so: its dispatch overlaps with the execution on another thread, and a hook that delays it by
10 µs makes a step of 170 µs shorter as often as longer.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS_OF_A_TURN = 10
WARM_UP_STEPS = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--json", type=Path, metavar="PATH")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(job(arguments.rounds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        record = [sys.executable, "-m", "phasepoint", "record", "--budget", "0", "--out", f"{folder}/run", "--"]
        command = [*record, sys.executable, __file__, "--job", "--rounds", str(arguments.rounds)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        [figures] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))
    print("| hooks | least tenth µs | first quarter µs | median µs |\n|---|---|---|---|")
    for hooks, times_us in figures["more_us"].items():
        print(f"| {hooks} | {' | '.join(f'+{time_us:.1f}' for time_us in times_us)} |")
    none = ", ".join(f"{time_us:.0f}" for time_us in figures["none_us"])
    print(f"a step without hooks: {none} µs; the account charges {figures['charged_us']:.1f} µs a step")


def job(rounds: int) -> dict[str, object]:
    """The job, recorded: its steps' times with and without hooks."""
    import torch
    from torch.optim import optimizer as hooks_of_torch

    from phasepoint.recorder.assembly import calibrate
    from phasepoint.recorder.clock.epoch import Clock

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.ones(32, 64)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()

    for _ in range(WARM_UP_STEPS):
        step()
    places = (hooks_of_torch._global_optimizer_pre_hooks, hooks_of_torch._global_optimizer_post_hooks)
    hooks = [dict(place) for place in places]
    assert all(hooks), "this job is not recorded"
    ways = {"none": (False, False), "after": (False, True), "both": (True, True)}
    times_ns: dict[str, list[int]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            for place, hook, is_in in zip(places, hooks, ways[name], strict=True):
                place.clear()
                place.update(hook if is_in else {})
            step()
            for _ in range(STEPS_OF_A_TURN):
                began_ns = time.perf_counter_ns()
                step()
                times_ns[name].append(time.perf_counter_ns() - began_ns)
    levels = {name: quantiles_us(times) for name, times in times_ns.items()}
    return {
        "none_us": levels["none"],
        "more_us": {
            name: [with_us - without_us for with_us, without_us in zip(level, levels["none"], strict=True)]
            for name, level in levels.items()
            if name != "none"
        },
        "charged_us": calibrate(Clock()) / 1e6,
    }


def quantiles_us(times_ns: list[int]) -> list[float]:
    """The first tenth, the first quarter and the median, in microseconds."""
    ordered = sorted(times_ns)
    return [ordered[int(len(ordered) * share)] / 1e3 for share in (0.1, 0.25, 0.5)]


if __name__ == "__main__":
    main()
