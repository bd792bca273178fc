"""A checkpoint of no format that is known here: it is there, and how large; whether it is whole cannot be told."""

from phasepoint.sources.checkpoint_facts import CheckpointFacts
from phasepoint.sources.checkpoint_place import CheckpointPlace


def is_other(place: CheckpointPlace) -> bool:
    """Anything is."""
    return True


def inspect_other(place: CheckpointPlace) -> CheckpointFacts:
    """Its size; one without a byte is incomplete."""
    size_bytes = place.size_bytes
    if size_bytes == 0:
        return CheckpointFacts("other", "incomplete", "it is empty", 0)
    return CheckpointFacts("other", "unknown", "it is there, in a format that cannot be checked", size_bytes)
