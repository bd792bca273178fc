"""`phasepoint devices`.

`phasepoint version`.
"""

import sys
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from phasepoint.cli.options import AsJson
from phasepoint.core.errors import NoDataError


def version(as_json: AsJson = False) -> None:
    """Print the version of Phasepoint and of the Python it runs on."""
    number = installed_version("phasepoint")
    python = ".".join(map(str, sys.version_info[:3]))
    if as_json:
        from phasepoint.report.documents import to_json

        typer.echo(to_json("version", {"phasepoint": number, "python": python}))
    else:
        typer.echo(f"phasepoint {number} (Python {python})")


Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="One device, as its driver reports it; cpu: this machine's, measured once."),
]


def devices(name: Name = None, as_json: AsJson = False) -> None:
    """Print what devices can do at most: peak rates, memory, links; with NAME each number with its source."""
    from phasepoint.cli.console import write_notes
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
        from phasepoint.report.documents import to_json

        typer.echo(to_json("devices", {"devices": specs}))
        return
    from phasepoint.cli.console import result_console

    if name is None:
        device_table.render(specs, result_console())
    else:
        device_table.render_one(specs[0], result_console())
