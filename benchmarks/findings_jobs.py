"""One job of `benchmarks/findings.py`: trains as its plan says and prints the figures as JSON.

python findings_jobs.py INDEX '{"framework": "jax", …}'        # the index of its cause in CAUSES
"""

import json
import sys
from typing import Any

import findings_causes_device
import findings_causes_host
import findings_causes_ranks
import findings_causes_run
from findings_nets import NETS
from findings_plan import Cause, Plan, Plant

PLAIN = Cause("PLAIN", lambda plan: Plant(), (), costs=False)
"""The good job: control of every cause that shares one."""

CAUSES: tuple[Cause, ...] = (
    *findings_causes_host.CAUSES,
    *findings_causes_device.CAUSES,
    *findings_causes_run.CAUSES,
    *findings_causes_ranks.CAUSES,
    PLAIN,
)

NOT_PROVOKED = {
    "TINY-KERNELS in JAX": "XLA compiles loops over small work into one kernel on the CPU: 10,000 rows cost no more",
    "SYNC-EVERY-STEP in PyTorch": "without an accelerator PyTorch works on the host's own thread: there is no wait",
    "HOST-DISPATCH in PyTorch": "likewise: what is issued is executed there and then: TINY-KERNELS",
    "LOW-PRECISION in PyTorch": "its operators on a CPU are captured without element types; the rule says so",
    "POOR-TILING": "a CPU's matrix units have no tile that a dimension must fit: 512 and 513 columns take equally long",
}
"""Rules that nothing on a machine without an accelerator sets off, and why."""


def run_job(cause: Cause, plan: Plan) -> dict[str, Any]:
    """Train one job in this process."""
    from dataclasses import replace

    plants = {
        side: cause.plant(replace(plan, planted=side)) for side in (True, False) if plan.toggle or side == plan.planted
    }
    plants.setdefault(not plan.planted, Plant())
    return (NETS | cause.nets)[plan.framework](plan, plants)


def main() -> None:
    plan = Plan(**json.loads(sys.argv[2]))
    print(json.dumps(run_job(CAUSES[int(sys.argv[1])], plan)), flush=True)


if __name__ == "__main__":
    main()
