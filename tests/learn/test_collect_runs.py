"""Kernels of recorded runs: the compiled module kept in the run, its times by window."""

import gzip
import os
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from phasepoint.core.errors import ModelError, NoDataError, SourceError
from phasepoint.core.tables import table_from_rows
from phasepoint.hlo.module import pack_hlo, parse_module, parse_module_proto, unpack_hlo
from phasepoint.hlo.schema import load_schema
from phasepoint.learn.corpus.collect import collect_run
from phasepoint.learn.corpus.corpus import read_corpus
from phasepoint.learn.corpus.measure import kernel_rows, times_of_ops
from phasepoint.learn.corpus.runs import CPU_NOTE
from phasepoint.learn.hlo_graph.kernels import kernels_of_module
from phasepoint.store import create_run, open_run, open_shard

pytestmark = pytest.mark.jax


def test_packed_hlo_is_the_same_and_bounded():
    proto = os.urandom(1000) + bytes(100_000)
    packed = pack_hlo(proto)
    assert len(packed) < 1200
    assert unpack_hlo(packed) == proto
    with pytest.raises(SourceError, match=r"unpack to more than .*40 times as much"):
        unpack_hlo(pack_hlo(bytes(50 << 20)))
    with pytest.raises(SourceError, match="no frame of Zstandard in the 3 bytes"):
        unpack_hlo(b"abc")
    with pytest.raises(SourceError, match="is damaged"):
        unpack_hlo(packed[:6] + bytes(20))


@pytest.fixture(scope="module")
def proto(collected):
    """A program as a trace carries it, and the name of a kernel of it."""
    hlo = gzip.decompress((collected[0] / "programs" / "a.softmax" / "program.hlo.pb.gz").read_bytes())
    message = load_schema("hlo")["HloProto"]()
    message.hlo_module.ParseFromString(hlo)
    kernels = kernels_of_module(parse_module_proto(hlo)).kernels
    return message.SerializeToString(), kernels[0].name


def _record(path, proto, op, times, *, devices=("gpu:0 Some GPU",), level="kernel"):
    """A run of one program whose windows hold the given times, ps, of one instruction: a step each."""
    create_run(path, devices=devices, frameworks={"jax": "0.10.2"})
    fixed = {"program": 5, "op": op, "device": "gpu:0", "level": level, "category": "compute", "count": 1}
    rows = [
        {**fixed, "window": window, "step": 10 * window + i, "total_ps": time_ps, "self_ps": time_ps}
        for window, of_window in enumerate(times)
        for i, time_ps in enumerate(of_window)
    ]
    program = {"program": 5, "name": "jit(step)/x", "first_window": 0, "instructions": 3, "hlo": proto}
    writer = open_shard(path, 0, epoch_unix_ns=0)
    writer.append("programs", table_from_rows("programs", [program]))
    writer.append("ops", table_from_rows("ops", rows))
    writer.close()
    return open_run(path)


def test_a_window_is_a_round(proto, tmp_path):
    run = _record(tmp_path / "run", pack_hlo(proto[0]), proto[1], [[9000, 7000, 8000], [6000, 9000]])
    found = collect_run(tmp_path / "corpus", run, "runs/mine")
    assert (found.device, found.measured, found.not_captured, found.failed) == ("Some GPU", 1, 0, ())
    (folder,) = (tmp_path / "corpus" / "programs").iterdir()
    assert folder.name == "mine.jit-step-x.h0a0p5"
    rows = pq.read_table(folder / "kernels.parquet").to_pylist()
    assert [(row["round"], row["repeats"], row["time_min_ps"], row["time_median_ps"]) for row in rows] == [
        (0, 3, 7000, 8000),
        (1, 2, 6000, 6000),
    ]
    corpus = read_corpus(tmp_path / "corpus")
    assert corpus.kernels.time_min_ps.tolist() == [6000]
    assert corpus.noise_floor_ratio == pytest.approx(1000 / 6000)
    assert (corpus.programs[0].mode, corpus.programs[0].wall_min_ps, corpus.notes) == ("recorded", None, ())


def test_of_a_cpu_the_corpus_says_what_its_times_hold(proto, tmp_path):
    run = _record(tmp_path / "run", pack_hlo(proto[0]), proto[1], [[9000]], devices=("cpu:0 cpu",), level="op")
    collect_run(tmp_path / "corpus", run, "run")
    assert CPU_NOTE in read_corpus(tmp_path / "corpus").notes


def test_what_cannot_be_used_is_said(proto, tmp_path):
    damaged = _record(tmp_path / "damaged", b"abc", proto[1], [[9000]])
    (failure,) = collect_run(tmp_path / "a", damaged, "damaged").failed
    assert "no frame of Zstandard in the 3 bytes" in failure.reason
    idle = _record(tmp_path / "idle", pack_hlo(proto[0]), proto[1], [])
    assert collect_run(tmp_path / "b", idle, "idle").not_captured == 1
    without = _record(tmp_path / "without", None, proto[1], [[9000]])
    with pytest.raises(NoDataError, match="no compiled module is kept in this run"):
        collect_run(tmp_path / "c", without, "without")
    mixed = _record(tmp_path / "mixed", None, proto[1], [[1]], devices=("gpu:0 A", "gpu:1 B"))
    with pytest.raises(ModelError, match=r"recorded on devices of 2 kinds \(gpu A, gpu B\); a corpus holds one"):
        collect_run(tmp_path / "d", mixed, "mixed")


@pytest.mark.data
@pytest.mark.parametrize(("name", "kernels"), [("gpu_jax_te_attention", 20), ("mi300_jax_conv", 4)])
def test_traces_of_gpus_hold_every_kernel_and_no_other(name, kernels):
    if "PHASEPOINT_DATA" not in os.environ:
        pytest.skip("PHASEPOINT_DATA is not set")
    from phasepoint.sources.events.capture import CaptureRequest
    from phasepoint.sources.xplane.reader import read_xplane

    file = Path(os.environ["PHASEPOINT_DATA"]) / "traces" / "xplane" / f"{name}.xplane.pb"
    capture = read_xplane(file.read_bytes(), CaptureRequest())
    ops = kernel_rows(capture.ops)
    (program,) = set(ops["program"].to_pylist()) - {None}
    times_ps, _ = times_of_ops(ops.filter(pc.equal(ops["program"], program)))
    packed = capture.programs.filter(pc.equal(capture.programs["program"], program))["hlo"][0].as_py()
    found = {kernel.name for kernel in kernels_of_module(parse_module(unpack_hlo(packed))).kernels}
    assert (len(found), found) == (kernels, set(times_ps))
