"""The rules: the one table. A rule is a module with `find(view)`, whose docstring is its page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from phasepoint.findings.finding import Finding
from phasepoint.findings.view import FindingsView

Find = Callable[[FindingsView], Sequence[Finding]]
"""A rule's function: findings, none where all is well; raises `Unavailable` where it cannot judge."""


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        code: as it is told, and asked for with `phasepoint explain`.
        module: its file in this folder.
        of_job: whether its findings are about the job; one about the recording is none of the job's faults.
    """

    code: str
    module: str
    of_job: bool = True

    @property
    def find(self) -> Find:
        """Its function."""
        return cast(Find, import_module(f"phasepoint.findings.{self.module}").find)


RULES: tuple[Rule, ...] = (
    Rule("INPUT-STALL", "input_stall"),
    Rule("HOST-DISPATCH", "host_dispatch"),
    Rule("SYNC-EVERY-STEP", "sync_every_step"),
    Rule("TINY-KERNELS", "tiny_kernels"),
    Rule("DEVICE-IDLE", "device_idle"),
    Rule("EXPOSED-COMMUNICATION", "exposed_communication"),
    Rule("STRAGGLER", "straggler"),
    Rule("RECOMPILE", "recompile"),
    Rule("COMPILE-SHARE", "compile_share"),
    Rule("CHECKPOINT-STALL", "checkpoint_stall"),
    Rule("EVAL-SHARE", "eval_share"),
    Rule("DATA-MOVEMENT", "data_movement"),
    Rule("LOW-PRECISION", "low_precision"),
    Rule("MEMORY-BOUND", "memory_bound"),
    Rule("POOR-TILING", "poor_tiling"),
    Rule("SLOW-STEPS", "slow_steps"),
    Rule("DRIFT", "drift"),
    Rule("MEMORY-GROWTH", "memory_growth"),
    Rule("GC-PAUSE", "gc_pause"),
    Rule("THIN-PROFILE", "thin_profile", of_job=False),
)
