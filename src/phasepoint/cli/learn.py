"""`phasepoint learn`."""

import typer

from phasepoint.cli.options import AsJson


def learn(*, as_json: AsJson = False) -> None:
    """List the performance models that came with the package, and the tasks that can be trained and evaluated.

    `phasepoint learn collect`, `learn train` and `learn evaluate` make, train and check one.
    """
    from phasepoint.cli.console import result_console
    from phasepoint.learn.model_file import builtin_models, read_model
    from phasepoint.learn.tasks import TASKS

    models = [read_model(f"builtin:{name}") for name in builtin_models()]
    if as_json:
        from phasepoint.report.documents import to_json
        from phasepoint.report.learn_document import models_document

        typer.echo(to_json("learn", models_document(models, TASKS)))
        return
    from phasepoint.report.learn_terminal import render_models

    render_models(models, TASKS, result_console())
