"""What looking at a checkpoint tells, whatever format it is in; and what its parts' names say is in it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

CheckpointState = Literal["whole", "incomplete", "corrupt", "missing", "unknown"]
"""`unknown`: it cannot be told from here; it is no checkpoint's fault."""

Part = Literal["model", "optimizer", "prng", "iterator", "other"]


@dataclass(frozen=True)
class CheckpointContents:
    """Which parts of a job's state are in a checkpoint; None where its names do not tell.

    Attributes:
        has_model: parameters of the model.
        has_optimizer: state of the optimizer.
        has_prng: state of a random generator.
        has_iterator: state of the data iterator, loader or sampler.
    """

    has_model: bool | None = None
    has_optimizer: bool | None = None
    has_prng: bool | None = None
    has_iterator: bool | None = None


NOTHING_TOLD = CheckpointContents()


@dataclass(frozen=True)
class CheckpointFacts:
    """What was found where a checkpoint should be.

    Attributes:
        format: orbax, torch, dcp, safetensors; other where it is none of these; None where nothing could be looked at.
        state: whole, incomplete (parts are not there yet, or no more), corrupt (there, but not readable), missing, or
            unknown (cannot be told from here).
        problem: why it is not whole, in words; None where it is.
        size_bytes: bytes of all its files; None where it cannot be told.
        contents: what is in it.
    """

    format: str | None
    state: CheckpointState
    problem: str | None = None
    size_bytes: int | None = None
    contents: CheckpointContents = NOTHING_TOLD


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORDS: tuple[tuple[Part, frozenset[str]], ...] = (
    (
        "iterator",
        _words("iterator iterators iter dataloader dataloaders loader sampler samplers dataset data grain datapipe"),
    ),
    ("prng", _words("rng rngs prng prngs prngkey random")),
    ("optimizer", _words("optimizer optimizers optim optims opt adam adamw sgd momentum")),
    (
        "other",
        _words(
            "step steps epoch epochs iteration iterations loss losses metrics metric metadata meta config args hparams "
            "hyperparameters version scheduler schedulers scaler callbacks loops time lr seed history best"
        ),
    ),
    (
        "model",
        _words(
            "model models params param parameters module net network weights weight bias kernel embedding ema "
            "generator discriminator encoder decoder backbone"
        ),
    ),
)
_WHOLE_NAMES: dict[str, Part] = {
    "key": "prng",
    "keys": "prng",
    "prng_key": "prng",
    "dropout_key": "prng",
    "state_dict": "model",
    "param_groups": "optimizer",
    "batch_stats": "model",
    "hyper_parameters": "other",
}
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def part_of(name: str) -> Part | None:
    """The part of a job's state that a name tells of, `other` for counters, settings and the like; None: no telling.

    A name is told by its words (`torch_rng_state`, `optimizer.0`); of several, the first of iterator, prng, optimizer,
    other, model counts, so that `model_optimizer` is an optimizer's.
    """
    lowered = name.lower()
    whole = _WHOLE_NAMES.get(lowered)
    if whole is not None:
        return whole
    words = set(_SEPARATORS.split(lowered))
    return next((part for part, telling in _WORDS if words & telling), None)


def tell_contents(names: Iterable[str], *, complete: bool = True) -> CheckpointContents:
    """What is in a checkpoint by the names of its parts.

    A part that is named is there. A part that is not named is absent if every name tells of something, and not known
    otherwise: it may stand under a name that tells nothing.

    Args:
        names: names of the parts: top-level keys, items, tensors.
        complete: whether these are all names.
    """
    parts = {part_of(name) for name in names}
    absent = False if complete and parts and None not in parts else None
    found = [True if part in parts else absent for part in ("model", "optimizer", "prng", "iterator")]
    return CheckpointContents(*found)
