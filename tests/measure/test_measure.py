"""`measure` with fake clocks and a fake instrument: which runs are made, in which order, and what becomes of them."""

import gc

import pytest

from phasepoint.core.errors import MissingExtraError, RecordError, UsageError
from phasepoint.measure.instrument import LevelClocks, Sampler, frameworks_of, make_instrument
from phasepoint.measure.measure import choose_levels
from phasepoint.measure.result import InstrumentReading, LayerKey, LayerTime
from phasepoint.stack import measure

NET = LayerKey("Net", "forward")
WORK_NS = {"M": 100, "L": 120, "K": 180}


class FakeInstrument:
    framework = "torch"

    def __init__(self, broken=()):
        self.now_ns, self.opened, self.level, self.waited, self.switches = 0, [], "M", [], 0
        self._broken = broken

    def version(self):
        return "2.13"

    def devices(self):
        return ["cpu:0"]

    def drain(self):
        pass

    def wait(self, result):
        self.waited.append(result)

    def open(self, level):
        self.opened.append(level)
        if level in self._broken:
            raise RecordError("the job's own profiler is on")
        self.level = level

    def begin(self):
        pass

    def close(self, *, read=True):
        if self.level == "M":
            return InstrumentReading()
        return InstrumentReading({NET: LayerTime((WORK_NS[self.level] - 20) * 1000, 0, 1)}, 20_000)


def run(instrument, **options):
    def work(value, *, plus):
        assert not gc.isenabled()
        instrument.now_ns += WORK_NS[instrument.level]
        return value + plus

    clocks = LevelClocks(lambda: instrument.now_ns, lambda: instrument.now_ns // 2, lambda: instrument.switches)
    return measure(work, [1], {"plus": 2}, instrument=instrument, clocks=clocks, **options)


def test_levels_take_turns_forwards_and_backwards():
    instrument = FakeInstrument()
    found = run(instrument, repeats=3, warmups=1)
    assert "".join(instrument.opened) == "MLK" + "MLK" + "KLM" + "MLK"
    assert instrument.waited == [3] * 12 * 6  # each run is primed by five that do not count
    assert gc.isenabled()
    assert [(one.level, one.repeats_ps, one.cpu_ps) for one in found.levels] == [
        ("M", (100_000,) * 3, 50_000),
        ("L", (120_000,) * 3, 60_000),
        ("K", (180_000,) * 3, 90_000),
    ]


def test_long_work_is_primed_by_one_run():
    instrument = FakeInstrument()

    def work():
        instrument.now_ns += 60_000_000
        return 3

    clocks = LevelClocks(lambda: instrument.now_ns, lambda: 0, lambda: 0)
    measure(work, levels="M", repeats=2, warmups=1, instrument=instrument, clocks=clocks)
    assert instrument.waited == [3] * 3 * 2


def test_the_hooks_time_is_taken_out_and_the_rest_closes():
    found = run(FakeInstrument(), repeats=1, warmups=1)
    assert found.closure_ratio == 1.0
    assert (found.layers[0].latency_ps, found.unattributed_ps) == (100_000, 0)
    assert found.layers[0].profiled_ps == 160_000
    assert (found.framework, found.framework_version, found.devices) == ("torch", "2.13", ("cpu:0",))


def test_runs_that_others_disturbed_are_made_again_as_long_as_there_is_patience():
    instrument = FakeInstrument()
    disturbed = iter([1, 0, 1, 1, 1, 0])  # warm-up; then a run and its second, a run and both others, a run

    def begin():
        instrument.switches += next(disturbed)

    instrument.wait = lambda result: None
    instrument.begin = lambda: None
    runs = []

    def work():
        runs.append(1)
        if len(runs) % 6 == 0:  # the call that counts
            begin()
        instrument.now_ns += 100

    clocks = LevelClocks(lambda: instrument.now_ns, lambda: 0, lambda: instrument.switches)
    options = {"instrument": instrument, "clocks": clocks}
    found = measure(work, levels="M", repeats=2, warmups=1, patience=2, **options)
    assert len(runs) == 6 * 5
    assert len(found.level("M").repeats_ps) == 2
    assert found.notes == ()


def test_where_most_runs_were_disturbed_a_note_says_so():
    instrument = FakeInstrument()

    def work():
        instrument.switches += 1

    clocks = LevelClocks(lambda: 0, lambda: 0, lambda: instrument.switches)
    found = measure(work, levels="M", repeats=3, instrument=instrument, clocks=clocks)
    assert found.notes == ("other processes took a processor away in 3 of 3 runs; latencies hold the waits",)


@pytest.mark.parametrize(("broken", "left"), [("K", "ML"), ("L", "M")])
def test_a_level_that_cannot_be_measured_is_left_out_with_its_reason(broken, left):
    found = run(FakeInstrument(broken), levels="MLK", repeats=2)
    assert "".join(one.level for one in found.levels) == left
    assert [(one.what, one.reason) for one in found.unavailable] == [(broken, "the job's own profiler is on")]


def test_work_that_raises_leaves_no_sample_and_no_instrument():
    instrument = FakeInstrument()
    sampler = Sampler(instrument)

    def fail():
        with sampler.sample("M"):
            raise KeyError("gone")

    with pytest.raises(KeyError):
        fail()
    assert sampler.samples == []
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("levels", "chosen"), [("M", "M"), ("l", "ML"), (["K", "L"], "MLK"), ("CM", "MC"), ("MLKC", "MLKC")]
)
def test_levels_are_put_in_order(levels, chosen):
    assert "".join(choose_levels(levels)) == chosen


def test_unknown_levels_and_kernels_without_layers_are_refused():
    with pytest.raises(UsageError, match=r"no level 'X'; the levels are M \(model\), L"):
        choose_levels("MX")
    with pytest.raises(UsageError, match="level K needs L"):
        choose_levels("MK")
    with pytest.raises(UsageError, match="repeats 0"):
        run(FakeInstrument(), repeats=0)


def test_an_unknown_framework_is_refused():
    with pytest.raises(UsageError, match="framework 'tf': expected torch or jax"):
        make_instrument("tf")


def test_a_framework_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"phasepoint\[torch\]"):
        make_instrument("torch")


def test_values_of_no_framework_say_nothing():
    assert frameworks_of([1, "x", {"a": [2.5, None]}]) == set()
