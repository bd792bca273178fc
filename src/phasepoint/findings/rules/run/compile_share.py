"""The job spends its time compiling: tracing and compiling each program for the first time, and warming up.

**Formula.** For every step that compiled for 5 ms or more, the compiler's own time; if that is more than half of the
step's excess over the run's usual step, the whole excess (which includes tracing and the first execution). Programs
that were compiled again are left to RECOMPILE. Of the sum, {CACHE_SAVES:.0%} can be won.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on: every job compiles once, and in a long run that is
not worth a change. A compilation below 5 ms is a cache look-up or a constant. {CACHE_SAVES:.0%}: a program from a cache
must still be traced and read. Measured with JAX 0.10 on a CPU (November 2026): the first call of a step of 100 small
layers went from 57 s to 3 s, of one of 20 layers from 3.2 s to 0.6 s.

**Remedy.** Keep compiled programs between runs. JAX: `jax.config.update("jax_compilation_cache_dir", "…")` and
`jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)`; roll equal layers into `jax.lax.scan`, so that one
layer is compiled instead of a hundred. PyTorch: `torch.compile(mode="default")` with `TORCHINDUCTOR_CACHE_DIR` on a
persistent disk, or `torch.compiler.save_cache_artifacts()`; compile repeated blocks one by one.

**Wrong when** the run that was recorded is short and the real one is long: the seconds stay the same, but the share
vanishes; or if every run has another network, so that no cache helps.

**Source.** JAX's and Dynamo's own events, by which the step clock times compilation: docs/how-it-works.md.
"""

import numpy as np

from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.findings.evidence.compilations import compile_cost_ps, cost_of, find_compilations, need_compilations
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import sum_ps
from phasepoint.summary.run_events import COMPILE_LEAST_PS

LEAST_SHARE = 0.03
CACHE_SAVES = 0.9
LOW_SAVES = 0.7
"""What a cache saves at least: small programs save 80 %, and smaller ones less."""


def find(view: FindingsView) -> list[Finding]:
    """First compilations of the run."""
    need_compilations(view)
    clock = view.clock
    first = [c for c in find_compilations(view) if not c.is_again]
    cost_ps = cost_of(first, compile_cost_ps(view))
    spent_ps = sum_ps(cost_ps)
    claimed_ps = np.asarray(cost_ps * CACHE_SAVES, np.int64)
    total_ps = sum_ps(claimed_ps)
    if total_ps < LEAST_SHARE * clock.wall_ps:
        pieces_ps = sum_ps(clock.compile_ps[clock.compile_ps < COMPILE_LEAST_PS])
        if pieces_ps >= max(LEAST_SHARE * clock.wall_ps, 1):
            raise Unavailable(
                f"compiling in pieces of less than 5 ms takes {format_ps(pieces_ps)}, "
                f"{format_ratio(pieces_ps / clock.wall_ps)} of the run: constants, and look-ups of compiled programs, "
                "of which this rule knows no cause"
            )
        return []
    share, steps = spent_ps / clock.wall_ps, int((cost_ps > 0).sum())
    return [
        Finding(
            code="COMPILE-SHARE",
            title=f"compiling takes {format_ps(spent_ps)}, {format_ratio(share)} of the run",
            claim=Claim("compiling", claimed_ps),
            low_ps=int(spent_ps * LOW_SAVES),
            high_ps=spent_ps,
            phase=view.phase_of_most(claimed_ps),
            remedy=view.of_framework(
                torch="keep compiled programs on disk: set TORCHINDUCTOR_CACHE_DIR",
                jax='keep compiled programs on disk: jax.config.update("jax_compilation_cache_dir", "…"); put equal '
                "layers into one (jax.lax.scan)",
            ),
            evidence=(
                Evidence(
                    f"{format_count(steps)} {'step' if steps == 1 else 'steps'} compiled for 5 ms or more",
                    "steps",
                    "select host, step, compile_ps, dur_ps from steps "
                    f"where compile_ps >= {COMPILE_LEAST_PS} order by compile_ps desc",
                ),
            ),
            confidence="high",
            wrong_if="the real run is much longer than the recorded one, or no two runs have the same programs",
        )
    ]
