"""The batches of one feed of a `DataLoader`: taken over from its workers in the loop, or ahead of it on a thread."""

import queue
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from phasepoint.tune.adapters.torch.worker import read_time
from phasepoint.tune.source import BatchTime, WrongBatchError

_LOOK_S = 0.1
"""Between two looks of a thread that has a batch too many, at whether it is needed any more."""

_ENDING_S = 5.0
"""What workers together get to end in; PyTorch gives that to each, one after another."""


class TorchFeed:
    """An iterator of such a loader.

    Args:
        iterator: of the loader.
        times: of its batches, as its workers measured them.
        drawn: positions that its sampler has given and that were not taken yet.
        persists: whether its workers outlive the epoch.
        receive_ahead: batches that a thread takes over from workers before they are asked for.
    """

    was_ready = False

    def __init__(self, iterator: Any, times: Any, drawn: deque[int], *, persists: bool, receive_ahead: int = 0) -> None:
        self._times, self._drawn, self._persists = times, drawn, persists
        self._iterator = Receiver(iterator, receive_ahead) if receive_ahead else iterator

    def take(self, position: int) -> Any:
        """The next batch.

        Raises:
            WrongBatchError: it is another one.
        """
        self.was_ready = _is_ready(self._iterator)
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise
        except BaseException:
            self._drawn.popleft()
            raise
        if self._drawn.popleft() != position:
            raise WrongBatchError(f"the batch at position {position} is not the next one")
        return batch

    def time_of(self, position: int) -> BatchTime | None:
        """As the worker measured it."""
        return read_time(self._times, position)

    def close(self) -> None:
        """Let go of the iterator, unless its workers outlive the epoch."""
        iterator, self._iterator = self._iterator, iter(())
        if not self._persists:
            end_workers(iterator)
        elif isinstance(iterator, Receiver):
            iterator.stop()  # the next epoch has the workers for itself


class Receiver:
    """Takes finished batches over from workers on a thread: unpacking them, and opening the memory that they lie in.

    Args:
        iterator: of the loader.
        ahead: batches that may wait.
    """

    def __init__(self, iterator: Any, ahead: int) -> None:
        self._iterator = iterator
        self._received = queue.Queue[tuple[Any, BaseException | None]](ahead)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._receive, name="phasepoint-receive", daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether a batch waits."""
        return not self._received.empty()

    def __next__(self) -> Any:
        batch, error = self._received.get()
        if error is not None:
            self._received.put((None, error))  # as an iterator that has ended
            raise error
        return batch

    def stop(self) -> Any:
        """End the thread, which may wait for a batch to come; gives the iterator back."""
        self._is_over.set()
        self._thread.join()
        return self._iterator

    def _receive(self) -> None:
        error: BaseException | None = None
        while error is None and not self._is_over.is_set():
            batch = None
            try:
                batch = next(self._iterator)
            except BaseException as raised:  # noqa: BLE001 - it is raised where the loop asks for this batch
                error = raised
            while not self._is_over.is_set():
                with suppress(queue.Full):
                    self._received.put((batch, error), timeout=_LOOK_S)
                    break


def end_workers(iterator: Any) -> None:
    """On another thread: they finish the batches that they are making."""
    held = [iterator]
    del iterator
    with suppress(RuntimeError):  # the interpreter ends; PyTorch ends its workers then
        threading.Thread(target=_shut_down, args=(held,), name="phasepoint-close", daemon=True).start()


def _shut_down(held: list[Any]) -> None:
    iterator = held.pop()
    if isinstance(iterator, Receiver):
        iterator = iterator.stop()
    shut_down = getattr(iterator, "_shutdown_workers", None)
    if shut_down is not None:  # it waits for each worker in turn, so that many that hang would hold their memory long
        hung = threading.Timer(_ENDING_S, lambda: [worker.terminate() for worker in iterator._workers])
        hung.daemon = True
        hung.start()
        shut_down()
        hung.cancel()


def _is_ready(iterator: Any) -> bool:
    """Whether a batch is there; a worker's queue may hold a later one instead."""
    if isinstance(iterator, Receiver):
        return iterator.is_ready
    info = getattr(iterator, "_task_info", {}).get(getattr(iterator, "_rcvd_idx", None), ())
    results = getattr(iterator, "_data_queue", None)
    return len(info) == 2 or (results is not None and not results.empty())
