"""`phasepoint stack measure`: regions in this process with a fake instrument, and the command with fake processes."""

import json

import pytest

from phasepoint.core.errors import NoDataError, RecordError, UsageError
from phasepoint.measure import regions
from phasepoint.measure.command import measure_command
from phasepoint.measure.regions import VARIABLE, MeasureOptions, region
from phasepoint.measure.result import InstrumentReading, LayerKey, LayerTime, Sample, sample_to_plain


class FakeInstrument:
    framework = "torch"

    def __init__(self, broken=False):
        self.opened = []
        self._broken = broken

    def version(self):
        return "2.13"

    def devices(self):
        return ["cpu:0"]

    def drain(self):
        pass

    def open(self, level):
        if self._broken:
            raise RecordError("profiler busy")
        self.opened.append(level)

    def begin(self):
        pass

    def close(self, *, read=True):
        return InstrumentReading()


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """Begins a process of the command at a level; gives the lines that it writes."""

    def begin(instrument, level="L"):
        monkeypatch.setattr("phasepoint.measure.instrument.make_instrument", lambda name: instrument)
        out = tmp_path / "out.jsonl"
        monkeypatch.setenv(VARIABLE, MeasureOptions(level, str(out), "torch").to_environ())
        regions._sampler_of.cache_clear()
        return lambda: [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []

    return begin


def test_outside_the_command_a_region_does_nothing(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with region():
        pass


def test_each_pass_is_a_sample_and_a_region_inside_another_is_part_of_it(launched):
    instrument = FakeInstrument()
    lines = launched(instrument)
    for _ in range(2):
        with region("decode"), region("inner"):
            pass
    head, *samples = lines()
    assert head == {"framework": "torch", "version": "2.13", "devices": ["cpu:0"]}
    assert [(one["region"], one["sample"]["level"]) for one in samples] == [("decode", "L")] * 2
    assert instrument.opened == ["L", "L"]


def test_the_scripts_own_error_passes_and_leaves_no_sample(launched):
    lines = launched(FakeInstrument())

    def fail():
        with region():
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert len(lines()) == 1
    with region():
        pass
    assert len(lines()) == 2


def test_a_level_that_cannot_be_measured_is_said_and_the_work_is_done(launched):
    lines = launched(FakeInstrument(broken=True), "K")
    done = []
    with region():
        done.append(1)
    assert done == [1]
    assert lines()[1:] == [{"unavailable": {"what": "K", "reason": "profiler busy"}}]


def processes(made):
    """A fake system: `made(level, number)` gives the lines that process number `number` writes."""
    ran = []

    def run(command, environ):
        options = MeasureOptions(**json.loads(environ[VARIABLE]))
        lines = made(options.level, len(ran))
        ran.append((tuple(command), options.level, options.framework))
        with open(options.out, "w", encoding="utf-8") as file:  # noqa: PTH123 - as the process itself does
            file.writelines(json.dumps(line) + "\n" for line in lines)
        return 0

    return run, ran


HEAD = {"framework": "jax", "version": "0.10", "devices": ["cpu:0"]}


def line(level, wall_ps, name="region", layers=None):
    reading = InstrumentReading(layers or {})
    return {"region": name, "sample": sample_to_plain(Sample(level, wall_ps, wall_ps, 0, reading))}


def test_processes_take_turns_and_their_first_run_is_a_warm_up():
    layers = {LayerKey("Net", None): LayerTime(150, 0, 1)}
    run, ran = processes(lambda level, number: [HEAD, line(level, 9999), *(line(level, 200, layers=layers),) * 3])
    (only,) = measure_command(["python", "infer.py"], levels=("M", "L"), repeats=2, framework="jax", run=run)
    assert [(level, framework) for _, level, framework in ran] == [
        ("M", "jax"),
        ("L", "jax"),
        ("L", "jax"),
        ("M", "jax"),
    ]
    found = only.measurement
    assert (only.region, found.framework, found.model_ps) == ("region", "jax", 200)
    assert [one.repeats_ps for one in found.levels] == [(200, 200), (200, 200)]
    assert (found.layers[0].latency_ps, found.unattributed_ps) == (150, 50)


def test_a_region_that_runs_once_has_no_warm_up():
    run, _ = processes(lambda level, number: [HEAD, line(level, 70)])
    (only,) = measure_command(["x"], levels=("M",), repeats=1, run=run)
    assert only.measurement.model_ps == 70


def test_regions_of_different_names_are_measured_apart():
    run, _ = processes(lambda level, number: [HEAD, line(level, 70, "prefill"), line(level, 5, "decode")])
    found = measure_command(["x"], levels=("M",), repeats=3, run=run)
    assert [(one.region, one.measurement.model_ps) for one in found] == [("prefill", 70), ("decode", 5)]


def test_what_a_process_could_not_measure_is_said_once():
    reason = {"unavailable": {"what": "K", "reason": "busy"}}
    run, _ = processes(lambda level, number: [HEAD, line("M", 7) if level == "M" else reason])
    (only,) = measure_command(["x"], levels=("M", "L", "K"), repeats=2, run=run)
    assert [(one.what, one.reason) for one in only.measurement.unavailable] == [("K", "busy")]
    assert [one.level for one in only.measurement.levels] == ["M"]


def test_a_script_that_marks_no_work_is_told_what_to_add():
    run, _ = processes(lambda level, number: [])
    with pytest.raises(NoDataError, match=r"with phasepoint\.stack\.region\(\)"):
        measure_command(["python", "infer.py"], levels=("M",), repeats=1, run=run)


def test_a_script_that_fails_is_named_with_its_exit_code():
    with pytest.raises(RecordError, match=r"python infer\.py: ended with exit code 3 at level M"):
        measure_command(["python", "infer.py"], levels=("M",), repeats=1, run=lambda command, environ: 3)


def test_no_command_and_no_repeats_are_refused():
    with pytest.raises(UsageError, match="no command to measure"):
        measure_command([], levels=("M",))
    with pytest.raises(UsageError, match="repeats 0"):
        measure_command(["x"], levels=("M",), repeats=0)


def test_a_command_that_is_not_there_is_named():
    with pytest.raises(RecordError, match="no-such-program: command not found"):
        measure_command(["no-such-program"], levels=("M",), repeats=1)
