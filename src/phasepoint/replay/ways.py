"""A way to a target: the checkpoint before it, the steps that are run, and what they cost."""

from dataclasses import dataclass

from phasepoint.replay.compared_steps import Compared
from phasepoint.replay.plan_cost import PlanCost
from phasepoint.replay.restart_points import RestartPoint, RestartPoints
from phasepoint.replay.targets import Target

LEAD_STEPS = 10
"""Steps that a restored program runs before the target: the first ones compile (again for donated buffers, and for each
length of sequences that comes), and the next touch memory for the first time. Where targets began after three steps,
ops of the first captured step took 2 to 50 times as long as in the original (2 cores, JAX 0.10.2, 2026-11-21). From the
start of the job there is no lead: the original warmed up in the same steps."""


@dataclass(frozen=True)
class Way:
    """How a target is reached.

    Attributes:
        target: steps to capture.
        representative: steps that stand for the phase; the target itself, if it can be reached well.
        point: checkpoint to restore, None from the start of the job.
        passed_by: that attempt's checkpoints, used or not.
        first_step: the first step that is run.
        compared: the last one, and the steps whose time is compared.
        cost: what that takes.
    """

    target: Target
    representative: Target
    point: RestartPoint | None
    passed_by: RestartPoints
    first_step: int
    compared: Compared
    cost: PlanCost

    @property
    def last_step(self) -> int:
        """The last step that is run."""
        return self.compared.last_step

    @property
    def after_step(self) -> int | None:
        """The step after which its checkpoint stands, None from the start."""
        return self.point.after_step if self.point else None
