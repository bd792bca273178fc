"""PyTorch at the levels: nothing at M, marks of layers at L, the same under Kineto at K.

On CPU a mark is a reading of the monotonic clock. On CUDA it is an event on the current stream besides, so that a
layer's time is the device's and nothing waits for it.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.units import PS_PER_MS, PS_PER_NS
from phasepoint.measure.marks import OUTSIDE, LayerMarks, MarkCost, Marks, charge_marks
from phasepoint.measure.result import InstrumentReading, LayerKey, LayerOpKey, LayerOpTime, LayerTime, Level
from phasepoint.measure.torch_layers import LayerNames, TorchHooks, calibrate_mark_cost

_ANNOUNCEMENT = "phasepoint.charged#"


class TorchInstrument:
    """`Instrument` of PyTorch; torch must have been imported.

    Args:
        clock_ns: what layers are timed by on CPU. `time.thread_time_ns`, with the same in `LevelClocks`, measures work
            on one thread in processor time, for machines that others use.
    """

    framework = "torch"

    def __init__(self, *, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        from phasepoint.recorder.profilers.torch.session import TorchSession

        self._session = TorchSession()
        self._names = LayerNames()
        self._clock_ns = clock_ns
        self._marks = LayerMarks(clock_ns)
        self._hooks = TorchHooks(self._marks, self._names)
        self._costs: dict[bool, MarkCost] = {}
        self._level: Level = "M"
        self._step: AbstractContextManager[object] | None = None
        self._with_events = False

    def version(self) -> str:
        """torch's version."""
        return str(sys.modules["torch"].__version__)

    def devices(self) -> list[str]:
        """CUDA devices if the job uses them, else the CPU."""
        return self._session.devices()

    def drain(self) -> None:
        """Wait for the current CUDA device, if the job uses one."""
        self._session.drain()

    def wait(self, result: object) -> None:
        """Wait for the current CUDA device; work on the CPU has ended when its call returned."""
        self._session.drain()

    def open(self, level: Level) -> None:
        """Hooks at L and K, Kineto at K."""
        self._level = level
        if level not in ("L", "K"):
            return
        cuda = sys.modules["torch"].cuda
        self._with_events = bool(cuda.is_initialized())
        clock = _event_clock(cuda) if self._with_events else self._clock_ns
        self._marks = LayerMarks(clock, _announcer() if level == "K" else None)
        self._hooks = TorchHooks(self._marks, self._names)
        if level == "K":
            self._session.start(with_programs=False)
        self._hooks.install()

    def begin(self) -> None:
        """What was marked so far does not count."""
        if self._level == "K":
            self._step = self._session.step_annotation(0)
            self._step.__enter__()
        self._marks.reset()

    def close(self, *, read: bool = True) -> InstrumentReading:
        """Take out what `open` put in and read it."""
        if self._level not in ("L", "K"):
            return InstrumentReading()
        data = None
        if self._level == "K":
            assert self._step is not None
            self._step.__exit__(None, None, None)
            pending = self._session.stop()
            data = pending() if read else None
        self._hooks.remove()
        if not read:
            return InstrumentReading()
        layers, outside_cost_ps = self._layers(self._marks.take())
        return InstrumentReading(layers, outside_cost_ps, {} if data is None else self._ops(data), notes=self._notes())

    def _layers(self, marks: Marks) -> tuple[dict[LayerKey, LayerTime], int]:
        if self._with_events:
            times_ps = _resolve_events(marks.times) if marks.times else []
        else:
            times_ps = [one * PS_PER_NS for one in marks.times]
        cost = self._cost(any(way % 2 for _, way in marks.codes if way != OUTSIDE))
        charged = charge_marks(marks, times_ps, cost)
        layers = {
            self._names.key(key): LayerTime(
                self_ps=charged.self_ps.get(key, 0),
                cost_ps=charged.cost_ps.get(key, 0),
                calls=charged.calls.get(key, 0),
                kind=self._names.kind(key),
            )
            for key in {*charged.self_ps, *charged.calls} - {OUTSIDE}
        }
        return layers, charged.cost_ps.get(OUTSIDE, 0)

    def _cost(self, with_gradients: bool) -> MarkCost:
        """Calibrated once for work with a backward pass and once without; a device's events cost it next to nothing."""
        if self._with_events:
            return MarkCost()
        if with_gradients not in self._costs:
            self._costs[with_gradients] = calibrate_mark_cost(self._clock_ns, with_gradients=with_gradients)
        return self._costs[with_gradients]

    def _notes(self) -> tuple[str, ...]:
        if not self._hooks.elsewhere:
            return ()
        return (f"{self._hooks.elsewhere} module calls were compiled or on other threads: they are no layers here",)

    def _ops(self, data: bytes) -> dict[LayerOpKey, LayerOpTime]:
        """Ops (kernels where there is a device) by the layer that was charged when they began or were launched."""
        from phasepoint.sources.chrome.reader import read_kineto
        from phasepoint.sources.events.capture import CaptureRequest

        spans = read_kineto(data, CaptureRequest()).spans
        on_device = pc.any(pc.equal(spans["level"], "kernel")).as_py()
        inside = pc.fill_null(pc.equal(spans["step"], 0), False)
        wanted = spans.filter(pc.and_(pc.equal(spans["level"], "kernel" if on_device else "op"), inside))
        keys = charged_at(spans, cause_ps(spans, wanted))
        ops: dict[LayerOpKey, LayerOpTime] = {}
        columns = (wanted[name].to_pylist() for name in ("name", "level", "device", "self_ps"))
        for key, name, level, device, self_ps in zip(keys.tolist(), *columns, strict=True):
            op = LayerOpKey(None if key == OUTSIDE else self._names.key(key), name, level, device)
            before = ops.get(op, LayerOpTime(0, 0))
            ops[op] = LayerOpTime(before.self_ps + self_ps, before.calls + 1)
        return ops


