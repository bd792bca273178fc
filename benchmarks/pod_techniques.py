"""What each technique of `phasepoint.scale` is worth: compiled for a slice of each generation, and on host devices.

    TPU_LIBRARY_PATH=…/libtpu.so python benchmarks/pod_techniques.py [--only recurrent] [--slices v5e:4x4] [--json FILE]
    python benchmarks/pod_techniques.py --host                   # eight host devices of this machine, by turns

The steps stand in `pod_technique_steps.py`. Compiled are kernels by the compiler's cycles, and what the links carry by
closed form, with the technique and without. Host devices share this machine's cores and memory: there a technique that
spares work shows, and one that spares links does not.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

STEPS = Path(__file__).with_name("pod_technique_steps.py")
SLICES = ("v3:4x4", "v4:2x2x4", "v5e:4x4", "v5p:2x2x4", "v6e:4x4", "tpu7x:2x2x4")
TECHNIQUES = {
    "weight_update": "weight-update-sharding",
    "two_level": "two-level-all-reduce",
    "first_conv": "space-to-depth",
    "recurrent": "lstm-projection",
    "spatial": "whole_images",
    "batch_norm": "batch_norm_alone",
}
"""Step, and what is left out of it, or the step that does without."""
PLAIN = frozenset({"whole_images", "batch_norm_alone"})
ROUNDS, BLOCK_S = 15, 0.2


def compiled(step: str, without: str, slice_name: str) -> dict[str, object]:
    from phasepoint.learn.predict.tpu.compile import Function
    from phasepoint.learn.predict.tpu.topology import parse_topology
    from phasepoint.scale.plan.program import plan_program

    topology = parse_topology(slice_name)
    asked = Function(STEPS, step, args_from=f"{step}_args")
    plain = Function(STEPS, without, args_from=f"{without}_args") if without in PLAIN else asked
    (row,) = plan_program(asked, topology, [None])
    (other,) = plan_program(plain, topology, [None], without=() if without in PLAIN else (without,))
    found: dict[str, object] = {"step": step, "slice": slice_name, "problem": row.problem or other.problem}
    for name, one in (("with", row), ("without", other)):
        opcodes = sorted({collective.opcode for collective in one.collectives})
        found |= {f"kernels_{name}_ms": one.compute_ps / 1e9, f"links_{name}_ms": one.sending_ps / 1e9,
                  f"collectives_{name}": opcodes}  # fmt: skip
    return found


def on_host(step: str, without: str) -> dict[str, object]:
    """Both in this process, by turns."""
    import jax
    import numpy as np

    import pod_technique_steps as steps
    from phasepoint.learn.predict.tpu.compile import LEFT_OUT

    def made(leaf):
        values = np.random.default_rng(0).normal(size=leaf.shape) * 0.02
        split = jax.sharding.NamedSharding(steps.DATA, jax.sharding.PartitionSpec())
        return jax.device_put(values.astype(leaf.dtype), leaf.sharding or split)

    calls = []
    for name, left_out in ((step, ""), (without, "") if without in PLAIN else (step, without)):
        os.environ[LEFT_OUT] = left_out
        arguments = jax.tree.map(made, getattr(steps, f"{name}_args"))
        program = jax.jit(getattr(steps, name)).lower(*arguments).compile()
        calls.append(lambda program=program, arguments=arguments: jax.block_until_ready(program(*arguments)))
    os.environ.pop(LEFT_OUT)

    def block_ms(call) -> float:
        began, count = time.perf_counter(), 0
        while count < 2 or time.perf_counter() - began < BLOCK_S:
            call()
            count += 1
        return (time.perf_counter() - began) / count * 1e3

    for call in calls:
        call()
    times = [[block_ms(call) for call in calls] for _ in range(ROUNDS)]
    ratios = sorted(plain / new for new, plain in times)
    middle = ratios[ROUNDS // 4 : ROUNDS - ROUNDS // 4]
    return {
        "step": step,
        "slice": "host:8",
        "ms": statistics.median(new for new, _ in times),
        "gain": statistics.median(ratios),
        "gain_quartiles": [middle[0], middle[-1]],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=list(TECHNIQUES))
    parser.add_argument("--slices", nargs="*", default=list(SLICES))
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = []
    if asked.host:
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    for step in asked.only:
        for slice_name in ["host"] if asked.host else asked.slices:
            row = on_host(step, TECHNIQUES[step]) if asked.host else compiled(step, TECHNIQUES[step], slice_name)
            rows.append(row)
            print(json.dumps(row), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
