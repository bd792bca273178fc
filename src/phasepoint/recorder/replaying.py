"""A recording that is a replay: its loops begin with the first step asked for and end after the last one.

It stands beside the ordinary loop (`recording.Steps`) and not inside of it, so that recording pays nothing for it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn, TypeVar

from phasepoint.recorder.recorder import Recorder, Status
from phasepoint.recorder.resume import Event, ReplayRequest, Resume, end_process, tell
from phasepoint.recorder.skipping import Skipping

Batch = TypeVar("Batch")


class Replaying:
    """Leads a program through its replay.

    Args:
        request: what is asked for.
        recorder: the recording's hooks.
        close: ends the recording; called once, with its status.

    Attributes:
        is_over: whether the last step was done: all loops are empty from then on.
    """

    def __init__(self, request: ReplayRequest, recorder: Recorder, close: Callable[[Status], object]) -> None:
        self.is_over = False
        self._request = request
        self._recorder = recorder
        self._close = close
        self._skipping = Skipping(request)
        self._was_read = False
        self._has_marks = False
        tell(request, "begun", path=request.path)

    @property
    def resume(self) -> Resume | None:
        """Where to go on; None where nothing is to be restored. Reading it tells that the program follows."""
        request = self._request
        if not self._was_read:
            self._was_read = True
            tell(request, "resume-read")
        if not request.needs_restore:
            return None
        self._skipping.program_restores()
        return Resume(request.checkpoint, request.checkpoint_step, request.first_step, request.last_step)

    def iterate(self, loader: Iterable[Batch], *, resume: bool, loop: int | None) -> Iterator[Batch]:
        """The loop itself: like the ordinary one, within the steps asked for."""
        if self.is_over:
            return
        self._check()
        batches = self._skipping.take(loader, resume=resume, loop=loop)
        if batches is None:
            return
        recorder = self._recorder
        try:
            while not self.is_over:
                recorder.ask()
                if self._ends():
                    return
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                recorder.got()
                yield batch
        finally:
            if not self.is_over:
                recorder.end_loop()
                self._ends()

    def mark(self) -> None:
        """A step of a job without a loop begins. After the last one the process ends: there is no loop to end."""
        if not self._has_marks:
            self._has_marks = True
            tell(self._request, "marked")
            self._skipping.is_there = True
        self._check()
        if not self.is_over:
            self._recorder.ask()
        if self.is_over or self._ends():
            raise SystemExit(0)
        self._recorder.got(waited=False)

    def left(self, error: BaseException | None) -> None:
        """The recording's block was left, normally or by an error."""
        if self.is_over:
            return
        self.is_over = True
        request, step = self._request, self._recorder.next_step
        if error is not None and not isinstance(error, SystemExit):
            tell(request, "ended-early", reason=f"the program failed: {type(error).__name__}: {error}"[:1000])
        elif not self._skipping.is_there:
            reason = (
                f"the job ended before step {request.first_step}, where the replay begins: its loops with resume=True "
                f"had {self._skipping.drawn} batches in all. Loops with resume=True must run as they did in the "
                "original, from the job's first one on"
            )
            tell(request, "ended-early", reason=reason)
        elif step <= request.last_step:
            reason = f"the job ended before step {step}; the replay's last one is {request.last_step}"
            tell(request, "ended-early", reason=reason)
        else:
            tell(request, "done", step=request.last_step)

    def _check(self) -> None:
        """End the process where the program or the recorder does not do what the replay needs."""
        if self._request.needs_restore and not self._was_read:
            self._give_up(
                "ignored",
                f"the program began its first step without reading run.resume; expected it to restore "
                f"{self._request.checkpoint} before its first loop (docs/replay.md)",
            )
        self._check_recorder()

    def _check_recorder(self) -> None:
        if self._recorder.guard.off:
            self._give_up("failed", f"the recorder switched itself off: {self._recorder.guard.reason}")

    def _ends(self) -> bool:
        """Whether the last step is over; if so the run is written and the replay done."""
        self._check_recorder()
        if self._recorder.next_step <= self._request.last_step:
            return False
        self.is_over = True
        self._close("ok")
        tell(self._request, "done", step=self._request.last_step)
        return True

    def _give_up(self, event: Event, reason: str) -> NoReturn:
        self.is_over = True
        self._close("failed")
        tell(self._request, event, reason=reason)
        end_process(reason)
