"""The method of programs that the TPU's compiler has seen: it wrote down how many cycles it expects of each kernel.

Its own file: a method, as network, operators and analytic are.
"""

import numpy as np

from phasepoint.core.units import PS_PER_S
from phasepoint.hlo.work import estimated_cycles
from phasepoint.learn.models.model_file import StoredModel
from phasepoint.learn.predict.tpu.topology import generation_of_device
from phasepoint.learn.predict.types import Asked, Start, TargetDevice, Times


def start_cycles(target: TargetDevice, _: StoredModel | None) -> Start:
    """Cycles answer for a TPU, of kernels that have them; collectives and copies have none."""
    generation = generation_of_device(target.name) if target.kind == "tpu" else None
    if generation is None:
        return Start(None)
    ps_per_cycle = PS_PER_S / generation.clock_hz * generation.cycle_ratio

    def answer(asked: Asked) -> Times:
        cycles = [estimated_cycles(kernel.instruction) for kernel in asked.kernels]
        time_ps = np.array([np.nan if count is None else count * ps_per_cycle for count in cycles])
        distance = np.where(np.isnan(time_ps), np.nan, 0.0)
        return Times(time_ps, time_ps / generation.error, time_ps * generation.error, distance)

    return Start(
        answer,
        basis=f"cycles by the TPU's compiler at {generation.clock_hz / 1e6:,.0f} MHz ({generation.source})",
    )
