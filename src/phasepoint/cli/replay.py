"""`phasepoint replay`."""

import typer

from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Method, RunPath


def replay(path: RunPath, *, method: Method = DEFAULT_METHOD, as_json: AsJson = False) -> None:
    """List the checkpoints of a run: what is left of each, what is in it, and which phases it leads to.

    Next: `phasepoint replay plan RUN --phase NAME`, then `phasepoint replay run RUN --phase NAME -- COMMAND`.
    """
    from phasepoint.cli.console import busy, result_console, write_notes
    from phasepoint.cli.opening import open_analysis

    analysis = open_analysis(path, method)
    write_notes(analysis.run.problems)
    with busy("looking at checkpoints"):
        from phasepoint.replay.checkpoint_list import list_checkpoints

        listed = list_checkpoints(analysis)
    if as_json:
        from phasepoint.report.documents import to_json
        from phasepoint.report.replay_checkpoints_document import checkpoints_document

        typer.echo(to_json("replay", checkpoints_document(listed)))
        return
    from phasepoint.report.replay_checkpoints_terminal import render_checkpoints

    render_checkpoints(listed, result_console(), run=path)
