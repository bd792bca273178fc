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
    """

    code: str
    module: str
    of_job: bool = True

    @property
    def find(self) -> Find:
        """Its function."""
        return cast(Find, import_module(f"phasepoint.findings.rules.{self.module}").find)


RULES: tuple[Rule, ...] = (
    Rule("INPUT-STALL", "host.input_stall"),
    Rule("HOST-DISPATCH", "host.host_dispatch"),
    Rule("SYNC-EVERY-STEP", "host.sync_every_step"),
    Rule("TINY-KERNELS", "device.tiny_kernels"),
    Rule("DEVICE-IDLE", "host.device_idle"),
    Rule("EXPOSED-COMMUNICATION", "device.exposed_communication"),
    Rule("STRAGGLER", "host.straggler"),
    Rule("RECOMPILE", "run.recompile"),
    Rule("COMPILE-SHARE", "run.compile_share"),
    Rule("CHECKPOINT-STALL", "run.checkpoint_stall"),
    Rule("EVAL-SHARE", "run.eval_share"),
    Rule("DATA-MOVEMENT", "device.data_movement"),
    Rule("LOW-PRECISION", "device.low_precision"),
    Rule("MEMORY-BOUND", "device.memory_bound"),
    Rule("POOR-TILING", "device.poor_tiling"),
    Rule("SLOW-STEPS", "run.slow_steps"),
    Rule("DRIFT", "run.drift"),
    Rule("MEMORY-GROWTH", "run.memory_growth"),
    Rule("GC-PAUSE", "host.gc_pause"),
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
    return f"# {rule.code}\n\n{text}\n"


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
