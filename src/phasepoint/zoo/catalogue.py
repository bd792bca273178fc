"""The programs of the corpus: the zoo, at several sizes and in both modes, and generated ones."""

import random
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from phasepoint.zoo.generated.generator import generated_programs
from phasepoint.zoo.modes import UPDATES, Program, forward_program, train_program
from phasepoint.zoo.specs import Net, Network, ProgramSpec, in_bfloat16

DEFAULT_GENERATED = 250
"""Programs, a choice: about a fifth of a corpus beside the 1,108 of the networks."""

LARGE = "large."
"""How the names of `large_programs` begin."""

# Each holds NETWORKS, a table.
ZOO = (
    "networks.dense",
    "networks.convolutional",
    "networks.transformers",
    "networks.recurrent",
    "networks.generative",
    "networks.gathering",
    "kernels.training",
    "kernels.normalisations",
    "kernels.signals",
    "kernels.linear_algebra",
    "kernels.ordering",
    "kernels.physics",
)

FAMILIES = (
    *("mlp", "convnet", "resnet", "inception", "mobile", "temporal", "encoder", "decoder", "attention", "recurrent"),
    *("state-space", "variational", "adversary", "flow", "recommender", "experts", "optimiser", "objective"),
    *("lattice", "normalisation", "image", "signal", "linear-algebra", "ordering", "chance", "quantised", "mixer"),
    *("graph-network", "stencil", "clustering", "particles", "field", "unet"),
)
"""All families, in the order in which a corpus takes them (`learn collect --limit`)."""

# Families whose structure no other has; the manual split tests on them. Their kinds of kernel (products, convolutions,
# reductions, gathers, element-wise chains) occur in the other families too, in other company and other proportions.
MANUAL_TEST_FAMILIES = (
    "mixer",  # dense layers over tokens: products on transposed arrays
    "graph-network",  # gathers and scatters along random edges carry the work
    "stencil",  # no parameters, no products: slices, rolls and sums of neighbours, many steps
    "clustering",  # distances of all points to few centres; wide and flat products, then arg-minima
    "particles",  # all pairs: three-dimensional broadcasts, reductions over the middle axis
    "field",  # sines of many frequencies, derivatives of derivatives, products along rays
    "unet",  # convolutions with skips concatenated, attention over pixels, a time embedding
)


GROWTH: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("batch", "points", "tokens", "rays", "queries"), (2, 4, 8, 16)),
    **dict.fromkeys(("width", "hidden", "inner", "columns", "nodes", "edges", "particles"), (1, 2, 4)),
    **dict.fromkeys(("side", "length", "inputs", "rows"), (1, 2)),
}
"""Keys of a size → by how much it grows on an accelerator: drawn, so that sizes are not all of one proportion. What is
not here stays: depths, steps, heads, windows."""


def large_programs(*, seed: int = 0) -> tuple[ProgramSpec, ...]:
    """Every network in two sizes as accelerators are given, half of them in bfloat16.

    Args:
        seed: of how much each size grows.
    """
    found = []
    for network in zoo_networks():
        for place in sorted({0, len(network.sizes) - 1}):
            draw = random.Random(f"{seed} {network.family} {network.name} {place}")
            size = {key: value * draw.choice(GROWTH.get(key, (1,))) for key, value in network.sizes[place].items()}
            half, update = draw.random() < 0.5, UPDATES[place % len(UPDATES)]
            found += [_spec(network, size, mode, update=update, half=half, prefix=LARGE) for mode in network.modes]
    return tuple(found)


def corpus_programs(*, seed: int = 0, generated: int = DEFAULT_GENERATED) -> tuple[ProgramSpec, ...]:
    """All programs of the corpus; nothing is traced, and JAX is not imported, before a program's `build`.

    Args:
        seed: of the generated programs; the zoo does not depend on it.
        generated: how many programs are generated.

    Returns:
        In an order of which every beginning is an even sample: the first sizes of all networks come before the second
        ones, and the generated programs lie between them. Names are unique.
    """
    drawn = generated_programs(generated, seed=seed)
    placed = [*_placed_zoo(), *(((place + 0.5) / generated, spec) for place, spec in enumerate(drawn))]
    return tuple(spec for _, spec in sorted(placed, key=lambda pair: pair[0]))


def zoo_networks() -> tuple[Network, ...]:
    """All networks written by hand."""
    modules = (import_module(f"phasepoint.zoo.{name}") for name in ZOO)
    networks = (network for module in modules for network in module.NETWORKS)
    return tuple(sorted(networks, key=lambda network: FAMILIES.index(network.family)))


def zoo_programs() -> tuple[ProgramSpec, ...]:
    """Every network at every size in every mode."""
    return tuple(spec for _, spec in _placed_zoo())


def _placed_zoo() -> Iterator[tuple[float, ProgramSpec]]:
    """Every program of the zoo with the share of its network's sizes that come before it."""
    for network in zoo_networks():
        for place, size in enumerate(network.sizes):
            update = UPDATES[place % len(UPDATES)]
            for half in (False, True) if place in network.half else (False,):
                for mode in network.modes:
                    yield place / len(network.sizes), _spec(network, size, mode, update=update, half=half)


def _spec(
    network: Network, size: Mapping[str, int], mode: str, *, update: str, half: bool, prefix: str = ""
) -> ProgramSpec:
    parts = [network.name, *(f"{key}{value}" for key, value in size.items()), *(["bf16"] if half else [])]
    variant = "-".join(parts)
    bound = network.integer_bound
    return ProgramSpec(
        name=f"{prefix}{network.family}.{variant}.{mode}",
        family=network.family,
        variant=variant,
        mode=mode,
        build=lambda: _build(network, size, mode, update=update, half=half),
        integer_bound=bound if isinstance(bound, int) else size[bound],
    )


def _build(network: Network, size: Mapping[str, Any], mode: str, *, update: str, half: bool) -> Program:
    """What a mode makes of one size of a network, in bfloat16 where asked."""
    net = network.make(**size, **network.options)
    if half:
        net = Net(net.forward, in_bfloat16(net.parameters), in_bfloat16(net.inputs))
    return forward_program(net) if mode == "forward" else train_program(net, update=update)
