"""`phasepoint scale`: what takes a job to a pod, and how far predictions of that are off."""

import re
from pathlib import Path
from typing import Annotated

import typer

from phasepoint.cli.console import result_console, write_document, write_notes
from phasepoint.cli.opening import progress_bar
from phasepoint.cli.options import AsJson
from phasepoint.core.errors import UsageError

Measurements = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with files of published or measured runs.")]


def scale(*, as_json: AsJson = False) -> None:
    """Say what predictions of larger systems rest on: published runs, their number, and errors of those left out."""
    from phasepoint.scale.validate.rests import what_predictions_rest_on

    found = what_predictions_rest_on()
    if as_json:
        write_document("scale", {"sets": found})
        return
    from phasepoint.report.terminal.scale import render_sets

    render_sets(found, result_console())


Benchmark = Annotated[str, typer.Option("--benchmark", metavar="NAME", help="Of MLPerf Training: resnet, bert, …")]
System = Annotated[str, typer.Option("--system", metavar="NAME", help="The chips: tpu-v3, H100, …")]
Chips = Annotated[int, typer.Option("--chips", metavar="N", min=1, help="Chips of the system that was measured.")]
Measured = Annotated[
    str, typer.Option("--measured", metavar="TIME", help="What it took to train: 42.2min, 3.1h, 900s.")
]
To = Annotated[int, typer.Option("--to", metavar="N", min=2, help="Chips of the largest system.")]
Batch = Annotated[
    float | None, typer.Option("--batch", metavar="N", min=1, help="Samples of a step that was measured.")
]


def plan(
    *, benchmark: Benchmark, system: System, chips: Chips, measured: Measured, to: To, batch: Batch = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Say what larger systems will take, from one that was measured.

    phasepoint scale plan --benchmark resnet --system tpu-v3 --chips 16 --measured 42.2min --to 1024
    """
    from phasepoint.scale.plan.benchmark import MeasuredSystem, plan_benchmark
    from phasepoint.scale.validate.mlperf import shipped_scaling

    start = MeasuredSystem(benchmark, system, chips, _minutes(measured), batch)
    filled, rows = plan_benchmark(shipped_scaling(), start, to)
    if as_json:
        write_document("scale plan", {"start": filled, "systems": rows})
        return
    from phasepoint.report.terminal.scale import render_plan

    render_plan(filled, rows, result_console(), is_batch_known=batch is not None)


_TIME = re.compile(r"([0-9.]+)\s*(s|min|h|d)")
_MINUTES = {"s": 1 / 60, "min": 1.0, "h": 60.0, "d": 1440.0}


def _minutes(text: str) -> float:
    match = _TIME.fullmatch(text.strip())
    try:
        return float(match[1]) * _MINUTES[match[2]] if match is not None else float("")
    except ValueError as error:
        raise UsageError(
            f"--measured {text!r} is no time; expected a number with s, min, h or d, as in 42.2min"
        ) from error


def validate(folder: Measurements, *, as_json: AsJson = False) -> None:
    """Hold predictions of large systems against what was published: phasepoint scale validate DIR

    Reads whichever it holds of mlperf_training_results, tpu_pod_training, b200_training_steps, tpu_gemm and
    llm_iteration_times_single and _multi (.parquet), with the constants that came with the package.
    """
    from phasepoint.scale.validate.table import validate_folder

    with progress_bar("validating") as advance:
        answers = validate_folder(folder, advance)
    write_notes([f"{answer.file}: {note}" for answer in answers for note in answer.notes])
    if as_json:
        from phasepoint.report.documents import validation_document

        write_document("scale validate", validation_document(answers))
        return
    from phasepoint.report.terminal.scale import render_validation

    render_validation(answers, result_console())
