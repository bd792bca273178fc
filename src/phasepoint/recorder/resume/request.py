"""The child's side of a replay's protocol: what is asked of this process, and where it tells what it has seen of it.

`phasepoint replay run` starts the job's program with a request in its environment. The first recording of a process
takes it out of there, so that processes which the program starts by itself (an evaluation script) stay ordinary.
A process that cannot follow its request ends: going on would train into the user's files.
"""

import os
import sys
import time
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NoReturn

from phasepoint.core.errors import ReplayError

VARIABLE = "PHASEPOINT_REPLAY"
"""Environment variable that holds a `ReplayRequest` as JSON."""

Event = Literal[
    "begun",
    "resume-read",
    "skipped",
    "restored",
    "marked",
    "done",
    "ended-early",
    "ignored",
    "unrecorded",
    "redirected",
    "failed",
]
"""What a line of the handshake file says.

begun: the recording was begun. resume-read: the program has read `run.resume`. skipped, restored: a loop was brought
to the first step, by drawing batches or by the loader's state. marked: steps come from `mark_step`. done: the last
step is over and the run is written. ended-early: the recording was over before. ignored: the program went on to its
first step without reading `run.resume`. unrecorded: the program trains without recording. redirected: a save to a
place of the original went elsewhere. failed: the protocol could
not be followed.
"""


@dataclass(frozen=True)
class ReplayRequest:
    """What a replay is asked to do.

    Attributes:
        path: run to write, the replay.
        original: the run that is replayed.
        checkpoint: checkpoint to begin from; None: from the start of the job.
        checkpoint_step: recorder's step in which it was noted; None where that was before the first.
        first_step: number of the first step to do: the one after `checkpoint_step`, else 0.
        target_first, target_last: steps to capture.
        last_step: the loop ends after it.
        iterator_state: state of the loader after `checkpoint_step`, as `loader_state.LoaderState` writes it; or None.
        handshake: file to which this process appends what it has seen of the request, a JSON object a line.
        protected: folders and files that saves may not touch.
        saves: folder where such saves go instead.
        loop_place: batches that the loops had taken after `checkpoint_step`, as `loop_place.LoopPlace` writes it; None
            where it was not recorded: a batch is a step then.
        hopeless_ns: the replay ends early where the steps behind the target take longer; None: it never does.
        is_automatic: the original had no lines of Phasepoint: steps are seen as `phasepoint record -- …` sees them.
    """

    path: str
    original: str
    checkpoint: str | None
    checkpoint_step: int | None
    first_step: int
    target_first: int
    target_last: int
    last_step: int
    iterator_state: str | None
    handshake: str
    protected: tuple[str, ...]
    saves: str
    loop_place: str | None = None
    hopeless_ns: int | None = None
    is_automatic: bool = False

    @property
    def needs_restore(self) -> bool:
        """Whether the program must restore something: all but a replay from the start of the job."""
        return self.checkpoint is not None or self.first_step > 0

    def to_environ(self) -> str:
        """The value of `VARIABLE`."""
        import json

        return json.dumps(asdict(self))

    @staticmethod
    def from_environ(value: str) -> "ReplayRequest":
        """The request from the value of `VARIABLE`.

        Raises:
            ReplayError: it is no request, or its steps contradict each other.
        """
        import json

        try:
            request = ReplayRequest(**_checked(json.loads(value)))
        except (ValueError, TypeError) as error:
            raise ReplayError(
                f"{VARIABLE} holds no request of a replay: {error}; expected the JSON that `phasepoint replay run` "
                "sets. Unset it to run the program as usual"
            ) from error
        steps = (request.first_step, request.target_first, request.target_last, request.last_step)
        if not 0 <= steps[0] <= steps[1] <= steps[2] <= steps[3]:
            raise ReplayError(
                f"{VARIABLE}: first, target's first and last, and last step are {steps}; expected them in this order"
            )
        return request


@dataclass(frozen=True)
class Resume:
    """Where a program shall go on: `run.resume`.

    Attributes:
        checkpoint: checkpoint to restore, as it was noted in the original run.
        step: recorder's step in which it was noted; None where that was before the first.
        first_step: number of the first step to do.
        last_step: the loop ends after this one.
    """

    checkpoint: str | None
    step: int | None
    first_step: int
    last_step: int


@dataclass
class _Taken:
    """The request that a recording of this process has taken; one process follows one request, once."""

    request: ReplayRequest | None = None


_taken = _Taken()


def take_request() -> tuple[ReplayRequest | None, bool]:
    """The request of this process, and whether the caller is the first to take it.

    Returns:
        (None, True) in an ordinary process.

    Raises:
        SystemExit: the request cannot be read. An error that a program may catch would let it train on unrecorded.
    """
    value = os.environ.get(VARIABLE)
    if value is None:
        return _taken.request, _taken.request is None
    try:
        request = ReplayRequest.from_environ(value)
    except ReplayError as error:
        end_process(str(error))
    del os.environ[VARIABLE]
    _taken.request = request
    return request, True


def tell(request: ReplayRequest, event: Event, **facts: Any) -> None:
    """Append a line to the handshake file: the event, this process, the time, and what more there is to say."""
    import json

    line = json.dumps({"event": event, "pid": os.getpid(), "unix_ns": time.time_ns(), **facts})
    try:
        descriptor = os.open(request.handshake, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        end_process(f"{request.handshake}: the handshake cannot be written: {error.strerror or error}")


def give_up(request: ReplayRequest, event: Event, reason: str) -> NoReturn:
    """Tell why the request cannot be followed, and end this process."""
    tell(request, event, reason=reason)
    end_process(reason)


def end_process(reason: str) -> NoReturn:
    """End this process, saying why. Not by an `Exception`: a program that catches those would go on."""
    sys.stderr.write(f"phasepoint: replay ended: {reason}\n")
    raise SystemExit(ReplayError.exit_code)


def _checked(value: Any) -> dict[str, Any]:
    """The fields of a request, each of its type."""
    if not isinstance(value, dict):
        raise TypeError(f"found {type(value).__name__}, not an object")
    found: dict[str, Any] = {"loop_place": None, "hopeless_ns": None, "is_automatic": False, **value}
    names = {field.name for field in fields(ReplayRequest)}
    if set(found) != names:
        raise ValueError(f"fields {sorted(set(found) ^ names)} are missing or not known")
    found["protected"] = tuple(_typed(path, "protected", str) for path in found["protected"])
    for name in ("path", "original", "handshake", "saves"):
        _typed(found[name], name, str)
    for name in ("first_step", "target_first", "target_last", "last_step"):
        _typed(found[name], name, int)
    for name in ("checkpoint", "iterator_state", "loop_place"):
        if found[name] is not None:
            _typed(found[name], name, str)
    for name in ("checkpoint_step", "hopeless_ns"):
        if found[name] is not None:
            _typed(found[name], name, int)
    return found


def _typed(value: Any, name: str, type_: type) -> Any:
    if not isinstance(value, type_) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; expected {type_.__name__}")
    return value
