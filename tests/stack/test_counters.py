"""Flop, bytes and occupancy from hardware counters."""

import pytest
from stack_runs import kernel, run_of

from phasepoint.stack.analyses.table import analyse
from phasepoint.stack.work.counters import COUNTED_NOTE


def metric(name, value, *, span=None, of=None):
    return {"window": 0, "span": span, "name": name, "unit": "", "value": value, "of": of}


def test_counters_of_executions_come_before_all_else(tmp_path):
    counted = [
        metric("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", 100.0, span=0),
        metric("smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", 20.0, span=0),
        metric("dram__bytes_read.sum", 64.0, span=0),
        metric("dram__bytes_write.sum", 32.0, span=0),
        metric("sm__warps_active.avg.pct_of_peak_sustained_active", 50.0, span=0),
        metric("something_else", 7.0, span=0),
    ]
    launches = [{"window": 0, "span": span, "occupancy_ratio": 0.25} for span in (0, 1)]
    run = run_of(tmp_path / "run", [kernel(0, 10), kernel(20, 50)], metrics=counted, launches=launches)
    first, second = sorted(analyse(run, "A8").rows.to_pylist(), key=lambda row: row["start_ps"])
    assert (first["flop"], first["flop_source"]) == (220, "counter")
    assert (first["read_bytes"], first["write_bytes"], first["bytes"]) == (64, 32, 96)
    assert (first["occupancy_ratio"], first["occupancy_source"]) == (0.5, "counter")
    assert first["flop_per_byte"] == 220 / 96
    assert first["flop_per_s"] == pytest.approx(220 / 10e-9)
    assert (second["flop"], second["occupancy_ratio"], second["occupancy_source"]) == (None, 0.25, "formula")
    (model,) = analyse(run, "A15").rows.to_pylist()
    assert model["occupancy_ratio"] == pytest.approx((0.5 * 10 + 0.25 * 30) / 40)
    assert (model["occupancy_source"], model["flop_known_ratio"]) == ("counter, formula", 0.25)


def test_counters_of_kernels_known_by_name_only(tmp_path):
    counted = [
        metric("dram__bytes_read.sum", 64.0, of="gemm"),
        metric("dram__bytes_read.sum", 36.0, of="gemm"),
        metric("dram__bytes_write.sum", 10.0, of="gemm"),
        metric("dram__bytes_write.sum", 10.0, of="gemm"),
        metric("flop_count_sp", 240.0, of="gemm"),
        metric("flop_count_sp", 0.0, of="gemm"),
        metric("achieved_occupancy", 0.5, of="relu"),
        metric("unheard_of", 1.0, of="relu"),
    ]
    table = analyse(run_of(tmp_path / "run", [kernel(0, 10, name="copy")], metrics=counted), "A10")
    assert COUNTED_NOTE in table.notes
    rows = {row["name"]: {k: v for k, v in row.items() if v is not None} for row in table.rows.to_pylist()}
    assert rows["gemm"] == {
        "host": 0,
        "name": "gemm",
        "kernels": 2,
        "layers": 0,
        "flop": 240,
        "flop_source": "counter",
        "read_bytes": 100,
        "write_bytes": 20,
        "bytes": 120,
        "bytes_source": "counter",
        "flop_per_byte": 2.0,
    }
    occupancy = {"occupancy_ratio": 0.5, "occupancy_source": "counter"}
    assert rows["relu"] == {"host": 0, "name": "relu", "kernels": 1, "layers": 0, **occupancy}
    assert rows["copy"]["device_ps"] == 10_000
