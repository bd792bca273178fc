"""Evaluation takes a large part of the run: it comes too often, or one pass is too slow.

**Formula.** All time inside the stretches that the user named as evaluation (`run.phase("eval")`; any name with one of
{WORDS_TOLD}), and of phases that run no backward pass (docs/phases.md); less waiting for input, compiling and
checkpoints in them. This time is won if the evaluation moves out of the training job; the lower end
of the interval is half of it, for evaluating half as often.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on: below that, the evaluation is worth more than the
time.

**Remedy.** Evaluate half as often; on a fixed part of the data, with the whole set at the end only; with larger batches
(no gradients are kept), under `torch.inference_mode()` or with a jitted step that returns sums, fetched once at the
end; or in a separate job that follows the checkpoints.

**Wrong when** the evaluation steers the training (early stopping, schedules on plateau) and cannot be less frequent, or
if no machine is free for a separate job.

**Source.** The step clock, the user's own names and the phases' ops: docs/how-it-works.md.
"""

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools
from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.findings.evidence.held_time import EVALUATION_WORDS, read_evaluations
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import find_stretches

LEAST_SHARE = 0.04
LISTED = 20
"""Stretches whose first steps the evidence names: a choice, as many as one looks up by hand."""
WORDS_TOLD = ", ".join(EVALUATION_WORDS)
_SQL_WORDS = " or ".join(f"name ilike '%{word}%'" for word in EVALUATION_WORDS)


def find(view: FindingsView) -> list[Finding]:
    """Time in evaluation."""
    clock, evaluations = view.clock, view.once(read_evaluations)
    passes, found, held = evaluations.named, evaluations.found, evaluations.held
    if not view.table("hints").num_rows and not found.any():
        raise Unavailable(
            'no stretch of the run is named, so evaluation cannot be told from training: put `with run.phase("eval"):` '
            "around it"
        )
    claimed_ps, total_ps = held.by_step, held.total_ps
    if total_ps < LEAST_SHARE * clock.wall_ps:
        return []
    n = passes.num_rows or len(find_stretches(clock, found))
    share, train_steps = total_ps / clock.wall_ps, int((claimed_ps == 0).sum())
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
            evidence=_evidence(passes) if passes.num_rows else _evidence_of_steps(view, found),
            confidence="high" if passes.num_rows else "medium",
            wrong_if="the evaluation steers the training and cannot be rarer",
        )
    ]


def _evidence_of_steps(view: FindingsView, found: Bools) -> tuple[Evidence, ...]:
    """The steps of phases that nobody named."""
    clock = view.clock
    stretches = find_stretches(clock, found)
    firsts = ", ".join(str(clock.step[one.first]) for one in stretches[:LISTED])
    return (
        Evidence(
            f"{format_count(int(found.sum()))} steps in {format_count(len(stretches))} stretches ran no backward pass",
            "steps",
            f"select host, step, start_ps, dur_ps from steps where step in ({firsts}) order by dur_ps desc",
        ),
    )


def _evidence(passes: pa.Table) -> tuple[Evidence, ...]:
    longest_ps = pc.max(passes.column("dur_ps")).as_py()
    return (
        Evidence(
            f"{format_count(passes.num_rows)} evaluations, the longest {format_ps(longest_ps)}",
            "hints",
            f"select host, name, first_step, last_step, dur_ps from hints where {_SQL_WORDS} order by dur_ps desc",
        ),
    )
