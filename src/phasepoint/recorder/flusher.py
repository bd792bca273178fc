"""The one background thread: everything of recording that the job need not wait for.

It writes captures and parts, samples memory, watches that no window stays open for ever, and counts its own CPU time.
Each round is one guarded call of `round`, which tests call by hand; the thread only repeats it.
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
    """

    def __init__(
        self,
        work: Callable[[bool], object],
        *,
        poll_s: float = POLL_S,
        due_in_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._work = work
        self._due_in_s = due_in_s
        self._poll_s = poll_s
        self._wake = threading.Event()
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="phasepoint-flusher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Let the next round begin now."""
        self._wake.set()

    def finish(self) -> None:
        """Do the last round and wait for it, for a minute at most: a file system that hangs must not hold the job."""
        self._finished = True
        self._wake.set()
        self._thread.join(CLOSE_LIMIT_S)

    def _run(self) -> None:
        while not self._finished:
            due_s = self._due_in_s()
            self._wake.wait(self._poll_s if due_s is None else min(self._poll_s, due_s))
            self._wake.clear()
            if not self._finished:
                self._work(False)
        self._work(True)
