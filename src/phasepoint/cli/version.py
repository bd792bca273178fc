"""`phasepoint version`."""

import sys
from importlib.metadata import version as installed_version

import typer

from phasepoint.cli.options import AsJson


def version(as_json: AsJson = False) -> None:
    """Print the version of Phasepoint and of the Python it runs on."""
    number = installed_version("phasepoint")
    python = ".".join(map(str, sys.version_info[:3]))
    if as_json:
        from phasepoint.report.documents import to_json

        typer.echo(to_json("version", {"phasepoint": number, "python": python}))
    else:
        typer.echo(f"phasepoint {number} (Python {python})")
