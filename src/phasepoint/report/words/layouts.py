"""Layouts of a transformer in words, the same wherever they are shown.

Its own file: words, as each of its neighbours here.
"""

from collections.abc import Iterable, Sequence

from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio
from phasepoint.scale.plan.layouts import BatchPlan, LayoutRow


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
