"""The rules: the one table. A rule is a module with `find(view)`, whose docstring is its page.

A rule's page: its module's docstring, with the values of its thresholds filled in from the module.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc
from typing import cast

from phasepoint.core.errors import UsageError
from phasepoint.findings.finding import Finding
from phasepoint.findings.view import FindingsView

Find = Callable[[FindingsView], Sequence[Finding]]
"""A rule's function: findings, none where all is well; raises `Unavailable` where it cannot judge."""


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        code: as it is told, and asked for with `phasepoint explain`.
        module: its file under `rules`.
        of_job: whether its findings are about the job; one about the recording is none of the job's faults.
        saved: what its remedy saves, as a ratio of what it claims: the ends between which 95 % of jobs lie. From jobs
            with the cause planted (`benchmarks/findings.py --ranges`, 2026-11-23, 1 to 7 jobs a rule, rounded outwards;
            with fewer than three also from the errors of the jobs of 2026-11-21). None where none could be planted, or
            where the claim is no time that a remedy wins.
    """

    code: str
    module: str
    of_job: bool = True
    saved: tuple[float, float] | None = None
    bound: str | None = None

    @property
    def find(self) -> Find:
        """Its function."""
        return cast(Find, import_module(f"phasepoint.findings.rules.{self.module}").find)


RULES: tuple[Rule, ...] = (
    Rule("INPUT-STALL", "host.input_stall", saved=(0.8, 1.4), bound="INPUT-BOUND"),
    Rule("HOST-DISPATCH", "host.host_dispatch", saved=(0.5, 1.5), bound="HOST-BOUND"),
    Rule("SYNC-EVERY-STEP", "host.sync_every_step", saved=(0.7, 1.7), bound="HOST-BOUND"),
    Rule("TINY-KERNELS", "device.tiny_kernels", saved=(0.5, 2), bound="HOST-BOUND"),
    Rule("DEVICE-IDLE", "host.device_idle", saved=(0.55, 2.4), bound="HOST-BOUND"),
    Rule("EXPOSED-COMMUNICATION", "device.exposed_communication", saved=(0.5, 4), bound="COMMUNICATION-BOUND"),
    Rule("STRAGGLER", "host.straggler", saved=(0.4, 3), bound="STRAGGLER"),
    Rule("RECOMPILE", "run.recompile", saved=(0.95, 1.1), bound="COMPILE-BOUND"),
    Rule("COMPILE-SHARE", "run.compile_share", saved=(0.75, 1.1), bound="COMPILE-BOUND"),
    Rule("CHECKPOINT-STALL", "run.checkpoint_stall", saved=(0.65, 1.2), bound="CHECKPOINT-BOUND"),
    Rule("EVAL-SHARE", "run.eval_share", saved=(0.95, 1.1), bound="EVALUATION-BOUND"),
    Rule("DATA-MOVEMENT", "device.data_movement", saved=(0.4, 1.6), bound="MEMORY-BOUND"),
    Rule("LOW-PRECISION", "device.low_precision", saved=(0.7, 1.4), bound="COMPUTE-BOUND"),
    Rule("MEMORY-BOUND", "device.memory_bound", saved=(0.3, 4), bound="MEMORY-BOUND"),
    Rule("POOR-TILING", "device.poor_tiling", bound="COMPUTE-BOUND"),
    Rule("SLOW-STEPS", "run.slow_steps", saved=(0.85, 1.3), bound="SLOW STEPS"),
    Rule("SLOW-MACHINE", "run.slow_machine", bound="SLOW MACHINE"),
    Rule("GPU-THROTTLED", "device.throttled", bound="SLOW MACHINE"),
    Rule("DRIFT", "run.drift", saved=(0.4, 1.7), bound="SLOWING DOWN"),
    Rule("MEMORY-GROWTH", "run.memory_growth"),
    Rule("GC-PAUSE", "host.gc_pause", saved=(0.95, 1.1), bound="HOST-BOUND"),
    Rule("THIN-PROFILE", "run.thin_profile", of_job=False),
)


SECTIONS = ("Formula", "Thresholds", "Remedy", "Wrong when", "Source")
"""Every page has these, in this order."""

_HEAD = """# Findings

What `phasepoint findings RUN` can report, one section for each rule. `make docs` generates it from their docstrings.
"""

_PLACEHOLDER = re.compile(r"\{([A-Z][A-Z0-9_]*)(?::([^}]*))?\}")


def explain_rule(code: str) -> str:
    """The page of a rule as Markdown: what it finds, formula, thresholds with reasons, remedy, when it is wrong.

    Raises:
        UsageError: no rule has this code.
    """
    rule = find_rule(code)
    module = import_module(f"phasepoint.findings.rules.{rule.module}")
    text = _PLACEHOLDER.sub(lambda m: format(getattr(module, m[1]), m[2] or ""), cleandoc(module.__doc__ or ""))
    return f"# {rule.code}\n\n{text}\n{_told_saved(rule)}"


def _told_saved(rule: Rule) -> str:
    """What the interval of its findings allows for beyond sampling."""
    if rule.saved is None:
        return ""
    low, high = rule.saved
    text = f"""\
**Interval.** It also allows for how much of the claim the remedy saves: {low:g} to {high:g} times as much, in jobs in
which the cause was planted (docs/findings-measured.md)."""
    return f"\n{text}\n"


def explain_all() -> str:
    """Every rule's page in one document, as docs/findings.md holds them."""
    pages = "\n".join(explain_rule(rule.code).replace("# ", "## ", 1) for rule in RULES)
    return f"{_HEAD}\n{pages}"


def find_rule(code: str) -> Rule:
    """The rule with this code, in any case.

    Raises:
        UsageError: there is none; the message lists them.
    """
    for rule in RULES:
        if rule.code == code.upper():
            return rule
    raise UsageError(f"no rule has the code {code!r}; the codes are {', '.join(rule.code for rule in RULES)}")
