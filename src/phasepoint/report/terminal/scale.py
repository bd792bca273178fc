"""Large systems in the terminal: how far predictions of them are off.

Its own file: a command's answer, as each of its neighbours here.
"""

from collections.abc import Sequence
from functools import partial

from rich.console import Console
from rich.text import Text

from phasepoint.core.units import PS_PER_S, format_bytes, format_count, format_ps, format_ratio
from phasepoint.learn.predict.tpu.topology import Topology
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.plans import program_columns, step_or_problem, technique_columns
from phasepoint.report.tables.terminal import grid
from phasepoint.report.words.layouts import experiment_sentence, program_sentence
from phasepoint.report.words.names import printable
from phasepoint.scale.plan.benchmark import MeasuredSystem, PlanRow
from phasepoint.scale.plan.program import ProgramRow
from phasepoint.scale.plan.recorded import Devices, RecordedRow, RecordedStep
from phasepoint.scale.plan.what_if import TechniqueLeftOut
from phasepoint.scale.validate.answer import Band, FileAnswer
from phasepoint.scale.validate.rests import ConstantSet


def render_validation(answers: Sequence[FileAnswer], console: Console) -> None:
    """Print the errors of every file, and of its parts."""
    for number, answer in enumerate(answers):
        if number:
            console.print()
        covered = "" if answer.coverage90 is None else f"; {format_ratio(answer.coverage90)} within the 90 % interval"
        console.print(
            Text(
                f"{printable(answer.file)}: off by {format_ratio(answer.mape)} in the mean, "
                f"{format_ratio(answer.median_ape)} in the median, {format_ratio(answer.worst_ape)} at worst "
                f"({format_count(answer.count)} {answer.counted}){covered}",
                style="bold",
            )
        )
        console.print(grid(_bands(answer)))


def render_sets(found: Sequence[ConstantSet], console: Console) -> None:
    """Print what predictions rest on."""
    columns = (
        TableColumn("constants", lambda row: printable(row.name)),
        TableColumn("fitted on", lambda row: printable(row.file)),
        TableColumn("rows", lambda row: format_count(row.count), is_figure=True),
        TableColumn("off by, left out", lambda row: format_ratio(row.mape), is_figure=True),
        TableColumn("fitted", lambda row: row.fitted),
    )
    console.print(grid(Table(columns, found)))


def render_plan(start: MeasuredSystem, rows: Sequence[PlanRow], console: Console, *, is_batch_known: bool) -> None:
    """Print what systems of every size will take."""
    last = rows[-1]
    said = last.prediction
    console.print(
        Text(
            f"{printable(start.benchmark)} on {format_count(last.chips)} × {printable(start.system)}: "
            f"{_minutes(said.time_min)} ({_minutes(said.low_min)} to {_minutes(said.high_min)}), "
            f"{last.speedup:.1f}× of {format_count(start.chips)} chips; "
            f"{_LIMITS[last.limited_by]}",
            style="bold",
        )
    )
    if not is_batch_known:
        console.print(
            Text(f"The measured batch was not given; {start.batch:,.0f}, usual there, is taken. Say it with --batch.")
        )
    columns = (
        TableColumn("chips", lambda row: format_count(row.chips), is_figure=True),
        TableColumn("batch", lambda row: f"{row.batch:,.0f}", is_figure=True),
        TableColumn("time", lambda row: _minutes(row.prediction.time_min), is_figure=True),
        TableColumn("90 % low", lambda row: _minutes(row.prediction.low_min), is_figure=True),
        TableColumn("high", lambda row: _minutes(row.prediction.high_min), is_figure=True),
        TableColumn("per chip", lambda row: f"{row.efficiency:.0%}", is_figure=True),
        TableColumn("samples", lambda row: f"{row.prediction.samples_ratio:.2f}×", is_figure=True),
        TableColumn("overhead", lambda row: f"{row.prediction.overhead_ratio:.2f}×", is_figure=True),
        TableColumn("waits", lambda row: f"{row.prediction.wait_ratio:.2f}×", is_figure=True),
    )
    console.print(grid(Table(columns, rows)))


