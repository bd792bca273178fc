"""JAX at the levels. A compiled program has no place for marks: layers and ops are both read from XPlane.

L runs the profiler at the lowest level that tells the program's ops; K records what `jax.profiler.trace` records by
default, Python's calls included. An instant in which several ops run is charged to the one that began last.
"""

from contextlib import AbstractContextManager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.nesting import nest_spans
from phasepoint.measure.result import InstrumentReading, LayerKey, LayerOpKey, LayerOpTime, LayerTime, Level

OP_COST_PS = 500_000
"""What recording one op takes on CPU, its three to six events of 100–130 ns together (jax 0.10.2, 200 sorts of 4 × 4
numbers on one thread, November 2026)."""

_HOST_LEVEL = {"L": 1, "K": 2}
_PYTHON_LEVEL = {"L": 0, "K": 1}


class JaxInstrument:
    """`Instrument` of JAX; jax must have been imported."""

    framework = "jax"

    def __init__(self) -> None:
        from phasepoint.recorder.profilers.jax import JaxSession

        self._sessions = {
            level: JaxSession(host_level=_HOST_LEVEL[level], python_level=_PYTHON_LEVEL[level]) for level in ("L", "K")
        }
        self._level: Level = "M"
        self._step: AbstractContextManager[object] | None = None

    def version(self) -> str:
        """jax's version."""
        import jax

        return str(jax.__version__)

    def devices(self) -> list[str]:
        """The local devices."""
        return self._sessions["L"].devices()

    def drain(self) -> None:
        """Wait for every live array."""
        self._sessions["L"].drain()

    def wait(self, result: object) -> None:
        """Wait for the arrays in the result."""
        import jax

        jax.block_until_ready(result)

    def open(self, level: Level) -> None:
        """The profiler, at L and K."""
        self._level = level
        if level in self._sessions:
            self._sessions[level].start(with_programs=True)

    def begin(self) -> None:
        """What ran so far is in no step."""
        if self._level in self._sessions:
            self._step = self._sessions[self._level].step_annotation(0)
            self._step.__enter__()

    def close(self, *, read: bool = True) -> InstrumentReading:
        """End the profiler and read what it saw."""
        if self._level not in self._sessions:
            return InstrumentReading()
        assert self._step is not None
        self._step.__exit__(None, None, None)
        data = self._sessions[self._level].stop()()
        if not read:
            return InstrumentReading()
        from phasepoint.sources.events.capture import CaptureRequest
        from phasepoint.sources.xplane.reader import read_xplane

        return evidence_of_spans(read_xplane(data, CaptureRequest()).spans, with_ops=self._level == "K")


def evidence_of_spans(spans: pa.Table, *, with_ops: bool) -> InstrumentReading:
    """Times of layers, and of ops if they are wanted, in step 0.

    Args:
        spans: rows of `spans`.
        with_ops: whether ops are wanted.
    """
    works = pc.is_in(spans["level"].cast(pa.string()), pa.array(["op", "kernel"]))
    rows = spans.filter(pc.and_(works, pc.fill_null(pc.equal(spans["step"], 0), False)))
    start_ps = rows["start_ps"].to_numpy()
    end_ps = start_ps + rows["dur_ps"].to_numpy()
    self_ps = nest_spans(np.zeros(len(start_ps), np.int64), start_ps, end_ps).self_ps.tolist()
    layers: dict[LayerKey, LayerTime] = {}
    ops: dict[LayerOpKey, LayerOpTime] = {}
    names = ("layer", "direction", "name", "level", "device")
    for own_ps, layer, way, name, level, device in zip(
        self_ps, *(rows[column].to_pylist() for column in names), strict=True
    ):
        key = None if layer is None else LayerKey(layer, way)
        if key is not None:
            seen = layers.get(key, LayerTime(0, 0, 0))
            layers[key] = LayerTime(seen.self_ps + own_ps, seen.cost_ps + OP_COST_PS, seen.calls + 1)
        if with_ops:
            op = LayerOpKey(key, name, level, device)
            before = ops.get(op, LayerOpTime(0, 0))
            ops[op] = LayerOpTime(before.self_ps + own_ps, before.calls + 1)
    return InstrumentReading(layers, 0, ops)
