"""The replays beside a run: whether each did what the original did, and the whole run if all went so."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from phasepoint.core.units import format_ps
from phasepoint.replay.fast_forward import FastForward
from phasepoint.replay.nearby_replays import NearbyReplay
from phasepoint.report.html_tables import Cell, Column, data_table, text
from phasepoint.report.markup import Content, Markup, element

if TYPE_CHECKING:
    from phasepoint.replay.estimate_types import Estimate
    from phasepoint.replay.fidelity import Fidelity

_NOTHING = Markup("")


def replays_table(found: FastForward) -> Markup:
    """A row for each replay; empty where there is none."""
    blocks: list[Content] = [element("p", problem, class_="note") for problem in found.problems]
    if found.replays:
        columns = [
            text("replay"),
            text("phase"),
            text("steps"),
            text("verdict"),
            Column("step time", "step_ratio", is_figure=True),
            Column("op cosine", "op_cosine", is_figure=True),
            Column("the run if all went so", "after_ps", is_figure=True),
            text("what differs", "differs"),
        ]
        rows = [_row(one) for one in found.replays]
        aside = "each against the same steps of this run"
        blocks.append(element("h3", "Replays of this run ", element("small", aside)))
        blocks.append(data_table(columns, rows, label="Replays of this run"))
    return element("div", *blocks, id="replays") if blocks else _NOTHING


def _row(one: NearbyReplay) -> Sequence[Content | Cell]:
    record, fidelity = one.record, one.fidelity
    name = one.path.rstrip("/").rpartition("/")[2]
    times = None if fidelity is None else fidelity.times.ratio
    cosine = None if fidelity is None else fidelity.ops.cosine
    return (
        element("code", name, title=one.path),
        record.phase,
        f"{record.first_step:,} – {record.last_step:,}",
        _verdict(one),
        Cell("–" if times is None else f"× {times:.3f}", times),
        Cell("–" if cosine is None else f"{cosine:.4f}", cosine),
        _after(one.estimate),
        _differs(fidelity, one.problem),
    )


def _verdict(one: NearbyReplay) -> str:
    if one.record.status != "done":
        return one.record.status.replace("-", " ")
    return "–" if one.fidelity is None else one.fidelity.verdict


def _after(estimate: "Estimate | None") -> Cell:
    """`17.3 s (× 0.93)`, with the interval on hover; an unchanged replay has none."""
    if estimate is None:
        return Cell("–", None)
    after = estimate.after
    shown = f"{format_ps(after.value_ps)} (× {estimate.ratio:.2f})"
    if after.low_ps is None or after.high_ps is None:
        return Cell(shown, after.value_ps)
    interval = f"95 % interval {format_ps(after.low_ps)} – {format_ps(after.high_ps)}"
    return Cell(element("span", shown, title=interval), after.value_ps)


def _differs(fidelity: "Fidelity | None", problem: str | None) -> Content:
    if problem is not None:
        return element("span", problem, class_="wrap")
    if fidelity is None or not fidelity.differences:
        return "nothing that could be compared"
    whole = "; ".join(one.text for one in fidelity.differences)
    return element("span", ", ".join(dict.fromkeys(one.code for one in fidelity.differences)), title=whole)
