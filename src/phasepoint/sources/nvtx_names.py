"""What the texts of NVTX ranges mean: steps, operators of PyTorch, libraries, else the user's own names for stretches.

Source: torch, `torch/csrc/profiler/util.cpp` (`emit_nvtx` writes `name, seq = 1, op_id = 2, sizes = …`), and
an export of Nsight Systems 2026.2 (November 2026).
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

_TORCH = re.compile(r"(.+?), (?:seq|op_id|sizes) = ")
_SIZES = re.compile(r"\bsizes = (\[.*?\])(?:, input_op_ids|$)")
_SEQUENCE = re.compile(r"\bseq = (\d{1,18})\b")
_STEP = re.compile(
    r"((?:.*[^A-Za-z])?(?:step|train_step|training_step|iteration|iter|ProfilerStep|batch|phasepoint\.step)s?)"
    r"[\s_#:=/\-\[(]*(\d{1,18})[\])]?",
    re.IGNORECASE,
)
_LIBRARY = re.compile(
    r"nccl|cublas|cudnn|cusparse|cufft|cusolver|curand|nvshmem|cccl|thrust|cub\b|libkineto", re.IGNORECASE
)
_BACKWARD = re.compile(r"autograd::engine::evaluate_function|Backward\d*$|AccumulateGrad")
_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)")


class Range(NamedTuple):
    """What a range's text says.

    Attributes:
        name: the text without what differs from call to call.
        is_op: whether it is an operator of PyTorch.
        sequence: number that a forward operator shares with its backward, None where not given.
        shape: sizes of its inputs as PyTorch wrote them, None where not recorded.
    """

    name: str
    is_op: bool
    sequence: int | None
    shape: str | None


@lru_cache(maxsize=1 << 16)
def read_range(text: str) -> Range:
    """Take a range's text apart."""
    match = _TORCH.match(text)
    if match is None:
        return Range(text, False, None, None)
    sequence, sizes = _SEQUENCE.search(text), _SIZES.search(text)
    return Range(match[1], True, int(sequence[1]) if sequence else None, sizes[1] if sizes else None)


def is_library(domain: str) -> bool:
    """Whether an NVTX domain belongs to a library below the framework."""
    return _LIBRARY.search(domain) is not None


def direction_of(name: str) -> str | None:
    """`backward` or `optimizer` where an operator's name says so."""
    if _OPTIMIZER.search(name):
        return "optimizer"
    return "backward" if _BACKWARD.search(name) else None


def step_number(name: str) -> tuple[str, int] | None:
    """The words and the number of a range that may mark a step: `("iteration", 12)`; None for any other."""
    match = _STEP.fullmatch(name)
    return (match[1].strip(), int(match[2])) if match else None


def step_names(names: Iterable[str]) -> frozenset[str]:
    """Names that mark steps: of one wording, at least two different numbers; of several such wordings the one with
    most numbers, the first by the alphabet of equals."""
    numbered = {name: found for name in set(names) if (found := step_number(name)) is not None}
    words = Counter(word for word, _ in set(numbered.values()))
    repeated = sorted(word for word, count in words.items() if count > 1)
    if not repeated:
        return frozenset()
    chosen = max(repeated, key=lambda word: words[word])
    return frozenset(name for name, (word, _) in numbered.items() if word == chosen)
