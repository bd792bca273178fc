"""`torch.utils.data.DataLoader` over a dataset that is a stream: workers between epochs, and a thread at any time.

Each worker of such a loader goes through the stream itself, and it is the dataset that leaves each a part. So another
number of workers is another order of samples, which the user must allow, and a dataset that does not look at its worker
gives each of them everything: an epoch of a trial that has more batches than the one before ends the trial.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from phasepoint.tune.adapters.stream import OneIterator, Stream
from phasepoint.tune.adapters.torch.batches import (
    OF_WORKERS,
    forks_threads,
    loader_knobs,
    torch_width,
    value_as_written,
)
from phasepoint.tune.knobs import Effect, Knob, Setting, Turn
from phasepoint.tune.pipeline import Width
from phasepoint.tune.source import Feed, Positions


class TorchStream(Stream):
    """A factory of such loaders; its arguments are those of `Stream`."""

    kind = "torch DataLoader of a stream"

    def __init__(
        self,
        make_loader: Callable[..., Any],
        written: Any,
        *,
        accepted: frozenset[str] | None = None,
        cpus: int,
        declared: Sequence[Knob] = (),
        reseed: int | None = None,
    ) -> None:
        super().__init__(make_loader, written, cpus=cpus, declared=declared, reseed=reseed)
        counts = tuple(range(max(cpus, written.num_workers) + 1))  # no more: each leaves a batch that is not full
        found = loader_knobs(written, counts, workers=Effect.ORDER, persisting=Effect.ORDER, turn=Turn.EPOCH)
        if not self._between:
            self._between = tuple(knob for knob in found if accepted is None or knob.name in accepted)
        known = {knob.name: value_as_written(written, knob) for knob in self._between}
        self.as_written = {**self.as_written, **known}

    @staticmethod
    def takes(loader: Any) -> bool:
        """Whether it is such a loader."""
        from torch.utils.data import DataLoader, IterableDataset

        return isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset)

    @property
    def knobs(self) -> Sequence[Knob]:
        """The thread's, and the loader's own; no workers where starting them might hang."""
        hangs = forks_threads(self._written)
        return [knob for knob in super().knobs if knob.name != "num_workers" or not hangs]

    def width(self, setting: Setting) -> Width:
        """Its workers; without any, the thread."""
        return torch_width(setting, self._written) if self._workers(setting) else super().width(setting)

    def _workers(self, setting: Setting) -> int:
        return torch_width(setting, self._written).workers

    def open(
        self, order: OneIterator, setting: Setting, positions: Positions, *, start: int, begins_epoch: bool = False
    ) -> Feed:
        """A view of the one iterator. PyTorch warns of more workers than cores; whether they help is what is tried."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return super().open(order, setting, positions, start=start, begins_epoch=begins_epoch)

    def _changed(self, setting: Setting) -> tuple[tuple[str, Any], ...]:
        changed, has_workers = super()._changed(setting), self._workers(setting)
        return tuple((name, value) for name, value in changed if has_workers or name not in OF_WORKERS)
