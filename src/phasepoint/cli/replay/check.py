"""`phasepoint replay check`."""

from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.console import busy, result_console, write_document, write_notes
from phasepoint.cli.opening import open_analysis, open_converted, refuse_shortfalls
from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Method, RunPath
from phasepoint.core.errors import NoDataError, ReplayError

if TYPE_CHECKING:
    from phasepoint.replay.fidelity.fidelity import Fidelity

_CANNOT_JUDGE = ("no-steps", "not-written")
"""What makes a comparison worthless; to be short and to be ended are a replay's nature, and its figures tell."""

ReplayPath = Annotated[str, typer.Argument(metavar="REPLAY", help="What `phasepoint replay run` wrote.")]
Strict = Annotated[bool, typer.Option("--strict", help="End with exit code 17 if the replay is not faithful.")]


def check(
    path: RunPath,
    replay: ReplayPath,
    *,
    method: Method = DEFAULT_METHOD,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Hold a replay against the run that it replays: ops, step times, programs, loss, devices.

    Says "faithful", or what is other: data, shapes, program, device, versions, a slower machine.
    """
    found = _compare(path, replay, method, strict=strict)
    write_notes(found.notes)
    if as_json:
        write_document("replay check", found)
    else:
        from phasepoint.report.terminal.replay_results import render_fidelity

        render_fidelity(found, result_console())
    if strict and not found.faithful:
        what = ", ".join(one.code for one in found.differences) or "nothing could be compared"
        raise ReplayError(f"{replay}: {found.verdict}: {what}; expected a faithful replay (--strict)")


def _compare(path: str, replay: str, method: str, *, strict: bool) -> "Fidelity":
    original = open_analysis(path, method)
    run = open_converted(replay)
    with busy("comparing"):
        from phasepoint.replay.fidelity.fidelity import compare_replay
        from phasepoint.replay.folder import read_replay

        record = read_replay(run.path)
        if record is None:
            raise NoDataError(
                f"{run.path}: is no replay: replay.json is missing; expected what `phasepoint replay run` wrote. "
                "Any two runs are compared by `phasepoint diff`"
            )
        if strict:
            from phasepoint.summary.enough import find_shortfall, shortfall_of

            whole = find_shortfall(original.run, original.clock, original.tables)
            short = [(path, whole), (replay, shortfall_of(run))]
            refuse_shortfalls("--strict", [one for one in short if one[1] is not None and one[1].code in _CANNOT_JUDGE])
        return compare_replay(original, run, record)
