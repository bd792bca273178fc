"""`phasepoint scale`: what takes a job to a pod, and how far predictions of that are off."""

from pathlib import Path
from typing import Annotated

import typer

from phasepoint.cli.console import result_console, write_document, write_notes
from phasepoint.cli.opening import progress_bar
from phasepoint.cli.options import AsJson
from phasepoint.core.errors import UsageError

Measurements = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with files of published or measured runs.")]


def scale() -> None:
    """Plan a job on many chips: phasepoint scale validate DIR says how far such predictions are off."""
    raise UsageError("what of scale? There is: phasepoint scale validate DIR")


def validate(folder: Measurements, *, as_json: AsJson = False) -> None:
    """Hold predictions of large systems against what was published: phasepoint scale validate DIR

    Reads whichever it holds of mlperf_training_results, tpu_pod_training, b200_training_steps, llm_iteration_times_single
    and _multi, and tpu_gemm (.parquet), with the constants that came with the package.
    """
    from phasepoint.scale.validate.table import validate_folder

    with progress_bar("validating") as advance:
        answers = validate_folder(folder, advance)
    write_notes([f"{answer.file}: {note}" for answer in answers for note in answer.notes])
    if as_json:
        write_document("scale validate", {"files": answers})
        return
    from phasepoint.report.terminal.scale import render_validation

    render_validation(answers, result_console())