def render_program_plan(what: str, topology: Topology, rows: Sequence[ProgramRow], console: Console) -> None:
    """Print what a step takes on a slice, by batch, and what a run does where that was asked for."""
    head = f"{printable(what)} on {topology.name} ({format_count(topology.chips)} chips)"
    console.print(Text(f"{head}: {program_sentence(rows)}", style="bold"))
    console.print(grid(Table(program_columns(rows), rows)))
    if experiment := experiment_sentence(rows, topology):
        console.print(Text(experiment))


def render_recorded_plan(
    what: str, devices: Devices, step: RecordedStep, rows: Sequence[RecordedRow], console: Console
) -> None:
    """Print what a recorded job's steps take on more devices."""
    last = rows[-1]
    console.print(
        Text(
            f"{printable(what)} on {printable(devices.name)}: a step of {format_ps(last.step_ps)} "
            f"({format_ps(last.low_ps)} to {format_ps(last.high_ps)}), {last.speedup:.2f}× the samples of one device",
            style="bold",
        )
    )
    told = "" if step.gradient_bytes is None else f"; gradients of {format_bytes(step.gradient_bytes)}"
    console.print(Text(f"From {format_count(step.steps)} steps of {printable(step.phase)}{told}."))
    names = list(last.parts_ps)
    columns = (
        TableColumn("devices", lambda row: format_count(row.devices), is_figure=True),
        TableColumn("step", lambda row: format_ps(row.step_ps), is_figure=True),
        TableColumn("low", lambda row: format_ps(row.low_ps), is_figure=True),
        TableColumn("high", lambda row: format_ps(row.high_ps), is_figure=True),
        *(TableColumn(name, partial(_part, name), is_figure=True) for name in names),
        TableColumn("samples/s", lambda row: f"{row.speedup:.2f}×", is_figure=True),
    )
    console.print(grid(Table(columns, rows)))


def render_what_if(
    what: str, topology: Topology, whole: ProgramRow, others: Sequence[TechniqueLeftOut], console: Console
) -> None:
    """Print a step as it is, and without each technique that it uses."""
    used = [other for other in others if other.is_used]
    console.print(
        Text(
            f"{printable(what)} on {topology.name} ({format_count(topology.chips)} chips), batch "
            f"{format_count(whole.batch)}: {step_or_problem(whole)} as it is",
            style="bold",
        )
    )
    if used:
        console.print(grid(Table(technique_columns(whole), used)))
    unused = [other.technique for other in others if not other.is_used]
    if unused:
        console.print(Text(f"The step is the same without {', '.join(unused)}: it does not use them."))


def _part(name: str, row: RecordedRow) -> str:
    return format_ps(row.parts_ps[name])


_LIMITS = {
    "samples": "held back most by the samples that a larger batch needs more",
    "overhead": "held back most by what a step takes beside its samples",
    "waiting": "held back most by waiting for the slowest host",
}


def _minutes(minutes: float) -> str:
    return format_ps(round(minutes * 60 * PS_PER_S))


def _bands(answer: FileAnswer) -> Table:
    columns = [
        TableColumn("", lambda band: printable(band.name)),
        TableColumn(answer.counted, lambda band: format_count(band.count), is_figure=True),
        TableColumn("mean", lambda band: format_ratio(band.mape), is_figure=True),
        TableColumn("median", lambda band: format_ratio(band.median_ape), is_figure=True),
    ]
    if answer.coverage90 is not None:
        columns.append(TableColumn("within 90 %", _covered, is_figure=True))
    for name in answer.by[0].beside if answer.by else ():
        columns.append(TableColumn(printable(name), partial(_beside, name), is_figure=True))
    return Table(tuple(columns), answer.by)


def _beside(name: str, band: Band) -> str:
    return format_ratio(band.beside[name])


def _covered(band: Band) -> str:
    return "" if band.coverage90 is None else format_ratio(band.coverage90)
