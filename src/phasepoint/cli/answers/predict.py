"""`phasepoint predict`."""

from typing import Annotated

import typer

from phasepoint.cli.options import AsJson

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
Args = Annotated[
    str | None, typer.Option("--args", metavar="SHAPES", help="A function's arguments: 'f32[32,784] f32[784,10]'.")
]
ArgsFrom = Annotated[
    str | None,
    typer.Option("--args-from", metavar="NAME", help="Where the file holds the function's arguments, or makes them."),
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
    from phasepoint.cli.console import busy, result_console, write_notes
    from phasepoint.cli.opening import open_converted, progress_bar
    from phasepoint.learn.predict.predict import predict_programs, read_what
    from phasepoint.learn.predict.target import resolve_target

    resolve_target(device)  # first, so that a wrong name fails before anything is read or compiled
    chosen = None
    if model is not None:
        from phasepoint.learn.models.model_file import read_model

        chosen = read_model(model)
    with busy(f"reading {what}"):
        programs = read_what(what, args=args, args_from=args_from, opened=open_converted)
    with progress_bar("predicting kernels") as advance:
        found = predict_programs(programs, device, model=chosen, trip_count=trip_count, progress=advance)
    write_notes(dict.fromkeys(note for one in found for note in one.notes))
    if as_json:
        from phasepoint.report.documents import to_json

        typer.echo(to_json("predict", {"device": found[0].device, "programs": found}))
        return
    from phasepoint.report.terminal.learn import render_predictions

    render_predictions(found, result_console(), compile_s=programs[0].compile_s)
