"""A program is compiled again in the middle of the run, because the shape or type of an argument changed.

**Formula.** For every step that compiled for 5 ms or more, most of it for a program whose name had been seen before,
the compiler's own time; if that is more than half of the step's excess over the run's usual step, the whole excess.
PyTorch reports what it compiles again and why. For JAX, the change is found by comparing the parameters of programs
with the same name. A compilation for another mode (evaluation, gradients off) is a separate program.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on, or below that from {LEAST_TIMES} times on if it is
{LEAST_SHARE_MANY:.1%}: one recompilation for the last short batch is harmless, but one that recurs grows with the run.
If no program was captured, compiling in the middle of the run counts from the third time on, because an evaluation and
a short last batch each have a separate program; what costs less than half of the dearest is not counted.

**Remedy.** Call the step with the same shapes and types every time: pad or drop the last batch (`drop_last=True`;
`drop_remainder=True`), pad lengths to a few buckets, keep Python numbers out of the arguments or mark them static only
if they rarely change (`static_argnums`), keep one dtype. PyTorch: `torch.compile(dynamic=True)` or
`torch._dynamo.mark_dynamic`. JAX: `jax.config.update("jax_explain_cache_misses", True)` says what missed the cache.

**Wrong when** the shapes must differ and no padding is cheaper than compiling; padding itself costs compute.

**Source.** JAX's and Dynamo's compile events, Dynamo's compile ids and reasons; parameters of the compiled programs in
the captured windows.
"""

from collections import Counter

from phasepoint.core.units import format_ps, format_ratio
from phasepoint.findings.evidence.compilations import (
    Compilation,
    SignatureChange,
    compile_cost_ps,
    cost_of,
    find_compilations,
    need_compilations,
    program_changes,
)
from phasepoint.findings.finding import Claim, Evidence, Finding
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import sum_ps
from phasepoint.summary.run_events import COMPILE_LEAST_PS

LEAST_SHARE = 0.01
LEAST_TIMES = 3
LEAST_SHARE_MANY = 0.005


def find(view: FindingsView) -> list[Finding]:
    """One finding per program that was compiled again; one for all where the programs were not seen."""
    need_compilations(view)
    by_name: dict[str | None, list[Compilation]] = {}
    for compilation in find_compilations(view):
        if compilation.is_again:
            by_name.setdefault(compilation.name, []).append(compilation)
    if None in by_name and len(by_name) == 2:  # what was not seen is taken to be the one that is known
        unseen = by_name.pop(None)
        next(iter(by_name.values())).extend(unseen)
    found = [_finding(view, name, mine) for name, mine in by_name.items()]
    return [finding for finding in found if finding is not None]


def _finding(view: FindingsView, name: str | None, mine: list[Compilation]) -> Finding | None:
    clock = view.clock
    claimed_ps = cost_of(mine, compile_cost_ps(view))
    total_ps = sum_ps(claimed_ps)
    share = total_ps / max(clock.wall_ps, 1)
    if share < (LEAST_SHARE_MANY if len(mine) >= LEAST_TIMES else LEAST_SHARE):
        return None
    changes = program_changes(view, name) if name is not None else ()
    why = next((compilation.why for compilation in mine if compilation.why), None)
    what = f": {changes[0].told}" if changes else f": {why}" if why else ""
    times = "once" if len(mine) == 1 else f"{len(mine)} times"
    least_ps = sum_ps(cost_of(mine, clock.compile_ps))
    return Finding(
        code="RECOMPILE",
        title=f"{f'program {name}' if name else 'a program'} was compiled again {times}, {format_ps(total_ps)} "
        f"({format_ratio(share)} of the run){what}",
        claim=Claim("compiling", claimed_ps),
        low_ps=min(least_ps, total_ps),
        high_ps=total_ps,
        phase=view.phase_of_most(claimed_ps),
        layers=tuple(change.parameter for change in changes),
        remedy=_remedy(changes),
        evidence=_evidence(name, mine, changes),
        confidence="high" if what else "medium",
        wrong_if="the shapes must differ, and computing on padded ones costs more than compiling",
    )


def _remedy(changes: tuple[SignatureChange, ...]) -> str:
    which = f" of {changes[0].parameter}" if changes else ""
    if changes and all(change.is_dtype for change in changes):
        return f"keep one type{which}: convert it before the step (x.astype(jnp.float32), tensor.float())"
    return (
        f"keep the shape{which} the same in every step: drop or pad the last batch (drop_last=True), pad lengths to a "
        "few buckets; PyTorch: torch.compile(dynamic=True)"
    )


def _evidence(name: str | None, mine: list[Compilation], changes: tuple[SignatureChange, ...]) -> tuple[Evidence, ...]:
    times = Counter(c.stretch.session.host for c in mine)
    where = ", ".join(f"{n} on host {host}" for host, n in sorted(times.items()))
    steps = Evidence(
        f"compilations after the first: {where}",
        "steps",
        "select host, step, compile_ps, dur_ps from steps "
        f"where compile_ps >= {COMPILE_LEAST_PS} and step > 0 order by compile_ps desc",
    )
    if name is None or not changes:
        return (steps,)
    quoted = name.replace("'", "''")
    shapes = Evidence(
        "; ".join(change.told for change in changes[:3]),
        "instructions",
        "select p.host, p.program, p.first_window, i.op_name, i.op, i.shape from programs p join instructions i on "
        "i.host = p.host and i.attempt = p.attempt and i.program = p.program "
        f"where p.name = '{quoted}' and i.is_entry and i.opcode = 'parameter' order by i.op_name, p.program",
    )
    return (steps, shapes)
