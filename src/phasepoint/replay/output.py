"""Where a replay writes, and that nothing of the original is in its way."""

import shutil
from pathlib import Path

from phasepoint.core.errors import OutputExistsError, RecordError, ReplayError, UsageError
from phasepoint.replay.plan import ReplayPlan

HANDSHAKE_NAME = "replay.handshake.jsonl"
SAVES_NAME = "saves"


def prepare_output(plan: ReplayPlan, out: str, *, force: bool) -> Path:
    """Make the replay's folder, empty, and return its absolute path.

    Raises:
        UsageError: `out` is a URL, or holds the original or a checkpoint of it.
        OutputExistsError: there is something at `out`, and no `force`; or something that is no run.
        RecordError: the folder cannot be made.
    """
    if "://" in out:
        raise UsageError(f"--out {out}: a replay is written to a folder of this machine")
    folder = Path(out).resolve()
    for place in (plan.run, *plan.protected, *([plan.checkpoint] if plan.checkpoint else [])):
        if "://" not in place and folder in (Path(place).resolve(), *Path(place).resolve().parents):
            raise UsageError(f"--out {out}: {place} of the original lies there; choose another place with --out")
    try:
        _clear(folder, out, force=force)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{error.filename or out}: {error.strerror}; choose another place with --out") from error
    return folder


def check_checkpoint(plan: ReplayPlan) -> None:
    """Refuse a plan whose checkpoint is not there any more.

    Raises:
        ReplayError: it is gone.
    """
    if plan.checkpoint is None or "://" in plan.checkpoint:
        return
    if not Path(plan.checkpoint).exists():
        raise ReplayError(
            f"{plan.checkpoint}: the checkpoint of step {plan.checkpoint_step} is not there any more; put it back, "
            "or replay from the start of the job with --from-start"
        )


def _clear(folder: Path, out: str, *, force: bool) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise OutputExistsError(f"{out}: exists and is no folder; choose another place with --out")
    if not any(folder.iterdir()):
        return
    is_run = (folder / "run.json").is_file() or (folder / HANDSHAKE_NAME).is_file()
    if not is_run:
        raise OutputExistsError(f"{out}: exists and is no run; choose another place with --out")
    if not force:
        raise OutputExistsError(f"{out}: exists already; give --force to replace it, or --out for another place")
    shutil.rmtree(folder)
