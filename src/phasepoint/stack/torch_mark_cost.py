"""What the hooks take in a call, measured on layers that do next to nothing, with the hooks and without, in turns."""

from collections.abc import Callable
from typing import Any

import numpy as np

from phasepoint.core.units import PS_PER_NS
from phasepoint.stack.level_marks import LayerMarks, MarkCost, charge_marks
from phasepoint.stack.torch_layers import LayerNames, TorchHooks

_LAYERS = 100
_ROUNDS = 41


def calibrate_mark_cost(clock_ns: Callable[[], int], *, with_gradients: bool) -> MarkCost:
    """Medians over rounds of a chain of 100 layers that negate a number: about 0.1 s in all.

    Of a call's extra time the layer's own part is what the marks say less what the call takes without hooks.

    Args:
        clock_ns: the clock of the marks.
        with_gradients: whether the chain records gradients, and its backward pass is timed as well.
    """
    import torch

    class Small(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def forward(self, x: Any) -> Any:
            return x.neg()

    layers = [Small() for _ in range(_LAYERS)]
    marks = LayerMarks(clock_ns)
    hooks = TorchHooks(marks, LayerNames())
    rows = []
    with torch.set_grad_enabled(with_gradients):
        for _ in range(_ROUNDS):
            plain_ns = _time_chain(clock_ns, layers, torch.ones(1, requires_grad=with_gradients))
            marks.reset()
            hooks.install()
            try:
                hooked_ns = _time_chain(clock_ns, layers, torch.ones(1, requires_grad=with_gradients))
            finally:
                hooks.remove()
            taken = marks.take()
            charged = charge_marks(taken, [one * PS_PER_NS for one in taken.times], MarkCost())
            inside_ps = sum(time_ps for key, time_ps in charged.self_ps.items() if key >= 0 and key % 2 == 0)
            rows.append((*plain_ns, *hooked_ns, inside_ps))
    plain_ns, plain_back_ns, hooked_ns, hooked_back_ns, inside_ps = np.median(np.array(rows[1:]), axis=0)
    own_ps = (inside_ps - plain_ns * PS_PER_NS) / _LAYERS
    whole_ps = (hooked_ns - plain_ns) * PS_PER_NS / _LAYERS
    back_ps = (hooked_back_ns - plain_back_ns) * PS_PER_NS / _LAYERS
    return MarkCost(round(own_ps), round(whole_ps - own_ps), round(max(back_ps, 0)))


def _time_chain(clock_ns: Callable[[], int], layers: list[Any], x: Any) -> tuple[int, int]:
    """Nanoseconds of the chain's forward pass and of its backward pass, 0 where it has none."""
    begin_ns = clock_ns()
    for layer in layers:
        x = layer(x)
    middle_ns = clock_ns()
    if not x.requires_grad:
        return middle_ns - begin_ns, 0
    x.backward()
    return middle_ns - begin_ns, clock_ns() - middle_ns
