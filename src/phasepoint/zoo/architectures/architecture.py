"""What an architecture is: a name, a task, and functions that build it and its inputs; torch is imported by these."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Inputs = Callable[[int], dict[str, Any] | tuple[Any, ...]]
"""From a batch size to what the network is called with: by name or by place."""

SEED = 0
"""Of weights and inputs: two runs measure the same network on the same data."""


@dataclass(frozen=True)
class Published:
    """What a library says of a network.

    Attributes:
        params: numbers that are trained.
        macs: multiply-accumulates of one sample; None where it does not say, or where they depend on the weights.
    """

    params: int
    macs: float | None


def _unpublished() -> None:
    return None


@dataclass(frozen=True)
class Architecture:
    """One network.

    Attributes:
        name: as the library has it.
        task: what it is for.
        library: the distribution that defines it; `phasepoint` where no library does.
        build: makes the module, in evaluation mode, with random weights.
        inputs: of a batch.
        published: what the library says of it.
        batches: whether a batch may hold more than one sample.
        is_random: whether its weights are drawn here, and may be changed so that they cost what trained ones do.
    """

    name: str
    task: str
    library: str
    build: Callable[[], Any]
    inputs: Inputs
    published: Callable[[], Published | None] = _unpublished
    batches: bool = True
    is_random: bool = True


def floats(*shape: int) -> Inputs:
    """One array of such samples, drawn from a normal distribution.

    Example:
        >>> [tuple(array.shape) for array in floats(3, 8, 8)(2)]
        [(2, 3, 8, 8)]
    """

    def make(batch: int) -> tuple[Any, ...]:
        import torch

        return (torch.randn(batch, *shape, generator=torch.Generator().manual_seed(SEED)),)

    return make


def integers(length: int, bound: int) -> Any:
    """A function from a batch size to `[batch, length]` integers in `[0, bound)`: tokens, or places in a table."""

    def make(batch: int) -> Any:
        import torch

        return torch.randint(bound, (batch, length), generator=torch.Generator().manual_seed(SEED))

    return make


def named(**parts: Callable[[int], Any]) -> Inputs:
    """Arguments by name, each a function of the batch size that gives an array, or a tuple that holds one."""

    def make(batch: int) -> dict[str, Any]:
        made = {name: part(batch) for name, part in parts.items()}
        return {name: value[0] if isinstance(value, tuple) else value for name, value in made.items()}

    return make


def seeded(build: Callable[[], Any]) -> Callable[[], Any]:
    """The same weights each time; the generator is left as it was."""

    def make() -> Any:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return build().eval()

    return make
