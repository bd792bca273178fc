"""`phasepoint devices`, `predict` and `version`: what is known without a run."""

import sys
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from phasepoint.cli.console import busy, result_console, write_document, write_notes
from phasepoint.cli.opening import open_converted, progress_bar
from phasepoint.cli.options import Args, ArgsFrom, AsJson
from phasepoint.core.errors import NoDataError


def version(as_json: AsJson = False) -> None:
    """Print the version of Phasepoint and of the Python it runs on."""
    number = installed_version("phasepoint")
    python = ".".join(map(str, sys.version_info[:3]))
    if as_json:
        write_document("version", {"phasepoint": number, "python": python})
    else:
        typer.echo(f"phasepoint {number} (Python {python})")


Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="One device, as its driver reports it; cpu: this machine's, measured once."),
]


def devices(name: Name = None, as_json: AsJson = False) -> None:
    """Print what devices can do at most: peak rates, memory, links; with NAME each number with its source."""
    from phasepoint.devices import device_spec, device_specs, unknown_device_note
    from phasepoint.report.terminal import devices as device_table

    if name is None:
        specs = device_specs()
    elif name.lower() == "cpu":
        from phasepoint.devices.cpu_peaks import measured_cpu_spec

        specs = (measured_cpu_spec(say=lambda text: write_notes([text])),)
    else:
        spec = device_spec(name)
        if spec is None:
            raise NoDataError(unknown_device_note(name))
        specs = (spec,)
    if as_json:
        write_document("devices", {"devices": specs})
        return
    if name is None:
        device_table.render(specs, result_console())
    else:
        device_table.render_one(specs[0], result_console())


What = Annotated[
    str,
    typer.Argument(
        metavar="WHAT", help="FILE.py:FUNCTION, a file of HLO (.txt, .hlo, .pb, .pb.gz), or a recorded run."
    ),
]
Device = Annotated[
    str,
    typer.Option("--device", metavar="NAME", help="On what: tpu-v4, H100 PCIe, … (phasepoint devices), or cpu."),
]
ModelPath = Annotated[
    str | None, typer.Option("--model", metavar="DIR", help="A trained model; left out: those of the package.")
]
TripCount = Annotated[
    int | None,
    typer.Option("--trip-count", metavar="N", min=0, help="Iterations of loops whose number is not known."),
]


def predict(
    what: What,
    *,
    device: Device,
    args: Args = None,
    args_from: ArgsFrom = None,
    model: ModelPath = None,
    trip_count: TripCount = None,
    as_json: AsJson = False,
) -> None:
    """Say how long a program takes on a device, without running it: phasepoint predict train.py:step --device tpu-v4

    Time with interval, what bounds it, kernel by kernel; and how far it is outside what the model learned from.
    """
    from phasepoint.learn.predict.predict import predict_programs
    from phasepoint.learn.predict.programs import read_what
    from phasepoint.learn.predict.types import resolve_target

    target = resolve_target(device)  # first, so that a wrong name fails before anything is read or compiled
    chosen = None
    if model is not None:
        from phasepoint.learn.models.model_file import read_model

        chosen = read_model(model)
    with busy(f"reading {what}"):
        programs = read_what(what, args=args, args_from=args_from, opened=open_converted, target=target)
    with progress_bar("predicting kernels") as advance:
        found = predict_programs(programs, device, model=chosen, trip_count=trip_count, progress=advance)
    write_notes(dict.fromkeys(note for one in found for note in one.notes))
    if as_json:
        write_document("predict", {"device": found[0].device, "programs": found})
        return
    from phasepoint.report.terminal.learn import render_predictions

    render_predictions(found, result_console(), compile_s=programs[0].compile_s)
