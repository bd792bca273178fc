"""Which layers to name where many are found changed: a change in one layer shows in all above it."""

from collections.abc import Sequence

from phasepoint.core.arrays import Bools, Floats

_EXPLAINS = 0.7
"""Share of a layer's own change that changed layers inside must explain to be named in its place."""

_MOST_OF_TIME = 0.6
"""Share of a layer's time above which several changed layers inside are better told as the layer."""


def layers_to_name(layers: Sequence[str], changed: Bools, own_ps: Floats, run_ps: Floats) -> list[int]:
    """Positions of layers none of which is inside another, which together say where the change is.

    A layer gives way to the changed layers inside it if these explain it and are one, or a minor part of it.

    Args:
        layers: `[n_layers]`, paths, with every layer above each.
        changed: `[n_layers]`, whether each changed beyond noise.
        own_ps: `[n_layers]`, each one's own change.
        run_ps: `[n_layers]`, each one's time.
    """
    place = {layer: i for i, layer in enumerate(layers)}
    below: dict[int, list[int]] = {i: [] for i in range(len(layers))}
    roots: list[int] = []
    for layer, i in place.items():
        above = layer.rpartition("/")[0]
        (below[place[above]] if above in place else roots).append(i)
    named: list[int] = []
    waiting = roots[::-1]
    while waiting:
        one = waiting.pop()
        inside = [child for child in below[one] if changed[child]]
        if changed[one] and not _gives_way(one, inside, own_ps, run_ps):
            named.append(one)
        else:
            waiting += below[one][::-1]
    return named


def _gives_way(one: int, inside: Sequence[int], own_ps: Floats, run_ps: Floats) -> bool:
    explained = sum(float(own_ps[i]) for i in inside)
    if not inside or explained / float(own_ps[one] or 1) < _EXPLAINS:
        return False
    return len(inside) == 1 or sum(float(run_ps[i]) for i in inside) < _MOST_OF_TIME * float(run_ps[one])
