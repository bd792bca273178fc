"""JAX's post hook: the function that its compiled fast path calls after each cached execution."""

import sys
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

Told = Callable[[Any, Any, Any, Any], object]
"""Takes the function, its positional and named arguments, and its results."""

ReadHook = Callable[[], Told | None]
WriteHook = Callable[[Told], object]


@dataclass(frozen=True)
class Place:
    """Where JAX keeps the function, for all threads and for the one that asks; the thread's own goes before."""

    read: ReadHook
    write: WriteHook
    read_local: ReadHook
    write_local: WriteHook


class PostHook:
    """The function that JAX calls after each cached execution; the one that was there stays in force behind ours."""

    def __init__(self, executed: Told, ignored: Container[int], place: Place) -> None:
        self._executed = executed
        self._ignored = ignored
        self._place = place
        self._next: Told | None = None
        self._hook = self._call
        self._hook_alone = self._tell

    @staticmethod
    def find(executed: Told, ignored: Container[int]) -> "PostHook | None":
        """JAX's place for the function; None where this JAX has it elsewhere.

        Args:
            executed: called with function, arguments, named arguments and results.
            ignored: `id` of the functions that it is not called with.
        """
        state: Any = getattr(sys.modules.get("jax._src.api"), "_post_hook_state", None)
        if hasattr(state, "set_global"):
            return PostHook(
                executed, ignored, Place(state.get_global, state.set_global, state.get_local, state.set_local)
            )
        older: Any = getattr(sys.modules.get("jax._src.lib"), "jax_jit", None)  # seen in jax 0.6.2
        if not hasattr(older, "global_state"):
            return None
        here, local = older.global_state(), older.thread_local_state
        return PostHook(
            executed,
            ignored,
            Place(
                lambda: here.post_hook,
                lambda hook: setattr(here, "post_hook", hook),
                lambda: local().post_hook,
                lambda hook: setattr(local(), "post_hook", hook),
            ),
        )

    def arm(self) -> None:
        """Put ours in, if it is not there."""
        current = self._place.read()
        if current is not self._hook:
            self._next = current
            self._place.write(self._hook)

    def stay(self) -> None:
        """Stay in place when `jax_debug_nans` or `jax_debug_infs` is set, which puts JAX's own check there.

        Tracing sets them for its own thread and back (`jax.nn.relu` does): from then on JAX holds "no function" for
        that thread, which goes before the one for all threads.
        """
        config = sys.modules.get("jax._src.config")
        api = sys.modules.get("jax._src.api")
        everywhere = getattr(api, "_update_debug_special_global", None)
        in_thread = getattr(api, "_update_debug_special_thread_local", None)
        if everywhere is None or in_thread is None:
            return

        def update(value: object) -> None:
            everywhere(value)
            self.arm()

        def update_in_thread(value: object) -> None:
            in_thread(value)
            self._arm_thread()

        for name in ("debug_nans", "debug_infs"):
            add_hooks = getattr(getattr(config, name, None), "_add_hooks", None)
            if add_hooks is not None:
                add_hooks(update, update_in_thread)

    def _arm_thread(self) -> None:
        """JAX has just set this thread's function: ours goes before it."""
        current = self._place.read_local()
        if not callable(current):
            self._place.write_local(self._hook_alone)
            return
        check = current

        def tell_and_check(function: Any, args: Any, kwargs: Any, out: Any) -> None:
            self._tell(function, args, kwargs, out)
            check(function, args, kwargs, out)

        self._place.write_local(tell_and_check)

    def _tell(self, function: Any, args: Any, kwargs: Any, out: Any) -> None:
        if id(function) not in self._ignored:
            self._executed(function, args, kwargs, out)

    def _call(self, function: Any, args: Any, kwargs: Any, out: Any) -> None:
        if id(function) not in self._ignored:
            self._executed(function, args, kwargs, out)
        if self._next is not None:
            self._next(function, args, kwargs, out)
