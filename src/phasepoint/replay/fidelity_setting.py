"""Where and with what replay and original ran: devices, versions, command, and the checkpoint that was taken up."""

from collections.abc import Iterator
from dataclasses import dataclass

from phasepoint.phases.analysis import Analysis
from phasepoint.replay.record import ReplayRecord
from phasepoint.store import Manifest


@dataclass(frozen=True)
class Setting:
    """Surroundings of both sides.

    Attributes:
        checkpoint: what the replay took up, null where it began at the start.
        differences: code and words of what is other.
        notes: what is other and need not matter.
    """

    checkpoint: str | None
    differences: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def compare_settings(original: Analysis, replay: Manifest, record: ReplayRecord) -> Setting:
    """Compare the manifests of both runs, and the checkpoint with those that the original wrote."""
    base = original.run.manifest
    return Setting(
        record.checkpoint, tuple(_differences(base, replay, original, record)), tuple(_notes(base, replay, record))
    )


def _differences(
    base: Manifest, replay: Manifest, original: Analysis, record: ReplayRecord
) -> Iterator[tuple[str, str]]:
    if base.devices and replay.devices and base.devices != replay.devices:
        yield "device", f"other devices: {_list(replay.devices)}, not {_list(base.devices)}"
    changed = [
        f"{name} {base.frameworks[name]} → {replay.frameworks[name]}"
        for name in sorted(base.frameworks.keys() & replay.frameworks.keys())
        if base.frameworks[name] != replay.frameworks[name]
    ]
    if base.python and replay.python and base.python != replay.python:
        changed.append(f"Python {base.python} → {replay.python}")
    if changed:
        yield "versions", f"other versions: {', '.join(changed)}"
    if record.checkpoint is not None:
        rows = original.tables["checkpoints"].select(["path", "step"]).to_pylist()
        steps = [row["step"] for row in rows if row["path"] == record.checkpoint]
        if not steps:
            yield "checkpoint", f"{record.checkpoint} is none of the original's checkpoints"
        elif all(step is not None and step + 1 != record.first_step for step in steps):
            told = f"{record.checkpoint} was written in step {steps[-1]}"
            yield "checkpoint", f"{told}, and the replay began with step {record.first_step}"


def _notes(base: Manifest, replay: Manifest, record: ReplayRecord) -> Iterator[str]:
    if base.created_on and replay.created_on and base.created_on != replay.created_on:
        yield f"the replay ran on {replay.created_on}, the original on {base.created_on}"
    if base.git_commit and replay.git_commit and base.git_commit != replay.git_commit:
        yield f"the job's code is of another commit: {replay.git_commit}, not {base.git_commit}"
    if not base.devices or not replay.devices:
        yield "the devices of one side are not known"
    if base.command and replay.command and base.command[1:] != replay.command[1:]:
        yield f"the command line is another one: {' '.join(replay.command)}"
    yield "environment variables (XLA_FLAGS and the like) are not recorded and were not compared"


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (f", … ({len(names)} in all)" if len(names) > 8 else "")