def charged_at(spans: pa.Table, times_ps: Int64s) -> Int64s:
    """The key that was charged at each time, from what the marks left in the trace.

    Args:
        spans: rows of `spans`.
        times_ps: `[n]` times on their clock.
    """
    rows = spans.filter(pc.starts_with(spans["name"].cast(pa.string()), _ANNOUNCEMENT))
    start_ps = rows["start_ps"].to_numpy()
    order = np.argsort(start_ps, kind="stable")
    keys = np.array([int(name.removeprefix(_ANNOUNCEMENT)) for name in rows["name"].to_pylist()], np.int64)[order]
    found = np.searchsorted(start_ps[order], times_ps, side="right") - 1
    return np.where(found >= 0, keys[np.maximum(found, 0)], OUTSIDE) if len(keys) else np.full(len(found), OUTSIDE)


def cause_ps(spans: pa.Table, wanted: pa.Table) -> Int64s:
    """When each span was caused: the start of the host's call that launched it, else its own start.

    Args:
        spans: rows of `spans`.
        wanted: some of them.
    """
    start_ps = wanted["start_ps"].to_pylist()
    host = spans.filter(pc.equal(spans["level"], "runtime"))
    launched_ps = dict(zip(host["correlation"].to_pylist(), host["start_ps"].to_pylist(), strict=True))
    launched_ps.pop(None, None)
    levels, links = wanted["level"].to_pylist(), wanted["correlation"].to_pylist()
    return np.array(
        [
            launched_ps.get(link, own_ps) if level == "kernel" else own_ps
            for own_ps, level, link in zip(start_ps, levels, links, strict=True)
        ],
        np.int64,
    )


def _announcer() -> Callable[[int], None]:
    """Leaves an annotation of no length in the trace, on its own clock: `phasepoint.charged#4`, 1.5 µs each."""
    try:
        from torch.autograd import _record_function_with_args_enter, _record_function_with_args_exit
    except ImportError:
        from torch.profiler import record_function

        def announce_slowly(key: int) -> None:
            with record_function(f"{_ANNOUNCEMENT}{key}"):
                pass

        return announce_slowly

    def announce(key: int) -> None:
        _record_function_with_args_exit(_record_function_with_args_enter(f"{_ANNOUNCEMENT}{key}"))

    return announce


def _event_clock(cuda: Any) -> Callable[[], Any]:
    """A clock whose reading is an event on the device's current stream."""

    def read() -> Any:
        event = cuda.Event(enable_timing=True)
        event.record()
        return event

    return read


def _resolve_events(events: Sequence[Any]) -> list[int]:
    """The events' times in ps, from the first; none before the one that was recorded before it."""
    # `elapsed_time` is a float of milliseconds with a resolution of about half a microsecond.
    times_ps = [round(events[0].elapsed_time(event) * (PS_PER_MS // PS_PER_NS)) * PS_PER_NS for event in events]
    return [int(one) for one in np.maximum.accumulate(np.array(times_ps, np.int64))]
