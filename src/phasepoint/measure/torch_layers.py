"""PyTorch's layers as they run: calls of modules mark the forward pass, gradients' nodes the backward pass.

A module's name is the class of the outermost module that runs and the path from there: `ResNet/layer1/0/conv1`. What a
module does between its sub-modules is its own. A gradient belongs to the layer whose forward code made its node: of
every tensor that enters or leaves a module, the node is marked once, by whoever made it.

What the hooks take in a call, measured on layers that do next to nothing, with the hooks and without, in turns.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from phasepoint.core.errors import RecordError
from phasepoint.core.units import PS_PER_NS
from phasepoint.measure.marks import OUTSIDE, LayerMarks, MarkCost, charge_marks
from phasepoint.measure.result import LayerKey

_MARKED = "phasepoint"
"""Key in a node's own dictionary: the node is marked."""


class LayerNames:
    """Numbers layers as they run and names them afterwards: key 2n is a forward pass, 2n + 1 its backward pass."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._layers: list[_Layer] = []
        self._roots: dict[str, int] = {}

    def number(self, module: Any, caller: int) -> int:
        """The forward key of a module that runs inside the layer with key `caller`."""
        found = self._numbers.get(id(module))
        if found is None:
            found = self._numbers[id(module)] = self._append(_Layer(module, caller, type(module).__name__))
        return found

    def number_of_name(self, name: str, direction: str) -> int:
        """The key of something that is no module: an optimizer."""
        for number, layer in enumerate(self._layers):
            if (layer.path, layer.direction) == (name, direction):
                return 2 * number
        return self._append(_Layer(None, OUTSIDE, name, name, direction))

    def key(self, number: int) -> LayerKey:
        """Name and direction of a key."""
        layer = self._layers[number // 2]
        direction = layer.direction or ("backward" if number % 2 else "forward")
        return LayerKey(layer.path or self._name(layer), direction)

    def kind(self, number: int) -> str:
        """Class of a key's module."""
        return self._layers[number // 2].kind

    def _name(self, layer: "_Layer") -> str:
        """Name a module from where it was first called, and with it those of its sub-modules that run."""
        if layer.caller == OUTSIDE:
            number = self._roots[layer.kind] = self._roots.get(layer.kind, -1) + 1
            top = f"{layer.kind}_{number}" if number else layer.kind
        else:
            caller = self.key(layer.caller).layer  # naming the caller may name this one
            top = layer.path or f"{caller}/{layer.kind}"
        for name, module in layer.module.named_modules():
            found = self._numbers.get(id(module))
            if found is not None and self._layers[found // 2].path is None:
                self._layers[found // 2].path = f"{top}/{name.replace('.', '/')}" if name else top
        return layer.path or top

    def _append(self, layer: "_Layer") -> int:
        self._layers.append(layer)
        return 2 * (len(self._layers) - 1)


@dataclass
class _Layer:
    """A module that ran. It is kept, because the id of one that is gone could be given to another."""

    module: Any
    caller: int
    kind: str
    path: str | None = None
    direction: str | None = None


class TorchHooks:
    """Puts marks into `marks` while installed.

    `Module.__call__` is wrapped, as torch.fx does to trace: torch's global module hooks do the same for four times the
    time, because they keep every module off its fast path.

    Args:
        marks: where they go.
        names: who numbers the layers.
    """

    def __init__(self, marks: LayerMarks, names: LayerNames) -> None:
        self.elsewhere = 0
        self._marks, self._names = marks, names
        self._removes: list[Callable[[], None]] = []

    def install(self) -> None:
        """Put them in, for the modules that run on this thread.

        Raises:
            RecordError: this torch lacks the hooks.
        """
        import torch
        from torch.optim import optimizer

        from phasepoint.recorder.seam.patch import patch_attribute

        self._tensor = torch.Tensor
        self.elsewhere = 0
        try:
            self._at_end = torch.autograd.Variable._execution_engine.queue_callback
            handles = [
                optimizer.register_optimizer_step_pre_hook(self._before_step),
                optimizer.register_optimizer_step_post_hook(self._after_step),
            ]
        except AttributeError as error:
            version = torch.__version__
            raise RecordError(f"torch {version} lacks what layers are told by ({error}); use 2.1 or newer") from error
        self._removes = [handle.remove for handle in handles]
        self._removes.append(patch_attribute(torch.nn.Module, "__call__", self._wrap_call))

    def remove(self) -> None:
        """Take them out again."""
        while self._removes:
            self._removes.pop()()

    def _wrap_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The wrapper of `Module.__call__`. It runs for every module, so what it needs is bound here."""
        import torch

        marks, number_of, mark_nodes = self._marks, self._names.number, self._mark_nodes
        enter, leave, records_gradients = marks.enter, marks.leave, torch.is_grad_enabled
        compiling, this_thread, thread = torch.compiler.is_compiling, threading.get_ident, threading.get_ident()

        @functools.wraps(call)
        def marked_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if this_thread() != thread or compiling():
                self.elsewhere += 1
                return call(module, *args, **kwargs)
            caller = marks.innermost
            if records_gradients():
                mark_nodes((*args, kwargs), caller)
            key = number_of(module, caller)
            enter(key)
            try:
                result = call(module, *args, **kwargs)
            finally:
                leave()
            if records_gradients():
                mark_nodes((result,), key)
            return result

        return marked_call

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._marks.enter(self._names.number_of_name(type(optimizer).__name__, "optimizer"))

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._marks.leave()

    def _mark_nodes(self, values: Iterable[Any], maker: int) -> None:
        """Mark the nodes of tensors that the code of a layer made; those of code outside end the layer before."""
        for value in values:
            node = value.grad_fn if isinstance(value, self._tensor) else None
            if node is not None:
                about = node.metadata
                if _MARKED not in about:
                    about[_MARKED] = True
                    node.register_prehook(self._marker(maker))
            elif isinstance(value, list | tuple):
                self._mark_nodes(value, maker)
            elif isinstance(value, Mapping):
                self._mark_nodes(value.values(), maker)

    def _marker(self, maker: int) -> Callable[[Any], None]:
        # A recomputed forward runs inside the backward pass, so its maker may be a backward key already.
        marks, key = self._marks, OUTSIDE if maker == OUTSIDE else maker | 1

        def begin(gradients: Any) -> None:
            if self._removes and marks.backward(key):
                self._at_end(marks.end_backward)

        return begin


_LAYERS, _ROUNDS = 100, 41
"""A choice: layers of the chain, and how often it runs; the first round does not count. About 0.1 s in all."""


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
