"""Looks at the GPUs: what the driver's library is asked, which devices are the job's own, and what is not there."""

from types import SimpleNamespace

import pytest
from recorder_fakes import MS, FakeClock, FakeSession, fake_record

from phasepoint.core.tables import table_from_rows
from phasepoint.core.units import PS_PER_S
from phasepoint.recorder.clock import gpus
from phasepoint.recorder.clock.gpus import GpuLog, own_handles
from phasepoint.store import open_run

H100 = "gpu:0 NVIDIA H100 80GB HBM3"


class Nvml:
    """The driver's library with two devices, a handle of which is its number."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self, *, reasons=0, devices=2, fails=False, lacks=()):
        self.reasons, self.devices, self.fails, self.lacks = reasons, devices, fails, lacks

    def nvmlInit(self):
        if self.fails:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self):
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, index):
        if index >= self.devices:
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return {"GPU-aa": 0, "GPU-bb": 1}[uuid]

    def __getattr__(self, name):
        if name in self.lacks:
            raise AttributeError(name)
        told = {
            "nvmlDeviceGetPowerUsage": lambda h: 250_500 + h,
            "nvmlDeviceGetTotalEnergyConsumption": lambda h: 7_000_000 + h,
            "nvmlDeviceGetClockInfo": lambda h, which: {1: 1410, 2: 2619}[which],
            "nvmlDeviceGetMaxClockInfo": lambda h, which: 1980,
            "nvmlDeviceGetUtilizationRates": lambda h: SimpleNamespace(gpu=97, memory=40),
            "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(used=5 << 30),
            "nvmlDeviceGetTemperature": lambda h, which: 66,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda h: self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda h: self.reasons,
        }
        return told[name]


def log_of(nvml, devices=(H100,)):
    said = []
    return GpuLog(lambda: list(devices), said.append, load=lambda: nvml), said


def sampled(nvml, **options):
    log, said = log_of(nvml, **options)
    log.tend(0)
    assert not said
    return {(row["device"], row["name"]): (row["value"], row["unit"]) for row in log.take_rows()}


def test_each_reading_is_in_its_unit(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("LOCAL_RANK", "0")
    found = sampled(Nvml(reasons=0x04))
    assert {name: told for (device, name), told in found.items() if device == "gpu:0"} == {
        "gpu.power": (250.5, "W"),
        "gpu.energy": (7000.0, "J"),
        "gpu.clock": (1410.0, "MHz"),
        "gpu.clock.most": (1980.0, "MHz"),
        "gpu.memory.clock": (2619.0, "MHz"),
        "gpu.busy": (0.97, "ratio"),
        "gpu.memory.busy": (0.4, "ratio"),
        "gpu.memory.used": (float(5 << 30), "bytes"),
        "gpu.temperature": (66.0, "°C"),
        "gpu.slowed.power": (1.0, "yes"),
        "gpu.slowed.heat": (0.0, "yes"),
        "gpu.slowed.hardware": (0.0, "yes"),
    }


@pytest.mark.parametrize(
    ("mask", "why"),
    [(0x80, "power"), (0x20, "heat"), (0x40, "heat"), (0x08, "hardware"), (0x01, None), (0x02, None), (0x100, None)],
)
def test_what_holds_the_clock_down_is_told_from_idling_and_set_clocks(mask, why):
    found = sampled(Nvml(reasons=mask))
    slowed = {name for (_, name), (value, _) in found.items() if name.startswith(gpus.SLOWED) and value}
    assert slowed == ({f"{gpus.SLOWED}.{why}"} if why else set())


def test_what_a_device_or_an_older_library_does_not_tell_is_left_out():
    lacking = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetCurrentClocksEventReasons")
    found = {name for _, name in sampled(Nvml(lacks=lacking))}
    assert "gpu.energy" not in found
    assert f"{gpus.SLOWED}.heat" in found  # by the name that it had before driver 535


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {"gpu:0": 0, "gpu:1": 1}),
        ({"CUDA_VISIBLE_DEVICES": "1"}, {"gpu:0": 1}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-bb,0"}, {"gpu:0": 1, "gpu:1": 0}),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,0"}, {"gpu:0": 1}),
        ({"CUDA_VISIBLE_DEVICES": ""}, {}),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1234"}, {}),
        ({"LOCAL_RANK": "1"}, {"gpu:1": 1}),
        ({"LOCAL_RANK": "5"}, {"gpu:0": 0, "gpu:1": 1}),
    ],
)
def test_a_process_looks_at_its_own_devices(environ, expected):
    assert own_handles(Nvml(), environ) == expected


def test_samples_are_a_second_apart_and_later_less_often():
    log, _ = log_of(Nvml(devices=1))
    for at_s in (0, 0.5, 1, 1.5, 2):
        log.tend(int(at_s * PS_PER_S))
    assert log.samples == 3
    late = 36_000 * PS_PER_S
    for at_s in (0, 5, 9, 10, 11):
        log.tend(late + at_s * PS_PER_S)
    assert log.samples == 5
    log.tend(late + 12 * PS_PER_S, final=True)
    rows = log.take_rows()
    assert len(rows) == 6 * len(gpus.READINGS)
    assert log.samples == 0
    assert table_from_rows("counters", rows).num_rows == len(rows)


@pytest.mark.parametrize("devices", [("cpu:0",), ("gpu:0 AMD Instinct MI300X",), ("tpu:0 TPU v4",), ()])
def test_other_devices_are_not_asked_for(devices):
    def load():
        raise AssertionError("asked for")

    log = GpuLog(lambda: devices, pytest.fail, load=load)
    log.tend(0)
    assert log.take_rows() == []


def test_without_library_or_driver_one_note_says_so():
    def absent():
        raise ImportError("pynvml")

    said = []
    log = GpuLog(lambda: [H100], said.append, load=absent)
    for at_s in range(3):
        log.tend(at_s * PS_PER_S)
    assert said == ["power and clocks of the GPU are not known: pip install 'phasepoint[gpu]' brings nvidia-ml-py"]
    log, said = log_of(Nvml(fails=True))
    log.tend(0)
    assert said == ["power and clocks of the GPU are not known: the driver does not tell them (Driver Not Loaded)"]
    assert log.take_rows() == []


@pytest.mark.parametrize("is_there", [True, False])
def test_a_recording_holds_them(tmp_path, monkeypatch, still, is_there):
    def load():
        if is_there:
            return Nvml(devices=1)
        raise ImportError("pynvml")

    monkeypatch.setattr(GpuLog.__init__, "__kwdefaults__", {"load": load})
    clock = FakeClock()
    session = FakeSession(clock)
    session.devices = lambda: [H100]
    with fake_record(tmp_path / "run", clock, session) as run:
        for _ in run.steps(range(50)):
            clock.tick(1000)
            run.recorder._background.round(False)
    run = open_run(str(tmp_path / "run"))
    told = [(row["device"], row["value"]) for row in run.table("counters").to_pylist() if row["name"] == "gpu.power"]
    assert set(told) == ({("gpu:0", 250.5)} if is_there else set())
    assert len(told) == pytest.approx(50 if is_there else 0, abs=1)
    assert ("gpu_counters" in run.shards[0].session.notes) is not is_there


def test_a_driver_that_fails_takes_no_steps_with_it(tmp_path, monkeypatch, still):
    """Not by an error of its library's own: the recorder switches itself off, says so, and writes what it has."""

    class Failing(Nvml):
        def nvmlDeviceGetPowerUsage(self, handle):
            if clock.ns > began_ns + 20_500 * MS:
                raise OSError("the driver is gone")
            return 250_500

    monkeypatch.setattr(GpuLog.__init__, "__kwdefaults__", {"load": lambda: Failing(devices=1)})
    clock = FakeClock()
    session, began_ns = FakeSession(clock), clock.ns
    session.devices = lambda: [H100]
    with fake_record(tmp_path / "run", clock, session) as run:
        for _ in run.steps(range(50)):
            clock.tick(1000)
            run.recorder._background.round(False)
    run = open_run(str(tmp_path / "run"))
    assert run.table("steps").num_rows == 20
    assert "the driver is gone" in " ".join(run.table("gaps")["unknown"].to_pylist())
