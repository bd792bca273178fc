"""Counts a program's training steps by itself, and seeds a program that does not; no part of Phasepoint.

The benchmark copies this file into its own virtual environment, where every Python process imports it at its start.
It does nothing unless one of two variables is set:

- `STRANGERS_SEED`: an integer; `random`, NumPy and PyTorch are seeded with it when they are imported. A program that
  seeds nothing gives another result each time, and could not be compared with itself. Set in all runs alike.
- `STRANGERS_COUNT`: a folder; the process counts calls there as `PID.json` when it ends. Set in the run that counts
  the truth only.

Counted are, by patches of the frameworks' public functions: `optimizer:I:NAME` (calls of `step` of the I-th optimizer
made), `backward` (calls of `Tensor.backward` and `torch.autograd.backward`), `jit:NAME` (calls from Python of a
function given to `jax.jit` or `jax.pmap`, those while another function is traced left out), `keras` (training batches,
as Keras tells callbacks).
"""

import json
import os
import sys

_SEED = os.environ.get("STRANGERS_SEED")
_FOLDER = os.environ.get("STRANGERS_COUNT")

_counts: dict[str, int] = {}
_pid = [0]


def _count(name: str) -> None:
    if _pid[0] != os.getpid():
        _begin_process()
    _counts[name] = _counts.get(name, 0) + 1


def _begin_process() -> None:
    """First count of this process: forget a parent's, and write ours when the process ends."""
    _pid[0] = os.getpid()
    _counts.clear()
    import atexit
    from multiprocessing.util import Finalize

    Finalize(None, _write, exitpriority=1)  # a forked child of multiprocessing ends without `atexit`
    atexit.register(_write)


def _write() -> None:
    if _pid[0] == os.getpid():
        with open(os.path.join(str(_FOLDER), f"{os.getpid()}.json"), "w") as file:  # noqa: PTH118, PTH123
            json.dump(_counts, file)


def _torch_imported() -> None:
    import torch

    if _SEED is not None:
        torch.manual_seed(int(_SEED))
    if _FOLDER is None:
        return
    made = [0]
    create = torch.optim.Optimizer.__init__

    def init(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        create(self, *args, **kwargs)
        kind = type(self)
        self._strangers_name = f"optimizer:{made[0]}:{kind.__name__}"
        made[0] += 1
        if not hasattr(kind.step, "_strangers"):
            kind.step = _counted_step(kind.step)

    torch.optim.Optimizer.__init__ = init
    backward = torch.autograd.backward

    def count_backward(*args, **kwargs):  # type: ignore[no-untyped-def]
        _count("backward")
        return backward(*args, **kwargs)

    torch.autograd.backward = count_backward  # `Tensor.backward` calls it by this name


def _counted_step(step):  # type: ignore[no-untyped-def]
    import functools

    import torch

    @functools.wraps(step)
    def counted(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        if not torch.compiler.is_compiling() and not getattr(self, "_strangers_within", False):
            _count(getattr(self, "_strangers_name", "optimizer:?"))
            self._strangers_within = True  # a subclass's step calls its base's
            try:
                return step(self, *args, **kwargs)
            finally:
                self._strangers_within = False
        return step(self, *args, **kwargs)

    counted._strangers = True  # type: ignore[attr-defined]
    return counted


class _Counted:
    """A jitted function that counts its calls; in all else it is what it wraps."""

    def __init__(self, function: object, name: str) -> None:
        self._function = function
        self._name = name

    def __call__(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        from jax._src.core import trace_state_clean

        if trace_state_clean():
            _count(self._name)
        return self._function(*args, **kwargs)  # type: ignore[operator]

    def __get__(self, instance, owner=None):  # type: ignore[no-untyped-def]
        import types

        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> object:
        return getattr(self._function, name)


def _jax_imported() -> None:
    import functools

    import jax

    def counted(transform):  # type: ignore[no-untyped-def]
        @functools.wraps(transform)
        def make(*args, **kwargs):  # type: ignore[no-untyped-def]
            made = transform(*args, **kwargs)
            if not args:  # `@jax.jit(donate_argnums=0)`
                return lambda function: _Counted(made(function), f"jit:{_name_of(function)}")
            return _Counted(made, f"jit:{_name_of(args[0])}")

        return make

    if _FOLDER is not None:
        jax.jit, jax.pmap = counted(jax.jit), counted(jax.pmap)


def _name_of(function: object) -> str:
    while hasattr(function, "func"):  # a partial
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _keras_imported() -> None:
    if _FOLDER is None:
        return
    from keras.src.callbacks.callback_list import CallbackList

    end = CallbackList.on_train_batch_end

    def on_train_batch_end(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        _count("keras")
        return end(self, *args, **kwargs)

    CallbackList.on_train_batch_end = on_train_batch_end


def _numpy_imported() -> None:
    if _SEED is not None:
        import numpy as np

        np.random.seed(int(_SEED))


_AFTER = {"torch": _torch_imported, "jax": _jax_imported, "keras": _keras_imported, "numpy": _numpy_imported}


class _Finder:
    """Runs a function of `_AFTER` at the end of its module's import; other finders may ask it back."""

    _asked: set[str] = set()  # noqa: RUF012

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name not in _AFTER or name in self._asked:
            return None
        self._asked.add(name)
        try:
            specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            self._asked.discard(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: object) -> None:
            execute(module)  # type: ignore[arg-type]
            _AFTER[name]()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if _SEED is not None or _FOLDER is not None:
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
    if _SEED is not None:
        import random

        random.seed(int(_SEED))
