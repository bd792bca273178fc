"""The guard: whatever goes wrong inside the recorder stays inside the recorder.

Every hook that the job calls, and every round of the flusher, is a method marked `@guarded`. An exception in it is
counted, switches the recorder off (from then on the hooks return at once) and is told at the end of the job.
`BaseException`s that are no `Exception` (Ctrl-C, SystemExit, GeneratorExit) belong to the user and pass.
"""

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Guard:
    """Whether the recorder is on, and why not.

    Attributes:
        off: the recorder is switched off; every hook reads it first.
        reason: why, in one sentence; None while it is on.
        faults: exceptions caught.
    """

    def __init__(self) -> None:
        self.off = False
        self.reason: str | None = None
        self.faults = 0
        self._clean_up: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def when_off(self, clean_up: Callable[[], object]) -> None:
        """Call this once, on the thread of the fault, when the recorder switches itself off.

        It must be marked `@guarded_even_off` itself: a profiler must not be left running because closing it failed.
        """
        self._clean_up = clean_up

    def trip(self, error: Exception, where: str) -> None:
        """Count a fault; switch the recorder off at the first one."""
        with self._lock:
            self.faults += 1
            if self.off:
                return
            self.off = True
            self.reason = f"{type(error).__name__} in {where}: {error}"
        if self._clean_up is not None:
            self._clean_up()

    def call(self, where: str, action: Callable[[], object]) -> None:
        """Call `action`, whether the recorder is on or off; an `Exception` in it is a fault, which happened `where`."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the job must not be hurt, whatever it is
            self.trip(error, where)


class Guarded(Protocol):
    """What a class with guarded methods has."""

    guard: Guard


S = TypeVar("S", bound=Guarded)
P = ParamSpec("P")
R = TypeVar("R")


def guarded(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """Make a method a hook: it returns None when the recorder is off, and never raises an `Exception`."""
    return _hook(method, even_off=False)


def guarded_even_off(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """Like `guarded`, for what must be done (closing, writing down why) although the recorder is off."""
    return _hook(method, even_off=True)


def _hook(method: Callable[Concatenate[S, P], R], *, even_off: bool) -> Callable[Concatenate[S, P], R | None]:
    @wraps(method)
    def hook(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        guard = self.guard
        if guard.off and not even_off:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the job must not be hurt, whatever it is
            guard.trip(error, method.__qualname__)
            return None

    return hook
