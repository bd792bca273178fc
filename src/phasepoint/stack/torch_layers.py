"""PyTorch's layers as they run: global module hooks mark the forward pass, gradients' nodes mark the backward pass.

A module's name is the class of the outermost module that runs and the path from there: `ResNet/layer1/0/conv1`. What a
module does between its sub-modules is its own. A gradient belongs to the layer whose forward code made its node: of
every tensor that enters or leaves a module, the node is marked once, by whoever made it.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from phasepoint.core.errors import RecordError
from phasepoint.stack.level_marks import OUTSIDE, LayerMarks
from phasepoint.stack.level_samples import LayerKey

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

    Args:
        marks: where they go.
        names: who numbers the layers.
    """

    def __init__(self, marks: LayerMarks, names: LayerNames) -> None:
        self.other_threads = 0
        self._marks, self._names = marks, names
        self._handles: list[Any] = []
        self._thread = 0

    def install(self) -> None:
        """Put the hooks in, for the modules that run on this thread.

        Raises:
            RecordError: this torch lacks the hooks.
        """
        import torch
        from torch.nn.modules import module
        from torch.optim import optimizer

        try:
            self._handles = [
                module.register_module_forward_pre_hook(self._before),
                module.register_module_forward_hook(self._after, always_call=True),
                optimizer.register_optimizer_step_pre_hook(self._before_step),
                optimizer.register_optimizer_step_post_hook(self._after_step),
            ]
        except (AttributeError, TypeError) as error:
            raise RecordError(
                f"torch {torch.__version__} lacks global module hooks ({error}); use 2.1 or newer"
            ) from error
        self._grad = torch.is_grad_enabled
        self._tensor = torch.Tensor
        self._compiling = torch.compiler.is_compiling
        self._at_end = torch.autograd.Variable._execution_engine.queue_callback
        self._thread = threading.get_ident()
        self.other_threads = 0

    def remove(self) -> None:
        """Take them out again."""
        while self._handles:
            self._handles.pop().remove()

    def _before(self, module: Any, args: tuple[Any, ...]) -> None:
        if self._compiling() or threading.get_ident() != self._thread:
            self.other_threads += 1
            return
        marks = self._marks
        caller = marks.innermost
        if self._grad():
            self._mark_nodes(args, caller)
        marks.enter(self._names.number(module, caller))

    def _after(self, module: Any, args: tuple[Any, ...], result: Any) -> None:
        if self._compiling() or threading.get_ident() != self._thread:
            return
        marks = self._marks
        ended = marks.innermost
        marks.leave()
        if self._grad():
            self._mark_nodes((result,), ended)

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
            if self._handles and marks.backward(key):
                self._at_end(marks.end_backward)

        return begin
