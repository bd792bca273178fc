"""Published steps of Google's MLPerf Training v0.6 on TPU v3, from 16 to 1,024 chips, beside plans for the same jobs.

    TPU_LIBRARY_PATH=…/libtpu.so python benchmarks/pod_steps.py [--only resnet] [--json FILE]

Each job is written in JAX as it was run (`pod_models.py`, `pod_detection.py`, `pod_translation.py`, `pod_masks.py`) and
compiled for its slice. The compiler's cycles times one constant, which the other models give, and what of the
collectives nothing hides, make a step.

Published: github.com/mlcommons/training_results_v0.6, Google/results. A block is the time from one `block_start` to the
next, the first one left out; of each run the shortest counts, of a system's runs the median. Evaluation on the chips is
in it: a forward pass, or test sentences that are decoded (the shortest block is one in which the model ends them soon).
Steps of a block are in the scripts that started the runs (Google/benchmarks/*/run_and_time.sh). A run is the time from
`run_start` to `run_stop`, its steps those of the epochs after which the target was reached; medians of both. What it
takes beside its steps is not planned. Steps are taken as published, or the 16 chips' are, and the curve of samples
against the batch (`phasepoint.scale.mlperf`, fitted on results of all submitters, these among them) gives the others.
"""

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from phasepoint.core.errors import PhasepointError
from phasepoint.core.units import PS_PER_S
from phasepoint.learn.predict.tpu.compile import Function
from phasepoint.learn.predict.tpu.topology import parse_topology
from phasepoint.scale.plan.program import plan_program
from phasepoint.scale.validate.mlperf import shipped_scaling

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Published:
    """A job as it was run: seconds of a block and of the whole run, and the steps of both."""

    model: str
    chips: int
    batch: int
    block_s: float
    steps: int
    run_s: float
    run_steps: int

    @property
    def step_ms(self) -> float:
        return self.block_s / self.steps * 1e3


PUBLISHED = (
    Published("resnet", 16, 4096, 164.111, 1252, 2530.1, 18767),
    Published("resnet", 64, 16384, 40.911, 313, 673.2, 5005),
    Published("resnet", 128, 32768, 21.035, 157, 409.2, 2971),
    Published("resnet", 256, 32768, 12.291, 157, 226.1, 2815),
    Published("resnet", 512, 32768, 6.695, 157, 136.5, 2971),
    Published("resnet", 1024, 32768, 3.815, 157, 77.0, 2815),
    Published("ssd", 16, 1024, 67.940, 625, 756.9, 7444),
    Published("ssd", 64, 1024, 20.562, 625, 233.0, 7444),
    Published("ssd", 128, 1024, 14.470, 625, 165.8, 7444),
    Published("ssd", 256, 2048, 7.080, 313, 107.0, 4638),
    Published("ssd", 512, 2048, 4.963, 313, 80.6, 4638),
    Published("ssd", 1024, 2048, 3.866, 313, 72.3, 4638),
    Published("masks", 16, 128, 418.325, 924, 6422.2, 12936),
    Published("masks", 64, 128, 225.786, 924, 3446.7, 12936),
    Published("masks", 128, 128, 136.436, 924, 2135.3, 12936),
    Published("transformer", 16, 512, 187.616, 1087, 587.7, 3261),
    Published("transformer", 64, 512, 64.451, 1087, 206.7, 3261),
    Published("transformer", 128, 512, 48.546, 1087, 156.4, 3261),
    Published("transformer", 256, 2048, 15.194, 271, 90.8, 1626),
    Published("transformer", 512, 2048, 8.605, 271, 61.7, 1626),
    Published("transformer", 1024, 2048, 5.649, 271, 49.9, 1626),
    Published("gnmt", 16, 4096, 119.947, 840, 734.9, 5040),
    Published("gnmt", 64, 8192, 37.062, 420, 277.0, 2940),
    Published("gnmt", 128, 8192, 27.102, 420, 208.4, 2940),
    Published("gnmt", 256, 8192, 18.589, 420, 150.6, 2940),
    Published("gnmt", 512, 8192, 14.181, 420, 126.7, 2940),
)

SLICES = {16: "4x4", 64: "8x8", 128: "8x16", 256: "16x16", 512: "16x32", 1024: "32x32"}

