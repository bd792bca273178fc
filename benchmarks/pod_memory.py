"""Memory of decoders on slices: told in closed form, and as the TPU's own compiler has it; half do not fit.

    TPU_LIBRARY_PATH=…/libtpu.so python benchmarks/pod_memory.py [--only a0 …] [--json FILE]

The cases stand in `pod_decoder.py`: ten decoders on slices of four generations, each with as many layers as the closed
form puts a tenth below the memory, and a tenth above.
"""

import argparse
import json
import statistics
from pathlib import Path

from phasepoint.core.errors import PhasepointError
from phasepoint.learn.predict.tpu.compile import Function
from phasepoint.learn.predict.tpu.topology import parse_topology
from phasepoint.scale.plan.program import plan_program
from pod_decoder import CASES, cases

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=list(cases()))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = []
    for name in asked.only:
        case = CASES[name]
        function = Function(HERE / "pod_decoder.py", f"step_{name}", args_from=f"args_{name}")
        try:
            (row,) = plan_program(function, parse_topology(f"tpu-{case.slice}"), [None])
        except PhasepointError as error:
            print(f"{name}: {str(error)[:300]}", flush=True)
            continue
        fits = row.fits and row.memory_bytes <= case.limit_bytes
        told_fits = case.told_bytes <= case.limit_bytes
        rows.append({"case": name, "slice": case.slice, "layers": case.model.layers, "told": case.told_bytes,
                     "needed": row.memory_bytes, "limit": case.limit_bytes, "fits": fits,
                     "told_fits": told_fits})  # fmt: skip
        print(f"{name} {case.slice}, {case.model.layers} layers of {case.model.dim}, {case.remat}: told "
              f"{case.told_bytes / 2**30:.1f} GiB, compiler {row.memory_bytes / 2**30:.1f} of "
              f"{case.limit_bytes / 2**30:.1f}: {100 * (case.told_bytes / row.memory_bytes - 1):+.0f} %, "
              f"{'agrees' if fits == told_fits else 'DISAGREES'}", flush=True)  # fmt: skip
    errors = [abs(row["told"] / row["needed"] - 1) for row in rows]
    agree = sum(row["fits"] == row["told_fits"] for row in rows)
    print(f"{agree} of {len(rows)} agree; off by {100 * statistics.mean(errors):.1f} % in the mean, "
          f"{100 * max(errors):.0f} % at worst, {sum(error <= 0.1 for error in errors)} within 10 %")  # fmt: skip
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
