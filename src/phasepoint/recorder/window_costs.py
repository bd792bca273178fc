"""What a window of a given length is going to cost, learnt from the windows before.

A window costs something however short it is (starting, stopping, writing an empty capture) and something for every
event. Neither profiler tells how many events it holds before it is stopped, so events stand behind the two things that
are known: the time that capture is on, set beforehand, and the bytes of the capture, seen afterwards. Cost and bytes
are taken to grow with the time. Where only longer windows were seen, a shorter one saves no more than what lies
above `FIXED_PS`; where only shorter ones were seen, all of their cost but the start is taken to grow with the time.
"""

from msgspec import Struct

from phasepoint.core.units import PS_PER_MS, PS_PER_S

MARGIN = 4
"""A prediction is this many times the mean of what was seen.

So a window in which four times as much happens costs what was predicted, and one in which ten times as much happens (a
burst, another phase of the job) two and a half times.
"""

WORST = 1.25
"""What must be affordable, as a multiple of the prediction: five times as many events as were seen in the mean. A
window that meets more than that costs up to three times its prediction, and those after it wait."""

MEMORY = 0.7
"""Weight of a window against the one after it: the last three have two thirds of the weight."""

FIXED_PS = 20 * PS_PER_MS
"""Cost of a window of no length, where it was not seen: assumed, above the 2–6 ms of small windows on 2 cores
(`jax_session.py`, `torch_session.py`)."""

FIRST_BYTES_PER_S = 100e6
"""Bytes of capture in a second of the first window, at worst: assumed, 300,000 ops of PyTorch a second at 330 bytes."""


class WindowCost(Struct, frozen=True):
    """What one window cost, or is expected to cost, in picoseconds.

    Attributes:
        start_ps, stop_ps: opening and closing the profiler, on the job's thread.
        slowdown_ps: the captured steps' excess over their neighbours, all steps together.
        write_ps: CPU time of rendering, compressing and writing.
        convert_ps: CPU time of its conversion, 0 where that happens on another machine or after the job.
    """

    start_ps: int
    slowdown_ps: int
    stop_ps: int
    write_ps: int
    convert_ps: int = 0

    @property
    def total_ps(self) -> int:
        """The sum."""
        return self.start_ps + self.slowdown_ps + self.stop_ps + self.write_ps + self.convert_ps


class WindowCosts:
    """Learns from windows of one sort (with programs, without)."""

    def __init__(self) -> None:
        self.windows = 0
        self._weight = self._start_ps = self._rest_ps = self._dur_ps = self._bytes = 0.0

    def learn(self, cost: WindowCost, *, dur_ps: int, size_bytes: int) -> None:
        """A window was on for `dur_ps` and gave `size_bytes`."""
        self.windows += 1
        new = (1.0, cost.start_ps, cost.total_ps - cost.start_ps, max(1, dur_ps), size_bytes)
        old = (self._weight, self._start_ps, self._rest_ps, self._dur_ps, self._bytes)
        sums = (MEMORY * before + now for before, now in zip(old, new, strict=True))
        self._weight, self._start_ps, self._rest_ps, self._dur_ps, self._bytes = sums

    def mean_ps(self, dur_ps: float) -> float:
        """Expected cost of a window of this length."""
        typical_ps = self._dur_ps / self._weight
        rest_ps = self._rate * dur_ps
        if dur_ps < typical_ps:
            rest_ps = min(self._rate * typical_ps, FIXED_PS + rest_ps)
        return self._start_ps / self._weight + rest_ps

    def predicted_ps(self, dur_ps: float) -> int:
        """Predicted cost of a window of this length, an upper estimate: `MARGIN` times the mean."""
        return int(MARGIN * self.mean_ps(dur_ps))

    def longest_ps(self, cost_ps: float) -> float:
        """The longest window that is predicted to cost no more than this; 0 where none is."""
        rest_ps = cost_ps / MARGIN - self._start_ps / self._weight
        rate, typical_ps = self._rate, self._dur_ps / self._weight
        if rest_ps >= rate * typical_ps:
            return rest_ps / max(rate, 1e-12)
        return max(0.0, rest_ps - FIXED_PS) / max(rate, 1e-12)

    @property
    def bytes_per_ps(self) -> float:
        """Bytes of capture in a picosecond, the mean."""
        return self._bytes / self._dur_ps

    @property
    def _rate(self) -> float:
        """Cost but for the start in a picosecond of capture, where all of it grows with the time."""
        return self._rest_ps / self._dur_ps


FIRST_BYTES_PER_PS = FIRST_BYTES_PER_S / PS_PER_S
