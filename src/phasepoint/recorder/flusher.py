"""The one background thread: everything of recording that the job need not wait for.

It writes captures and parts, samples memory, watches that no window stays open for ever, and counts its own CPU time.
Each round is one guarded call of `round`, which tests call by hand; the thread only repeats it.

A recording that begins when the interpreter is ending (the job was too short to open it before) gets no thread:
Python 3.12 and newer refuse to start one then. Its rounds run where they are asked for, on the job's thread.
"""

import threading
from collections.abc import Callable

POLL_S = 0.5
"""Time between rounds: how soon the watchdog and a finished window are noticed. An idle round costs some 70 µs."""

CLOSE_LIMIT_S = 60.0
"""How long the end of the recording waits for the last round."""


class Flusher:
    """Calls `work(final=False)` every `POLL_S` until it is finished, then `work(final=True)` once.

    Args:
        work: one round; must not raise.
        poll_s: time between rounds.
        due_in_s: how soon a round is due before that, None where none is.

    Attributes:
        is_inline: whether there is no thread, and rounds run on the thread that asks for them.
    """

    def __init__(
        self,
        work: Callable[[bool], object],
        *,
        poll_s: float = POLL_S,
        due_in_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.is_inline = False
        self._work = work
        self._due_in_s = due_in_s
        self._poll_s = poll_s
        self._wake = threading.Event()
        self._done = threading.Event()
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="phasepoint-flusher", daemon=True)

    def start(self) -> None:
        """Start the thread, if the interpreter is not ending and the system lets it have one more."""
        if interpreter_is_ending():
            self.is_inline = True
            return
        try:
            self._thread.start()
        except RuntimeError:  # no more threads for this user, or at the interpreter's end
            self.is_inline = True

    def wake(self) -> None:
        """Let the next round begin now; without a thread, do it."""
        if self.is_inline:
            self._work(False)
        else:
            self._wake.set()

    def drain(self, limit_s: float) -> None:
        """Do a round, or let the thread do one and wait until it is done, for so long at most."""
        self._done.clear()
        self.wake()
        if not self.is_inline:
            self._done.wait(limit_s)

    def finish(self) -> None:
        """Do the last round and wait for it, for a minute at most: a file system that hangs must not hold the job."""
        self._finished = True
        if self.is_inline:
            self._work(True)
            return
        self._wake.set()
        self._thread.join(CLOSE_LIMIT_S)

    def _run(self) -> None:
        while not self._finished:
            due_s = self._due_in_s()
            self._wake.wait(self._poll_s if due_s is None else min(self._poll_s, due_s))
            self._wake.clear()
            if not self._finished:
                self._work(False)
                self._done.set()
        self._work(True)


def interpreter_is_ending() -> bool:
    """Whether the main thread has ended: handlers of `atexit` run, and threads are refused or never waited for."""
    return not threading.main_thread().is_alive()
