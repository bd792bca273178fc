"""Plans in words, the same wherever they are shown: layouts of a transformer, steps of a program.

Its own file: words, as each of its neighbours here.
"""

from collections.abc import Iterable, Sequence

from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio
from phasepoint.learn.predict.tpu.compile import NO_COMPILER
from phasepoint.learn.predict.tpu.topology import Topology
from phasepoint.scale.plan.layouts import BatchPlan, LayoutRow
from phasepoint.scale.plan.program import ProgramRow


def plan_sentence(rows: Sequence[LayoutRow]) -> str:
    """What the fastest layout takes, and what holds it back."""
    if not rows:
        return "no layout fits"
    best = fastest(rows)
    limit = best.limited_by
    return (
        f"{best.tokens_per_s:,.0f} tokens/s with {layout_words(best)} and a batch of {format_count(best.batch)}: "
        f"a step of {format_ps(best.step_ps)} ({format_ps(best.low_ps)} to {format_ps(best.high_ps)}), "
        f"{format_ratio(best.utilization)} of the peak; held back most by {limit} "
        f"({format_ratio(best.parts_ps[limit] / best.step_ps)})"
    )


def memory_lines(plans: Sequence[BatchPlan]) -> Iterable[str]:
    """For each batch how many layouts fit, and what a faster one lacks, or the smallest."""
    for plan in plans:
        head = (
            f"Batch {format_count(plan.batch)}: {format_count(plan.fitting)} of {format_count(plan.priced)} layouts fit"
        )
        if plan.smallest is not None:
            least = plan.smallest
            part = max(least.memory, key=least.memory.__getitem__)
            missing = format_bytes(least.memory_bytes - least.limit_bytes)
            yield (
                f"{head}; {layout_words(least)} needs least, {missing} too much, "
                f"{format_bytes(least.memory[part])} of it {part}: take more devices or a smaller batch"
            )
        elif plan.faster is not None:
            gain = plan.best[0].step_ps / plan.faster.step_ps - 1
            missing = format_bytes(plan.faster.memory_bytes - plan.faster.limit_bytes)
            yield f"{head}; {layout_words(plan.faster)}, faster by {format_ratio(gain)}, lacks {missing}"
        else:
            yield f"{head}; none that does not would be faster"


def layout_words(row: LayoutRow) -> str:
    """`tensor 4, remat full`."""
    return ", ".join(f"{name} {value}" for name, value in row.layout.items())


def fastest(rows: Sequence[LayoutRow]) -> LayoutRow:
    """The layout with most tokens a second."""
    return max(rows, key=lambda row: row.tokens_per_s)


def program_sentence(rows: Sequence[ProgramRow]) -> str:
    """What the batch with most samples a second takes, and how much of it links hold up."""
    fitting = [row for row in rows if row.fits]
    if not fitting:
        return "no batch fits"
    best = max(fitting, key=lambda row: row.samples_per_s)
    share = best.exposed_ps / best.step_ps if best.step_ps else 0.0
    return (
        f"{best.samples_per_s:,.0f} samples/s with a batch of {format_count(best.batch)}: a step of "
        f"{format_ps(best.step_ps)} ({format_ps(best.low_ps)} to {format_ps(best.high_ps)}), of which links "
        f"hold up {share:.0%}"
    )


def experiment_sentence(rows: Sequence[ProgramRow], topology: Topology) -> str:
    """The smallest experiment that would narrow the interval most; empty where no batch fits."""
    fitting = [row for row in rows if row.fits]
    if not fitting:
        return ""
    best, name = max(fitting, key=lambda row: row.samples_per_s), topology.generation.name
    if NO_COMPILER in best.notes:
        return "To narrow the interval: install the TPU's own compiler, pip install 'phasepoint[tpu]'."
    if best.widest == "links":
        few = "x".join(str(min(size, 4)) for size in topology.shape)
        return f"To narrow the interval: time this step on {name}:{few}; what its links hold up was never measured."
    each = format_count(max(best.batch // best.devices, 1))
    return (
        f"To narrow the interval: time this step on one device of {name}, with a batch of {each}; its kernels are "
        f"known to {format_ps(best.low_ps)} to {format_ps(best.high_ps)}."
    )
