"""Evaluation takes a large part of the run: it comes too often, or one pass is too slow.

**Formula.** All time inside the stretches that the user named as evaluation (`run.phase("eval")`; any name with one of
{WORDS_TOLD}), less compilation in them. This time is won if the evaluation moves out of the training job; the lower end
of the interval is half of it, for evaluating half as often.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on: below that, the evaluation is worth more than the
time.

**Remedy.** Evaluate half as often; on a fixed part of the data, with the whole set at the end only; with larger batches
(no gradients are kept), under `torch.inference_mode()` or with a jitted step that returns sums, fetched once at the
end; or in a separate job that follows the checkpoints.

**Wrong when** the evaluation steers the training (early stopping, schedules on plateau) and cannot be less frequent, or
if no machine is free for a separate job.

**Source.** The step clock and the user's own names: docs/how-it-works.md.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.findings.evidence.held_time import held_time
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import sum_ps

LEAST_SHARE = 0.04
WORDS = ("eval", "valid", "test")
WORDS_TOLD = ", ".join(WORDS)
_SQL_WORDS = " or ".join(f"name ilike '%{word}%'" for word in WORDS)


def find(view: FindingsView) -> list[Finding]:
    """Time in evaluation."""
    clock, hints = view.clock, view.table("hints")
    if not hints.num_rows:
        raise Unavailable(
            'no stretch of the run is named, so evaluation cannot be told from training: put `with run.phase("eval"):` '
            "around it"
        )
    passes = _evaluations(hints)
    held = held_time(clock, passes)
    claimed_ps: Int64s = np.maximum(held.by_step - clock.compile_ps, 0)
    total_ps = sum_ps(claimed_ps) + held.outside_ps
    if total_ps < LEAST_SHARE * clock.wall_ps:
        return []
    n, share = passes.num_rows, total_ps / clock.wall_ps
    train_steps = int((held.by_step == 0).sum())
    every = f", one every {format_count(train_steps // n)} training steps" if train_steps >= n else ""
    return [
        Finding(
            code="EVAL-SHARE",
            title=f"{format_count(n)} evaluations take {format_ps(total_ps)}, {format_ratio(share)} of the run{every}",
            claim=Claim("compute", claimed_ps, held.outside_ps),
            low_ps=total_ps // 2,
            high_ps=total_ps,
            phase=view.phase_of_most(claimed_ps),
            remedy="evaluate half as often, or on half of the data; with larger batches and without gradients "
            "(torch.inference_mode(); a jitted step that returns sums); or in a job of its own that follows the "
            "checkpoints",
            evidence=_evidence(passes),
            confidence="high",
            wrong_if="the evaluation steers the training and cannot be rarer",
        )
    ]


def _evaluations(hints: pa.Table) -> pa.Table:
    names = pc.utf8_lower(hints.column("name").cast(pa.string()))
    named = pc.match_substring(names, WORDS[0])
    for word in WORDS[1:]:
        named = pc.or_(named, pc.match_substring(names, word))
    return hints.filter(named)


def _evidence(passes: pa.Table) -> tuple[Evidence, ...]:
    longest_ps = pc.max(passes.column("dur_ps")).as_py()
    return (
        Evidence(
            f"{format_count(passes.num_rows)} evaluations, the longest {format_ps(longest_ps)}",
            "hints",
            f"select host, name, first_step, last_step, dur_ps from hints where {_SQL_WORDS} order by dur_ps desc",
        ),
    )