PROGRAMS = {
    "resnet": ("pod_models.py", "resnet", "resnet_args", True),
    "transformer": ("pod_models.py", "transformer_sharded", "transformer_sharded_args", True),
    "ssd": ("pod_detection.py", "ssd", "ssd_args", False),
    "masks": ("pod_masks.py", "masks", "masks_args", False),
    "gnmt": ("pod_translation.py", "gnmt", "gnmt_args", True),
}
"""File, step and arguments of each model, and whether the plan divides the batch, or the script does."""


@dataclass(frozen=True)
class Planned:
    """A plan of a published job, milliseconds."""

    model: str
    chips: int
    batch: int
    published_ms: float
    compute_ms: float
    sending_ms: float
    exposed_ms: float
    compile_s: float
    problem: str = ""

    def step_ms(self, constant: float) -> float:
        return self.compute_ms * constant + self.exposed_ms


def plan(job: Published) -> Planned:
    file, name, arguments, divides = PROGRAMS[job.model]
    asked = Function(HERE / file, name, args_from=arguments)
    topology = parse_topology(f"tpu-v3:{SLICES[job.chips]}")
    try:
        (row,) = plan_program(asked, topology, [job.batch if divides else None])
    except PhasepointError as error:
        return Planned(job.model, job.chips, job.batch, job.step_ms, 0, 0, 0, 0, str(error)[:300])
    ms = PS_PER_S / 1e3
    times = [value / ms for value in (row.compute_ps, row.sending_ps, row.exposed_ps)]
    return Planned(job.model, job.chips, job.batch, job.step_ms, *times, row.compile_s, row.problem)


def constant_of(rows: list[Planned]) -> float:
    """What the compiler's cycles have to be multiplied by: the median over jobs, each model counted alike."""
    by_model = [
        statistics.median((row.published_ms - row.exposed_ms) / row.compute_ms for row in rows if row.model == model)
        for model in {row.model for row in rows}
    ]
    return statistics.median(by_model)


CURVES = {"resnet": "resnet", "ssd": "ssd", "masks": "maskrcnn", "transformer": "transformer", "gnmt": "gnmt"}
"""Names of the models' curves of samples against the batch."""


def run_steps_told(job: Published, smallest: Published) -> float:
    """Steps of a run by those of the smallest system's run and the curve of samples against the batch."""
    curve = shipped_scaling().convergence[CURVES[job.model]]
    samples = smallest.run_steps * smallest.batch
    samples *= math.exp(curve.log_samples(job.batch) - curve.log_samples(smallest.batch))
    return samples / job.batch


def summary(errors: Sequence[float]) -> str:
    """Mean and worst error in words."""
    sizes = [abs(error) for error in errors]
    return f"mean {100 * statistics.mean(sizes):.1f} %, worst {100 * max(sizes):.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--chips", nargs="*", type=int, default=list(SLICES))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = []
    for job in PUBLISHED:
        if job.model in asked.only and job.chips in asked.chips:
            rows.append(row := plan(job))
            told = (
                row.problem or f"kernels {row.compute_ms:.1f}, sent {row.sending_ms:.1f}, exposed {row.exposed_ms:.1f}"
            )
            print(f"{row.model} {row.chips}: {row.published_ms:.1f} ms published, {told}", flush=True)
    good = [row for row in rows if not row.problem]
    errors: list[float] = []
    runs: dict[str, list[float]] = {"published": [], "told": []}
    jobs = {(job.model, job.chips): job for job in PUBLISHED}
    for model in dict.fromkeys(row.model for row in good):
        others = [row for row in good if row.model != model]
        constant = constant_of(others) if others else 1.0
        for row in (row for row in good if row.model == model):
            step_ms, job = row.step_ms(constant), jobs[model, row.chips]
            errors.append(step_ms / row.published_ms - 1)
            steps = {"published": job.run_steps, "told": run_steps_told(job, jobs[model, 16])}
            for name, count in steps.items():
                runs[name].append(count * step_ms / 1e3 / job.run_s - 1)
            print(
                f"| {model} | {row.chips} | {row.batch:,} | {row.published_ms:.1f} | {step_ms:.1f} |"
                f" {100 * errors[-1]:+.0f} % | constant {constant:.2f} | run {job.run_s / 60:.2f} min |"
                f" {100 * runs['published'][-1]:+.0f} % | {100 * runs['told'][-1]:+.0f} % |"
            )
    print(f"{len(good)} of {len(rows)} planned; {summary(errors)}")
    for name, found in runs.items():
        print(f"time to train, steps {name}: {summary(found)}")
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
