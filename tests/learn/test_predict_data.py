"""The analytic method's intervals against measured kernels of a TPU."""

import os
from pathlib import Path

import numpy as np
import pytest

from phasepoint.hlo.schema import load_schema
from phasepoint.learn.predict.predict import predict_kernel_times

pytestmark = pytest.mark.data


def test_most_kernels_of_a_tpu_lie_in_their_intervals():
    folder = os.environ.get("PHASEPOINT_DATA")
    if folder is None:
        pytest.skip("PHASEPOINT_DATA is not set")
    data = load_schema("tpu_graphs")["TuningData"]()
    data.ParseFromString((Path(folder) / "learn" / "tpu" / "op_tuning_data.pb").read_bytes())
    found = predict_kernel_times([one.module for one in data.modules], "TPU v3")
    measured = [
        next(run.profile.compute_time_ns for run in one.runs if run.is_default and not run.error) * 1000
        for one in data.modules
    ]
    assert len(found) == 15
    inside = [one.low_ps <= time_ps <= one.high_ps for one, time_ps in zip(found, measured, strict=True)]
    assert sum(inside) >= 13
    ratio = np.array(measured) / [one.time_ps for one in found]
    assert 0.8 < np.median(ratio) < 1.25
