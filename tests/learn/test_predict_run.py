"""A recorded run's programs: prediction beside measurement."""

import pyarrow as pa
import pytest
from hlo_texts import proto_of_text, wrap_module

from phasepoint.core.errors import NoDataError, SourceError
from phasepoint.core.tables import table_from_rows
from phasepoint.learn.predict.predict import predict_programs
from phasepoint.learn.predict.programs import run_programs
from phasepoint.store import create_run, open_run, open_shard

PS_PER_US = 10**6

LOOP = """HloModule twice
fused { p = f32[256,512]{1,0} parameter(0)
  ROOT t = f32[256,512]{1,0} tanh(p) }
inner { p = (s32[], f32[256,512]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[256,512] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  act = f32[256,512]{1,0} fusion(x), kind=kLoop, calls=fused
  ROOT r = (s32[], f32[256,512]) tuple(next, act) }
cond { p = (s32[], f32[256,512]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT less = pred[] compare(i, n), direction=LT }
ENTRY main { x = f32[256,512] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[256,512]) tuple(zero, x)
  w = (s32[], f32[256,512]) while(t), condition=cond, body=inner, backend_config={"known_trip_count":{"n":"4"}}
  ROOT y = f32[256,512] get-tuple-element(w), index=1 }
"""

OPS = (("act", 4 * 10, 4 * 10 * 50), ("next", 4 * 10, 4 * 10 * 1), ("less", 5 * 10, 5 * 10 * 2))
"""Name, executions and self time in µs of ten runs of the program."""


def packed(text):
    return pa.Codec("zstd").compress(wrap_module(proto_of_text(text)), asbytes=True)


def written(path, hlo):
    create_run(path, command=("python", "train.py"), frameworks={"jax": "0.10.2"}, devices=("cpu",))
    writer = open_shard(path, 0, epoch_unix_ns=1)
    programs = [
        {"program": 7, "name": "other", "first_window": 0, "instructions": 1, "hlo": None},
        {"program": 8, "name": "twice", "first_window": 0, "instructions": 9, "hlo": hlo},
    ]
    ops = [
        {
            **{"window": 0, "step": step, "device": "gpu:0", "program": 8, "op": name, "level": "op"},
            **{"category": "compute", "count": count // 2, "total_ps": us, "self_ps": us * PS_PER_US // 2},
        }
        for step in (1, 2)
        for name, count, us in OPS
    ]
    writer.append("programs", table_from_rows("programs", programs))
    writer.append("ops", table_from_rows("ops", ops))
    writer.close()
    return open_run(path)


def test_a_programs_time_is_that_of_its_kernels_in_one_execution(tmp_path):
    (program,) = run_programs(written(tmp_path / "run", packed(LOOP)))
    assert program.name == "twice"
    measured = program.measured
    assert (measured.executions, measured.device) == (10, "gpu:0")
    assert measured.time_ps == (4 * 50 + 4 * 1 + 5 * 2) * PS_PER_US
    assert measured.kernels == {"act": 50 * PS_PER_US, "next": PS_PER_US, "less": 2 * PS_PER_US}
    (found,) = predict_programs([program], "T4")
    assert found.measured is measured
    assert found.device_kind == "gpu"


def test_a_damaged_module_is_said_to_be_one(tmp_path):
    with pytest.raises(SourceError, match="program twice of host=00000: its HLO is damaged"):
        run_programs(written(tmp_path / "run", packed(LOOP)[:-40]))


def test_a_run_without_modules_is_refused(tmp_path):
    with pytest.raises(NoDataError, match="holds no compiled programs"):
        run_programs(written(tmp_path / "run", None))
