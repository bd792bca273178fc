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
        format: a name of `sources.checkpoints.FORMATS`; other where it is of no known one; None where nothing could be
            looked at.
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
    ("iterator", _words("iterator iterators iter dataloader dataloaders loader sampler samplers dataset grain")),
    ("prng", _words("rng rngs prng prngs prngkey random")),
    ("optimizer", _words("optimizer optimizers optim optims opt adam adamw sgd momentum")),
    (
        "other",
        _words(
            "step steps epoch epochs iteration iterations loss losses metrics metric metadata meta config args hparams "
            "hyperparameters version scheduler schedulers scaler callbacks loops time lr seed history best"
        ),
    ),
    ("model", _words("model models params param parameters module net network weights weight bias ema")),
)
"""What the words of a name tell, in the order in which they count."""

_WHOLE_NAMES: dict[str, Part] = {
    "key": "prng",
    "prng_key": "prng",
    "dropout_key": "prng",
    "state_dict": "model",
    "param_groups": "optimizer",
    "batch_stats": "model",
    "hyper_parameters": "other",
}
_WRAPPERS = _words("state states train_state trainstate app app_state default checkpoint ckpt payload trainer")
"""Names that hold the parts and are none."""

_PARAMETERS = _words("weight bias kernel scale embedding gamma beta running_mean running_var num_batches_tracked")
"""How the name of a parameter or of a layer's statistics ends."""

_RANDOM = _words("rng rngs prng_key rng_state")
_STEPS = re.compile(r"[./]")
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def parts_of(name: str) -> frozenset[Part]:
    """The parts of a job's state that a name tells of; `other` for counters and settings; none where it tells nothing.

    A name is a path (`train_state.params.Dense_0.kernel`). Its first component that is no mere wrapper (`state`, `app`)
    tells by its words (`torch_rng_state`); of several, the first of iterator, prng, optimizer, other, model counts, so
    that `model_optimizer` is an optimizer's. Where that tells nothing, a path that ends as parameters do (`weight`)
    is the model's. A random generator may stand deep within a model: `dropout.rngs.count`.
    """
    components = [one for one in _STEPS.split(name.lower()) if one]
    while len(components) > 1 and components[0] in _WRAPPERS:
        del components[0]
    if not components:
        return frozenset()
    parts = {_part_by_words(components[0])}
    if None in parts and components[-1] in _PARAMETERS:
        parts = {"model"}
    if not _RANDOM.isdisjoint(components):
        parts.add("prng")
    return frozenset(part for part in parts if part is not None)


def _part_by_words(component: str) -> Part | None:
    whole = _WHOLE_NAMES.get(component)
    if whole is not None:
        return whole
    words = set(_SEPARATORS.split(component))
    return next((part for part, telling in _WORDS if words & telling), None)


def tell_contents(names: Iterable[str]) -> CheckpointContents:
    """What is in a checkpoint by the names of all its parts: keys, items, tensors.

    A part that is named is there. A part that is not named is absent if every name tells of something, and not known
    otherwise: it may stand under a name that tells nothing.
    """
    told = [parts_of(name) for name in names]
    found = frozenset[Part]().union(*told)
    absent = False if told and all(told) else None
    has = [True if part in found else absent for part in ("model", "optimizer", "prng", "iterator")]
    return CheckpointContents(*has)
